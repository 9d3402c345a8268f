"""In-place writes: every program runs under torch as it was and under JAX as converted, and must return the same."""

from __future__ import annotations

import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import runner

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n"
PROGRAMS = tomllib.loads(Path(__file__).with_name("inplace.toml").read_text(encoding="utf-8"))
CONVERTED = {k: v for table in ("equal", "modules", "indexed", "aliased", "handed") for k, v in PROGRAMS[table].items()}


def both(program: str) -> runner.Both:
    """Run a program of inplace.toml in both frameworks."""
    if "def main" not in program:
        program = "def main():\n" + textwrap.indent(program, "    ")
    return runner.run_both(HEAD + program)


@pytest.mark.parametrize("name", CONVERTED)
@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
def test_converted_programs_return_what_torch_returns(name: str) -> None:
    run = both(CONVERTED[name]["program"])
    assert not run.left, [(f.code, f.message) for f in run.left]
    assert CONVERTED[name]["holds"] in run.outcome.after
    assert run.same, (run.outcome.after, run.expected, run.got, run.error)


@pytest.mark.parametrize("name", PROGRAMS["refused"])
def test_writes_that_an_alias_would_see_are_refused(name: str) -> None:
    found = both(PROGRAMS["refused"][name]["program"]).outcome.findings
    says = PROGRAMS["refused"][name]["says"]
    assert any(f.code == "JM206" and says in f.message for f in found), [(f.code, f.message) for f in found]


@pytest.mark.parametrize("name", PROGRAMS["reported"])
def test_what_is_not_certain_is_reported(name: str) -> None:
    assert PROGRAMS["reported"][name]["code"] in both(PROGRAMS["reported"][name]["program"]).codes


@pytest.mark.parametrize("name", [n for n in CONVERTED if not CONVERTED[n]["holds"].endswith("\n")])
def test_a_converted_program_is_not_changed_again(name: str) -> None:
    before = both(CONVERTED[name]["program"]).outcome.after
    assert runner.convert(before)[0].after == before


def test_adding_to_a_parameter_of_unknown_kind_is_stated_where_the_function_returns_it() -> None:
    program = "import torch\n\ndef add(x, y):\n    x += y\n    return x\n\nz = torch.ones(2)\n"
    outcome, _ = runner.convert(program)
    assert [f.code for f in outcome.findings if f.severity != "note"] == ["JM161"]
    assert "    x += y\n    return x\n" in outcome.after


@pytest.mark.parametrize(
    "rest",
    [
        "    return x\n\nimport other\n\nadd(other.z, other.y)\n",  # a call that does not bind it
        "    return x\n\ncalls = [add]\n",
        "    return x + 1\n",
        "    if y:\n        return x\n",
        "    x = x * 2\n    return x\n",
    ],
)
def test_adding_to_a_parameter_of_unknown_kind_is_reported_elsewhere(rest: str) -> None:
    outcome, _ = runner.convert(f"import torch\n\nz = torch.ones(2)\n\ndef add(x, y):\n    x += y\n{rest}")
    assert "JM201" in {f.code for f in outcome.findings} or "JM206" in {f.code for f in outcome.findings}


def test_a_function_that_nothing_calls_states_that_its_argument_stays() -> None:
    program = "import torch\n\ndef fill(x: torch.Tensor):\n    x[0] = 1\n"
    outcome, _ = runner.convert(program)
    assert [f.code for f in outcome.findings if f.severity != "note"] == ["JM161"]
    assert outcome.after.endswith("    x = x.at[0].set(1)\n    return x\n")
