"""The kit itself: right and wrong files converted by hand must be told apart."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent

# What each case of proof/ must come to; the files' docstrings say why.
WANTED = {
    "case_0": {"abs": "pass", "bernoulli": "pass"},
    "case_1": {"abs": "crash"},
    "case_2": {"abs": "crash", "bernoulli": "WRONG"},
    "case_3": {"abs": "crash"},
    "case_4": {"abs": "pass", "bernoulli": "WRONG"},
    "train_0": {"SGD": "pass"},
    "train_4": {"SGD": "pass"},
    "train_5": {"SGD": "WRONG"},
}
MODULES = {
    ("nn.Linear", "Net0", "eval"): "pass",
    ("nn.BatchNorm1d", "Net0", "eval"): "pass",
    ("nn.BatchNorm1d", "Net0", "train"): "pass",
    ("nn.BatchNorm1d", "Net1", "eval"): "pass",
    ("nn.BatchNorm1d", "Net1", "train"): "WRONG",
}


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    data = tmp_path_factory.mktemp("oracle")
    generate(data, "opcases.py", "ops", ["abs", "bernoulli"])
    generate(data, "modcases.py", "modules", ["nn.Linear", "nn.BatchNorm1d"])
    generate(data, "optcases.py", "optims", ["SGD"])
    command = [sys.executable, str(HERE / "run.py"), "ops", "modules", "optims", "--data", str(data), "--brief"]
    command += ["--converter", f"cp -rT {HERE / 'proof'} {{dst}}", "--timeout", "5", "--out", str(data / "out.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr  # 1: some case is WRONG
    return json.loads((data / "out.json").read_text())["cases"]


def generate(data: Path, script: str, suite: str, names: list[str]) -> None:
    for name in names:
        command = [sys.executable, str(HERE / script), "--out", str(data / suite), "--only", name]
        subprocess.run(command, capture_output=True, check=True, env={**os.environ, "PYTHONHASHSEED": "0"})


def test_ops_and_optimizers(records: list[dict]) -> None:
    seen = {(r["op"], r["fn"]): r["outcome"] for r in records if r["suite"] != "modules"}
    for fn, wanted in WANTED.items():
        for op, outcome in wanted.items():
            assert seen[op, fn] == outcome, (op, fn)


def test_modules(records: list[dict]) -> None:
    seen = {(r["op"], r["fn"], r["variant"]): r["outcome"] for r in records if r["suite"] == "modules"}
    assert {k: seen[k] for k in MODULES} == MODULES
