"""The scorer itself: right, missing and falsified answers must be told apart."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
FALSIFIED = 'sh -c "cp -rT {src} {dst} && sed -i s/relu/sigmoid/ {dst}/*.py"'


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (["--converter", "cp -rT {src} {dst}", "--allow-torch"], {"equal": 1}),
        (["--converter", "cp -rT {src} {dst}"], {"crash": 1}),
        (["--converter", "true"], {"crash": 1}),
        (["--converter", FALSIFIED, "--allow-torch"], {"WRONG": 1}),
    ],
    ids=["unconverted", "torch blocked", "no output", "falsified"],
)
def test_verdicts(options: list[str], wanted: dict[str, int], tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    command = [sys.executable, str(HERE / "score.py"), "--only", "flatten_after", "--json", str(out), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == ("WRONG" in wanted), done.stderr
    assert Counter(r["verdict"] for r in json.loads(out.read_text())) == wanted
