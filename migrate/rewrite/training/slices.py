"""Which statements become the loss function: the backward slice of the loss that depends on the model."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from ...read.liveness import Liveness
from ..plan import Plan
from .flow import certain, entry_reads, uses
from .movable import Source, check_movable
from .roles import NotPlain


@dataclass(frozen=True)
class Region:
    """The statements of the loss function, in order (none when the loss is one expression of the backward statement).

    `whole` says that the backward statement's own expression is what is returned. `aux` are the names that are read
    afterwards, by first use; `carried` those that the statements read before they assign them; `feeding` those on which
    the loss depends.
    """

    stmts: tuple[ast.stmt, ...]
    whole: bool
    aux: tuple[str, ...]
    carried: tuple[str, ...]
    feeding: frozenset[str]


def find_region(
    plan: Plan,
    block: Sequence[ast.stmt],
    backward: ast.Expr,
    loss: ast.expr,
    function: ast.AST,
    model: str,
    arrays: tuple[str, ...],
    zero: Sequence[ast.stmt],
) -> Region:
    """The region for the loss of `backward`. Raises NotPlain."""
    source = Source(model, arrays)
    before = [s for s in block[: block.index(backward)] if s not in zero]
    tainted, stmts_tainted = _taint(before, source, _outer_taint(plan, block, before, backward, function, source))
    if not (source.read_by(loss) or uses(loss).reads & tainted):
        raise NotPlain(f"the loss does not depend on {model or ', '.join(arrays)} by anything in the same block")
    in_slice, feeding = _slice(before, loss)
    first = next((i for i, s in enumerate(before) if s in in_slice and s in stmts_tainted), None)
    whole = not isinstance(loss, ast.Name)
    if first is None:
        stmts: list[ast.stmt] = []
    else:
        last = len(before) - 1 if whole else max(i for i, s in enumerate(before) if s in in_slice)
        stmts = before[first : last + 1]
    check_movable(plan, stmts, backward, loss, function, source, tainted)
    spanned = [s for s in block if stmts and block.index(stmts[0]) <= block.index(s) <= block.index(stmts[-1])]
    after = backward if whole or not stmts else spanned[-1]
    aux = _aux(plan, stmts, after, function, loss)
    carried = tuple(n for n in _ordered(plan, stmts, entry_reads(stmts) & uses(stmts).writes, after_only=False))
    return Region(tuple(spanned), whole, aux, carried, frozenset(feeding))


def _taint(before: Sequence[ast.stmt], source: Source, tainted: set[str]) -> tuple[set[str], set[ast.stmt]]:
    """Names that carry a gradient at the end of `before`, and the statements that made them."""
    stmts: set[ast.stmt] = set()
    for stmt in before:
        found = uses(stmt)
        if (source.read_by(stmt) or found.reads & tainted) and not _detached(stmt):
            tainted |= found.writes | found.changes
            stmts.add(stmt)
        else:
            tainted -= certain(stmt)
    return tainted, stmts


def _detached(stmt: ast.stmt) -> bool:
    """An assignment whose value is cut off from the graph at its outermost call."""
    value = stmt.value if isinstance(stmt, (ast.Assign, ast.AnnAssign)) else None
    if isinstance(value, (ast.Tuple, ast.List)):
        return bool(value.elts) and all(_cut(v) for v in value.elts)
    if isinstance(value, (ast.Call, ast.Attribute)) and _cut(value):
        return True
    if isinstance(value, ast.Call) and value.args and isinstance(value.args[0], (ast.GeneratorExp, ast.ListComp)):
        return _cut(value.args[0].elt)
    return isinstance(value, (ast.ListComp, ast.GeneratorExp)) and _cut(value.elt)


def _cut(value: ast.expr) -> bool:
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        return value.func.attr in ("detach", "item", "tolist", "size")
    return isinstance(value, ast.Attribute) and value.attr in ("data", "shape", "device", "dtype")


def _outer_taint(
    plan: Plan,
    block: Sequence[ast.stmt],
    before: Sequence[ast.stmt],
    backward: ast.stmt,
    function: ast.AST,
    source: Source,
) -> set[str]:
    """Refuse tensors that statements outside the block made from the model: their gradient would be lost."""
    tree = plan.unit.tree
    limit = tree.start(block[0])
    chain = list(tree.ancestors(backward))
    tainted: set[str] = set()
    for stmt in sorted(
        (n for n in ast.walk(function) if isinstance(n, ast.stmt) and n is not function), key=tree.start
    ):
        if tree.start(stmt) >= limit or isinstance(stmt, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
            continue
        if isinstance(stmt, (ast.For, ast.While, ast.If, ast.With, ast.Try, ast.Match, ast.AsyncFor, ast.AsyncWith)):
            continue
        if tree.function(stmt) is not (function if not isinstance(function, ast.Module) else None):
            continue
        found = uses(stmt)
        if (source.read_by(stmt) or found.reads & tainted) and not _detached(stmt):
            tainted |= {n for n in found.writes if _may_carry(plan, stmt)}
        elif tree.parents[stmt] in chain:
            tainted -= certain(stmt)
    own = {source.model, *source.arrays}
    lost = tainted & entry_reads([*before, backward]) - own
    if lost:
        raise NotPlain(f"`{sorted(lost)[0]}` was computed from the model outside this block")
    return set()


def _may_carry(plan: Plan, stmt: ast.stmt) -> bool:
    """Whether the value that a statement assigns can hold a graph: not numbers, devices, optimizers, modules …"""
    value = getattr(stmt, "value", None)
    kind = plan.unit.kind(value) if isinstance(value, ast.expr) else None
    return kind is None or kind.tag in ("Tensor", "Variable", "unknown", "tuple", "list", "dict")


def _slice(before: Sequence[ast.stmt], loss: ast.expr) -> tuple[set[ast.stmt], set[str]]:
    """The statements on which the loss depends, and the names on the way."""
    needed = set(uses(loss).reads)
    feeding = set(needed)
    chosen: set[ast.stmt] = set()
    for stmt in reversed(before):
        found = uses(stmt)
        if (found.writes | found.changes) & needed:
            chosen.add(stmt)
            needed -= certain(stmt) - found.reads
            needed |= found.reads
            feeding |= found.reads | found.writes
    return chosen, feeding


def _aux(plan: Plan, stmts: Sequence[ast.stmt], last: ast.stmt, function: ast.AST, loss: ast.expr) -> tuple[str, ...]:
    body = function.body if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)) else []
    live = Liveness(body).after.get(last, frozenset())
    written = uses(stmts).writes
    for stmt in (s for s in stmts if isinstance(s, (ast.For, ast.AsyncFor))):
        written |= uses(stmt.target).writes
    wanted = (written & live) - ({loss.id} if isinstance(loss, ast.Name) else set())
    return _ordered(plan, [last], wanted, after_only=True)


def _ordered(plan: Plan, stmts: Sequence[ast.stmt], names: set[str], *, after_only: bool) -> tuple[str, ...]:
    """Names by their first use: after the last statement, or from the first on."""
    if not names or not stmts:
        return ()
    tree = plan.unit.tree
    start = tree.end(stmts[-1]) if after_only else tree.start(stmts[0])
    first: dict[str, int] = {}
    for node in tree.all(ast.Name):
        if node.id in names and isinstance(node.ctx, ast.Load) and tree.start(node) >= start:
            first[node.id] = min(first.get(node.id, 1 << 60), tree.start(node))
    return tuple(sorted(names, key=lambda n: (first.get(n, 1 << 60), n)))
