"""Forward methods that write to their argument: equal where no caller of the program notices, else stated or left."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
import runner

from jaxmigrate.project import convert_files
from jaxmigrate.read.source import Source
from jaxmigrate.rulebook import load_rules

HEAD = "import torch\nimport torch.nn as nn\n"
PROGRAMS = tomllib.loads(Path(__file__).with_name("forward_writes.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", PROGRAMS["equal"])
def test_where_nobody_notices_the_values_are_torchs(name: str) -> None:
    run = runner.run_both(HEAD + PROGRAMS["equal"][name]["program"])
    assert not [f for f in run.outcome.findings if f.severity != "note"]
    assert PROGRAMS["equal"][name]["holds"] in run.outcome.after
    assert run.same, (run.outcome.after, run.expected, run.got, run.error)


@pytest.mark.parametrize("name", PROGRAMS["stated"])
def test_what_an_outside_caller_would_notice_is_stated(name: str) -> None:
    outcome, _ = runner.convert(HEAD + PROGRAMS["stated"][name]["program"])
    assert [f.code for f in outcome.findings if f.severity != "note"] == PROGRAMS["stated"][name]["code"]
    assert PROGRAMS["stated"][name]["holds"] in outcome.after


@pytest.mark.parametrize("name", PROGRAMS["refused"])
def test_a_write_that_a_caller_sees_is_refused(name: str) -> None:
    outcome, _ = runner.convert(HEAD + PROGRAMS["refused"][name]["program"])
    found = [f for f in outcome.findings if f.code == "JM206"]
    assert any(PROGRAMS["refused"][name]["says"] in f.message for f in found), outcome.findings


@pytest.mark.parametrize("use", ["from layers import block\n", "import layers\nblock = layers.block\n"])
def test_a_module_that_another_file_holds_is_called(use: str) -> None:
    shift = "class Shift(nn.Module):\n    def forward(self, x):\n        x += 1\n        return x * 2\n\n"
    files = {
        "layers.py": f"{HEAD}{shift}block = Shift()\n\ndef use():\n    return block(torch.ones(3))\n",
        "main.py": f"{HEAD}{use}\ndef main():\n    x = torch.ones(3)\n    return block(x), x\n",
    }
    run = convert_files([Source(path, text) for path, text in files.items()], load_rules())
    assert ["`x` is read after the call in main.py" in f.message for f in run.findings if f.code == "JM206"] == [True]
