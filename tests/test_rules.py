"""Every case of every row through the engine: text in, text out; the code when the case says so; a second run changes
nothing."""

from __future__ import annotations

import ast
import re
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from jaxmigrate.project import convert_files
from jaxmigrate.read.source import Source
from jaxmigrate.report.findings import Outcome
from jaxmigrate.rulebook.load import load_rules

sys.path.insert(0, str(Path(__file__).parent))
import rule_env

RULES = Path(__file__).resolve().parents[1] / "rules"
IMPORTS = """\
import math
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
"""


@dataclass(frozen=True)
class Case:
    """One case: `before` is torch's text, `after` the JAX text or the code of a finding."""

    row: str
    number: int
    before: str
    after: str

    @property
    def wanted(self) -> str:
        return self.before if self.after == "=" else self.after


def cases() -> Iterator[Case]:
    """All cases but those of optimizers: what these become is part of a training step (test_optim_rows.py)."""
    for path in sorted(RULES.rglob("*.toml")):
        if path.parent.name == "optim":
            continue
        for name, row in tomllib.loads(path.read_text(encoding="utf-8")).items():
            for number, (before, after) in enumerate(row.get("cases", [])):
                yield Case(name, number, before, after)


CASES = list(cases())


def program(case: Case) -> str:
    """A file in which the case's text stands alone between two marks, with its variables as parameters of a function.

    What an in-place case writes to is a copy: a caller may see what happens to a parameter.
    """
    tree = ast.parse(case.before)
    used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    parameters = [
        f"{name}: int" if name == "n" else f"{name}: torch.Tensor" for name in rule_env.variables() if name in used
    ] or ["x: torch.Tensor"]  # a function without tensors would start a stream of random numbers of its own
    last = tree.body[-1]
    plain = isinstance(last, ast.Expr) and not is_inplace(last.value)
    head = [f"{name} = {name} * 1" for name in sorted(written(tree)) if name in rule_env.variables()]
    text = f"return {case.before}" if plain and len(tree.body) == 1 else case.before
    body = "\n".join([*head, "'begin'", text, "'end'"])
    imports = IMPORTS + "import torchvision\n" * ("torchvision" in case.before)
    imports += "import timm.layers\n" * ("timm" in case.before)
    return f"{imports}\n\ndef f({', '.join(parameters)}):\n{textwrap.indent(body, '    ')}\n"


def is_inplace(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.endswith("_")


def written(tree: ast.Module) -> set[str]:
    """The names through which the statements write."""
    found = set()
    for statement in tree.body:
        targets: list[ast.expr] = []
        if isinstance(statement, ast.Assign):
            targets = [t for t in statement.targets if not isinstance(t, ast.Name)]
        elif isinstance(statement, ast.AugAssign):
            targets = [statement.target]
        elif isinstance(statement, ast.Expr) and is_inplace(statement.value):
            assert isinstance(statement.value, ast.Call)
            targets = [statement.value.func, *statement.value.args[:1]]
        for target in targets:
            while isinstance(target, (ast.Attribute, ast.Subscript, ast.Call)):
                target = target.func if isinstance(target, ast.Call) else target.value
            if isinstance(target, ast.Name):
                found.add(target.id)
    return found


def inside(text: str) -> str:
    """What stands between the marks, without the keyword that `program` added and the line that splits a key."""
    body = textwrap.dedent(text.split("'begin'\n", 1)[1].rsplit("'end'", 1)[0].rstrip(" ")).strip()
    body = re.sub(r"\bsubkey\b", "key", re.sub(r"^key, subkey = jax\.random\.split\(key\)\n", "", body))
    return body.removeprefix("return ")


@cache
def converted() -> dict[Case, Outcome]:
    """All cases, each as a file of its own, converted in one run."""
    sources = [Source(f"case_{i}.py", program(case)) for i, case in enumerate(CASES)]
    outcomes = {o.path: o for o in convert_files(sources, load_rules()).outcomes}
    return {case: outcomes[f"case_{i}.py"] for i, case in enumerate(CASES)}


@cache
def again() -> dict[Case, Outcome]:
    """A second run, over what the first one wrote."""
    first = converted()
    sources = [Source(f"case_{i}.py", first[case].after) for i, case in enumerate(CASES)]
    outcomes = {o.path: o for o in convert_files(sources, load_rules()).outcomes}
    return {case: outcomes[f"case_{i}.py"] for i, case in enumerate(CASES)}


def label(case: Case) -> str:
    return f"{case.row}-{case.number}"


def test_rules_agree_with_torch() -> None:
    """Each row's signature, templates, arguments and conditions are checked against torch's own signatures."""
    load_rules(strict=True)


@pytest.mark.parametrize("case", CASES, ids=label)
def test_case(case: Case) -> None:
    outcome = converted()[case]
    codes = {f.code for f in outcome.findings}
    assert not codes & {"JM901", "JM902", "JM903"}, outcome.findings
    if case.after.startswith("JM"):
        assert case.after in codes, outcome.after
    else:
        assert inside(outcome.after) == case.wanted


@pytest.mark.parametrize("case", CASES, ids=label)
def test_second_run_changes_nothing(case: Case) -> None:
    assert again()[case].after == converted()[case].after
