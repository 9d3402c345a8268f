"""The programs of our own in corpus/: each runs under torch, and its conversion gives the same numbers.

All originals run in one process and all conversions in another: starting the frameworks takes longer than a program.
"""

from __future__ import annotations

import re
import runpy
import sys
from functools import cache
from pathlib import Path

import pytest
import torch

from jaxmigrate.project import convert_files
from jaxmigrate.read.source import Source
from jaxmigrate.report.findings import Outcome, fate
from jaxmigrate.rulebook import load_rules
from jaxmigrate.verify import CaseReport, VerifyOptions, find_cases
from jaxmigrate.verify.run import compare_case, run_converted, run_original

CORPUS = Path(__file__).resolve().parents[1] / "corpus"
PROGRAMS = sorted(CORPUS.glob("*.py"))
SCRIPTS = ("mnist_train", "vae_train")


def name(path: Path) -> str:
    return path.stem


@cache
def converted(path: Path) -> tuple[Outcome, str]:
    """The outcome of one program and the text of its layer file."""
    run = convert_files([Source(path.name, path.read_text(encoding="utf-8"))], load_rules())
    return run.outcomes[0], run.layer_file


@pytest.fixture(scope="module")
def verified(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[CaseReport]]:
    """The reports of each program's examples."""
    scratch = tmp_path_factory.mktemp("corpus")
    jobs = []
    for path in PROGRAMS:
        outcome, layers = converted(path)
        output = scratch / path.stem / path.name
        output.parent.mkdir()
        output.write_text(outcome.after, encoding="utf-8")
        (output.parent / "nnx_layers.py").write_text(layers, encoding="utf-8")
        jobs += [(path, output, case) for case in find_cases(path, path.read_text(encoding="utf-8"))]
    options = VerifyOptions(steps=1, divergence=False, precisions=())
    torch_side = run_original([(path, case) for path, _, case in jobs], options, scratch / "torch")
    weights = [scratch / "torch" / str(i) for i in range(len(jobs))]
    programs = [(output, case, folder) for (_, output, case), folder in zip(jobs, weights, strict=True)]
    jax_side = run_converted(programs, options, scratch / "jax")
    reports: dict[str, list[CaseReport]] = {path.stem: [] for path in PROGRAMS}
    for (path, _, case), ours, theirs in zip(jobs, torch_side, jax_side, strict=True):
        reports[path.stem].append(compare_case(case, ours, theirs, options))
    return reports


@pytest.mark.parametrize("path", PROGRAMS, ids=name)
def test_runs_under_torch(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "argv", [str(path)])
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)
    runpy.run_path(str(path), run_name="__main__")
    printed = capsys.readouterr().out
    assert printed
    if path.stem in SCRIPTS:
        losses = [float(number) for number in re.findall(r"(?:l|L)oss:? ([\d.]+)", printed)]
        assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize("path", PROGRAMS, ids=name)
def test_nothing_is_left(path: Path) -> None:
    outcome, _ = converted(path)
    assert [f for f in outcome.findings if fate(f.code) in ("left", "unmapped")] == []
    assert outcome.torch_free


@pytest.mark.parametrize("path", PROGRAMS, ids=name)
def test_conversion_gives_the_same_numbers(path: Path, verified: dict[str, list[CaseReport]]) -> None:
    cases = verified[path.stem]
    assert cases, "the program does not say what to run"
    for case in cases:
        assert case.ok, [s for s in case.stages if s.verdict not in ("equal", "not run")]
        assert {s.verdict for s in case.stages if s.name.startswith("forward")} == {"equal"}, case
