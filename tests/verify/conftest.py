"""One torch recording of the six golden modules, shared by every test that compares something with it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from jaxmigrate.verify import Case, VerifyOptions, parse_case
from jaxmigrate.verify.record import Recording
from jaxmigrate.verify.run import run_original

from .slips import EXAMPLES, MODULES


@dataclass(frozen=True)
class Golden:
    """The recorded originals: case, recording and the folder it lies in, by the module's name."""

    cases: dict[str, Case]
    recordings: dict[str, Recording]
    folders: dict[str, Path]
    options: VerifyOptions


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Golden:
    scratch = tmp_path_factory.mktemp("golden")
    options = VerifyOptions(precisions=())
    cases = {name: parse_case(text) for name, text in EXAMPLES.items()}
    recordings = run_original([(MODULES / n / "torch_in.py", c) for n, c in cases.items()], options, scratch)
    folders = {name: scratch / str(i) for i, name in enumerate(cases)}
    return Golden(cases, dict(zip(cases, recordings, strict=True)), folders, options)
