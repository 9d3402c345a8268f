"""A test file that keeps two programs equal for as long as both live."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from .cases import Case
from .results import VerifyOptions

_TEXT = '''"""{left} and {right} give the same numbers.

Written by `jaxmigrate verify --write-test`; yours to edit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jaxmigrate.verify import VerifyOptions, parse_case, verify_pair

HERE = Path(__file__).parent
ORIGINAL = HERE / {left!r}
CONVERTED = HERE / {right!r}
OPTIONS = VerifyOptions({options})
EXAMPLES: list[tuple[str, dict[str, Any]]] = [
{examples}
]


@pytest.mark.parametrize(("example", "settings"), EXAMPLES)
def test_equal(example: str, settings: dict[str, Any]) -> None:
    report = verify_pair(ORIGINAL, CONVERTED, [parse_case(example, settings)], OPTIONS)
    [case] = report.cases
    wrong = [stage for stage in case.stages if stage.verdict in ("different", "failed")]
    assert report.ok, [case.statement, case.divergence, *wrong]
'''


def test_file(original: Path, converted: Path, cases: Sequence[Case], options: VerifyOptions, target: Path) -> str:
    """The text of a pytest file at `target` that verifies the pair."""
    plain = vars(VerifyOptions())
    folder = target.resolve().parent
    return _TEXT.format(
        left=os.path.relpath(original.resolve(), folder),
        right=os.path.relpath(converted.resolve(), folder),
        options=", ".join(f"{k}={v!r}" for k, v in vars(options).items() if v != plain[k] and k != "bench"),
        examples="\n".join(f"    ({_quoted(case.text)}, {case.overrides!r})," for case in cases),
    )


def _quoted(text: str) -> str:
    return f'"{text}"' if '"' not in text and "\\" not in text else repr(text)
