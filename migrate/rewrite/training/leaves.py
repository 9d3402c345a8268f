"""Tensors whose `.grad` is read: what reads it, what sets it to zero, and whether an earlier gradient can be in it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...read.unit import Unit
from ..plan import Plan
from .flow import uses
from .marking import backward_before, clears, gradient_nodes, marks
from .roles import NotPlain

_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_SHOWN = frozenset(("data", "detach"))  # `x.grad.data`: the same values


@dataclass(frozen=True)
class Leaves:
    """The tensors of one backward pass: their names, the reads of their gradients, the statements that go (those that
    set gradients to zero or mark what is differentiated). `before` are those that may hold a gradient from earlier."""

    names: tuple[str, ...]
    reads: tuple[ast.Attribute, ...]
    gone: tuple[ast.stmt, ...]
    before: tuple[str, ...]


def find_leaves(plan: Plan, function: ast.AST, block: Sequence[ast.stmt], backward: ast.Expr) -> Leaves:
    """What a function does with the gradients of names, around one backward statement. Raises NotPlain."""
    unit, tree = plan.unit, plan.unit.tree
    cleared = {s: o for s in ast.walk(function) if isinstance(s, ast.stmt) and (o := clears(s)) is not None}
    cleared = {s: o for s, o in cleared.items() if tree.parents[s] not in cleared}
    inside = {n for s in cleared for n in ast.walk(s)}
    reads = [n for n in gradient_nodes(unit, function) if n not in inside]
    reads = [n for n in reads if backward_before(unit, n) in (backward, None)]
    if not reads:
        raise NotPlain("no optimizer.step() follows in the same block")
    names = dict.fromkeys(_name(n.value) for n in reads)
    after = _straight(unit, block[block.index(backward) + 1 :])
    below = {n: i for i, s in enumerate(after) for n in ast.walk(s)}
    ends = {_name(o): below[s] for s, o in cleared.items() if s in below}
    for node in reads:
        changed = isinstance(above := tree.parents[node], ast.Attribute) and above.attr.endswith("_")
        if node not in below or not isinstance(node.ctx, ast.Load) or changed:
            raise NotPlain(f"`{ast.unparse(node)}` is read or written where it is no value")
        if below[node] > ends.get(_name(node.value), 1 << 30):
            raise NotPlain(f"`{ast.unparse(node)}` is read after it is set to zero")
    marked = [s for s in ast.walk(function) if isinstance(s, ast.stmt) and marks(s) in names]
    zeros = {_name(o) for s, o in cleared.items() if s in block or s in after}
    loop = next((u for u in _around(unit, backward, function) if isinstance(u, _LOOPS)), None)
    before = []
    for name in names:
        if name in zeros and any(s in block[: block.index(backward)] for s, o in cleared.items() if _name(o) == name):
            continue
        if loop is None:
            before += [name] if not made_here(unit, function, name) else []
        elif name not in zeros and not _anew(block, loop, name):
            raise NotPlain(f"the gradients of `{name}` accumulate over the loop")
        if loop is not None and any(isinstance(n, ast.Continue) for s in after for n in ast.walk(s)):
            raise NotPlain("the loop goes on before a gradient is set to zero")
    return Leaves(tuple(names), tuple(reads), (*cleared, *marked), tuple(before))


def _name(node: ast.expr) -> str:
    if not isinstance(node, ast.Name):
        raise NotPlain(f"`{ast.unparse(node)}.grad` is read or written: in JAX gradients are values")
    return node.id


def _straight(unit: Unit, stmts: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Statements in order, those of `with torch.no_grad():` in its place."""
    found: list[ast.stmt] = []
    for stmt in stmts:
        found += _straight(unit, stmt.body) if isinstance(stmt, ast.With) else [stmt]
    return found


def _around(unit: Unit, node: ast.AST, function: ast.AST) -> Iterator[ast.AST]:
    for up in unit.tree.ancestors(node):
        if up is function:
            return
        yield up


def made_here(unit: Unit, function: ast.AST, name: str) -> bool:
    """Whether every value of the name is made in this function: no gradient can be in it yet."""
    scope = unit.scopes.of.get(function)
    bindings = scope.bindings.get(name, []) if scope is not None else []
    return bool(bindings) and all(b.kind == "assign" for b in bindings)


def _anew(block: Sequence[ast.stmt], loop: ast.AST, name: str) -> bool:
    """Whether each turn of the loop binds the name to another tensor."""
    if isinstance(loop, ast.For) and name in uses(loop.target).writes:
        return True
    made = [s for s in block if isinstance(s, ast.Assign) and name in uses(s).writes]
    inner = [s for w in block if isinstance(w, ast.With) for s in w.body if isinstance(s, ast.Assign)]
    made += [s for s in inner if name in uses(s).writes]
    return bool(made) and block in [getattr(loop, "body", None)]
