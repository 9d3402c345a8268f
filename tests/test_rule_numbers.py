"""Every case of every rule, run in both frameworks: the torch text under torch, the JAX text under JAX, same variables.

Compared are structure, shapes, kinds of types, values, and the gradients of a fixed weighting of the outputs with
respect to the float variables that the torch text reads. Rows that draw random numbers are compared by shape and type,
and two calls must differ. Gradients of rows with a JM131 note are not compared: the note states that they differ.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import sys
import tomllib
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
import rule_env

RULES = Path(__file__).resolve().parents[1] / "rules"


@dataclass(frozen=True)
class Case:
    """One case of one row: `before` is torch's text, `after` the JAX text."""

    row: str
    before: str
    after: str
    notes: frozenset[str]

    @property
    def is_random(self) -> bool:
        return any(isinstance(n, ast.Name) and n.id == "key" for n in ast.walk(ast.parse(self.after)))


def rows() -> Iterator[tuple[str, Mapping[str, Any]]]:
    for path in sorted(RULES.rglob("*.toml")):
        for name, row in tomllib.loads(path.read_text(encoding="utf-8")).items():
            if isinstance(row, dict) and "cases" in row:
                yield name, row


def cases() -> list[Any]:
    """The cases that can run by themselves: one expression or one in-place statement, over the known variables only."""
    found = []
    for name, row in rows():
        if row.get("numeric") is False:
            continue
        notes = row.get("note", [])
        codes = frozenset(n["code"] for n in (notes if isinstance(notes, list) else [notes]))
        for number, (before, after) in enumerate(row["cases"]):
            after = before if after == "=" else after
            if not after.startswith("JM") and _stands_alone(before):
                found.append(pytest.param(Case(name, before, after, codes), id=f"{name}-{number}"))
    return found


def _stands_alone(text: str) -> bool:
    tree = ast.parse(text)
    known = {*rule_env.variables(), *dir(builtins), "torch", "nn", "F", "np", "math"}
    stored = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    read = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    return read - stored <= known


def run(text: str, names: dict[str, Any]) -> Any:
    """The value of an expression; after statements, the value of the variable that the last one is about."""
    tree = ast.parse(text)
    last = tree.body[-1]
    if isinstance(last, ast.Expr) and not _is_inplace(last.value):
        exec(compile(ast.Module(tree.body[:-1], []), "<case>", "exec"), names)
        return eval(compile(ast.Expression(last.value), "<case>", "eval"), names)
    exec(compile(tree, "<case>", "exec"), names)
    return names[_subject(last)]


def _is_inplace(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.endswith("_")


def _subject(statement: ast.stmt) -> str:
    """The variable that an in-place statement changes: `x` in `x.add_(1)`, in `x[i] = v` and in `x = x + 1`."""
    node: Any = statement
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Assign):
            node = node.targets[0]
        elif isinstance(node, ast.AugAssign):
            node = node.target
        elif isinstance(node, ast.Call):
            node = (
                node.func
                if isinstance(node.func, ast.Attribute) and node.func.attr.endswith("_") and _method(node.func)
                else node.args[0]
            )
        else:
            node = node.value
    return node.id


def _method(func: ast.Attribute) -> bool:
    root: Any = func.value
    while isinstance(root, ast.Attribute):
        root = root.value
    return not (isinstance(root, ast.Name) and root.id in ("torch", "nn", "F"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cases")


@pytest.fixture(autouse=True)
def quiet(folder: Path) -> Iterator[None]:
    """Without warnings, and in a folder for what the cases of torch.save write."""
    with warnings.catch_warnings(), contextlib.chdir(folder):
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("case", cases())
def test_case_gives_the_same_numbers(case: Case) -> None:
    values = rule_env.variables()
    torch.manual_seed(0)
    wanted = run(case.before, rule_env.torch_names(values))
    got = run(case.after, rule_env.jax_names(values))
    if case.is_random:
        assert not rule_env.differences(wanted, got, close=lambda a, b: True), case
        other = run(case.after, {**rule_env.jax_names(values), "key": jax.random.key(1)})
        assert any(not np.array_equal(a, b) for a, b in _pairs(got, other)), f"{case}: two keys, one result"
        return
    assert not (problems := rule_env.differences(wanted, got)), f"{case.row}: {case.before} -> {case.after}: {problems}"
    if not case.notes & {"JM131"}:
        _compare_gradients(case, values)


def _pairs(a: Any, b: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    arrays = [[x for x in map(rule_env.as_array, rule_env.leaves(v)) if x is not None] for v in (a, b)]
    return list(zip(*arrays, strict=True))


def _compare_gradients(case: Case, values: Mapping[str, Any]) -> None:
    names = [
        n
        for n in rule_env.FLOATS
        if any(isinstance(t, ast.Name) and t.id == n for t in ast.walk(ast.parse(case.before)))
    ]
    if not names or not _differentiable(case.before):
        return
    wanted = _torch_gradients(case.before, names, values)
    if wanted is None:
        return
    got = _jax_gradients(case.after, names, values)
    for name in names:
        problems = rule_env.differences(wanted[name], got[name])
        assert not problems, f"{case.row}: gradient of {case.before} -> {case.after} for {name}: {problems}"


def _differentiable(text: str) -> bool:
    """Texts that leave the graph on purpose have no gradient to compare."""
    return not any(word in text for word in (".item()", ".tolist()", ".numpy()", ".data", "torch.equal", "allclose"))


def _weight(array: np.ndarray) -> np.ndarray:
    """Fixed, uneven weights of an output's shape."""
    return np.asarray(np.cos(np.arange(array.size, dtype=np.float32)).reshape(array.shape) + 1.5)


def _torch_gradients(text: str, names: list[str], values: Mapping[str, Any]) -> dict[str, np.ndarray] | None:
    namespace = rule_env.torch_names(values)
    inputs = {n: namespace[n].requires_grad_() for n in names}
    for n in names:  # an in-place method may not write to a leaf
        namespace[n] = inputs[n] * 1
    outputs = [o for o in rule_env.leaves(run(text, namespace)) if isinstance(o, torch.Tensor) and o.requires_grad]
    if not outputs:
        return None
    total = sum(
        (o.abs() if o.is_complex() else o).mul(torch.from_numpy(_weight(rule_env.as_array(o)))).sum() for o in outputs
    )
    found = torch.autograd.grad(total, list(inputs.values()), allow_unused=True)
    return {n: np.zeros_like(values[n]) if g is None else g.numpy() for n, g in zip(names, found, strict=True)}


def _jax_gradients(text: str, names: list[str], values: Mapping[str, Any]) -> dict[str, np.ndarray]:
    namespace = rule_env.jax_names(values)

    def total(inputs: dict[str, jax.Array]) -> jax.Array:
        result = rule_env.leaves(run(text, {**namespace, **inputs}))
        floats = [o for o in result if isinstance(o, jax.Array) and jnp.issubdtype(o.dtype, jnp.inexact)]
        return sum(((jnp.abs(o) if jnp.iscomplexobj(o) else o) * _weight(np.zeros(o.shape))).sum() for o in floats)  # type: ignore[return-value]

    found = jax.grad(total)({n: namespace[n] for n in names})
    return {n: np.asarray(g) for n, g in found.items()}
