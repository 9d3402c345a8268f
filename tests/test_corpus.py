"""The programs of our own in corpus/: each runs under torch, and its conversion gives the same numbers."""

from __future__ import annotations

import importlib.util
import runpy
import sys
from pathlib import Path

import pytest
import torch

CORPUS = Path(__file__).resolve().parents[1] / "corpus"
PROGRAMS = sorted(CORPUS.glob("*.py"))
ENGINE = importlib.util.find_spec("jaxmigrate.project") and importlib.util.find_spec("jaxmigrate.verify.run")


def name(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("path", PROGRAMS, ids=name)
def test_runs_under_torch(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "argv", [str(path)])
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out


@pytest.mark.parametrize("program", ["vae_train", "mnist_train"])
def test_training_programs_learn(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [program])
    losses = runpy.run_path(str(CORPUS / f"{program}.py"))["main"]()
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize("path", PROGRAMS, ids=name)
def test_says_what_to_run(path: Path) -> None:
    from jaxmigrate.verify import find_cases

    assert find_cases(path, path.read_text(encoding="utf-8"))


@pytest.mark.skipif(not ENGINE, reason="the engine or verify is not there yet")
@pytest.mark.parametrize("path", PROGRAMS, ids=name)
def test_conversion_gives_the_same_numbers(path: Path, tmp_path: Path) -> None:
    measure = load("measure")
    judged = load("judged")
    converted = measure.convert(path, tmp_path / path.name, tmp_path / "report.json")
    result = judged.verified(path.stem, path, converted)
    assert (result.verdict, result.left) == ("equal", ()), result


def load(module: str):
    """A module of this folder, which scripts import by its bare name."""
    if module not in sys.modules:
        spec = importlib.util.spec_from_file_location(module, Path(__file__).parent / f"{module}.py")
        assert spec is not None and spec.loader is not None
        sys.modules[module] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[module])
    return sys.modules[module]
