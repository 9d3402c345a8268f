"""Which statements become the loss function: the backward slice of the loss that depends on the model."""

from __future__ import annotations

import ast
import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...read.liveness import Liveness
from ..plan import Plan
from .cuts import cuts, cuts_all, joined, under_no_grad
from .flow import block_of, certain, entry_reads, uses
from .keepers import check_keepers
from .late import late
from .movable import check_movable, check_whole
from .roles import NotPlain
from .sources import Source
from .stored import check_stored


@dataclass(frozen=True)
class Split:
    """A value that was computed from a module before the loss function begins: `name = …`, and its module."""

    name: str
    stmt: ast.Assign
    model: str


@dataclass(frozen=True)
class Region:
    """The statements of the loss function, in order (none when the loss is one expression of the backward statement).

    `whole` says that the backward statement's own expression is what is returned. `aux` are the names that are read
    afterwards, by first use; `carried` those that the statements read before they assign them; `feeding` those on which
    the loss depends; `splits` the values through which it depends on modules that were called before; `others` the
    modules that take part and are not differentiated; `late` statements between them that follow the gradient.
    """

    stmts: tuple[ast.stmt, ...]
    whole: bool
    aux: tuple[str, ...]
    carried: tuple[str, ...]
    feeding: frozenset[str]
    splits: tuple[Split, ...] = ()
    others: tuple[str, ...] = ()
    late: tuple[ast.stmt, ...] = ()


@dataclass(frozen=True)
class Place:
    """Where a backward statement stands: its block, the index after the last statement that acts on gradients before
    it, and the zero_grad statements, which go."""

    function: ast.AST
    block: Sequence[ast.stmt]
    backward: ast.stmt
    start: int = 0
    zero: tuple[ast.stmt, ...] = ()

    @property
    def end(self) -> int:
        """The index behind the forward pass."""
        return self.block.index(self.backward) if self.backward in self.block else len(self.block)


def find_region(plan: Plan, place: Place, losses: Sequence[ast.expr], source: Source) -> Region:
    """The region for the loss of a backward statement, or for the names of several losses. Raises NotPlain."""
    block, backward = place.block, place.backward
    loss = losses[0] if len(losses) == 1 else ast.Tuple(list(losses), ast.Load())
    before = [s for s in block[place.start : place.end] if s not in place.zero]
    check_stored(plan, place.function, losses)
    splits = _splits(plan, place, before, loss, source)
    names = {s.name for s in splits}
    tainted, stmts_tainted = _taint(plan, before, source, set(names))
    if not (source.read_by(loss) or uses(loss).reads & tainted):
        raise NotPlain(f"the loss does not depend on {source.named} by anything in the same block")
    in_slice, feeding = _slice(before, loss)
    first = next((i for i, s in enumerate(before) if s in in_slice and s in stmts_tainted), None)
    whole = len(losses) == 1 and not isinstance(loss, ast.Name)
    if first is None:
        stmts: list[ast.stmt] = []
    else:
        last = len(before) - 1 if whole else max(i for i, s in enumerate(before) if s in in_slice)
        stmts = before[_opening(before, first, last) : last + 1]
    check_whole([s for s in before if s in in_slice], loss, source)
    after_all = late(plan, stmts, in_slice)
    stmts = [s for s in stmts if s not in after_all]
    check_keepers(plan, place.function, stmts, loss, source)
    others = check_movable(plan, stmts, backward, loss, place.function, source, tainted)
    spanned = [s for s in block if stmts and block.index(stmts[0]) <= block.index(s) <= block.index(stmts[-1])]
    after = backward if whole or not stmts else spanned[-1]
    spanned = [s for s in spanned if s not in after_all]
    aux = _aux(plan, stmts, after, place.function, loss, uses(after_all).reads)
    carried = tuple(n for n in _ordered(plan, stmts, entry_reads(stmts) & uses(stmts).writes, after_only=False))
    if names & set(carried):
        raise NotPlain(f"`{next(iter(names & set(carried)))}` changes between forward and backward")
    used = tuple(s for s in splits if any(s.name in uses(p).reads for p in [*stmts, loss]))
    return Region(tuple(spanned), whole, aux, carried, frozenset(feeding), used, others, after_all)


def _opening(before: Sequence[ast.stmt], first: int, last: int) -> int:
    """The index of the first statement of the forward pass: a list that it fills, and a sum that it adds to, begin in
    it too."""
    while True:
        stmts = before[first : last + 1]
        found = uses(stmts)
        grown = (found.changes - found.writes) | (entry_reads(stmts) & found.writes)
        makers = [i for i in range(first) if uses(before[i]).writes & grown]
        if not makers or not _begins(before[makers[-1]]):
            return first
        first = makers[-1]


def _begins(stmt: ast.stmt) -> bool:
    """`losses = []`, `total = 0`."""
    value = stmt.value if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 else None
    if not isinstance(stmt, ast.Assign) or not isinstance(stmt.targets[0], ast.Name):
        return False
    if isinstance(value, ast.Call):
        named = isinstance(value.func, ast.Name) and value.func.id in ("list", "dict", "defaultdict")
        return named and not value.args and not value.keywords
    if isinstance(value, (ast.List, ast.Tuple)):
        return not value.elts
    if isinstance(value, ast.Dict):
        return not value.keys
    return isinstance(value, ast.Constant) and isinstance(value.value, (int, float))


def _taint(plan: Plan, before: Sequence[ast.stmt], source: Source, tainted: set[str]) -> tuple[set[str], set[ast.stmt]]:
    """Names that carry a gradient at the end of `before`, and the statements that made them."""
    stmts: set[ast.stmt] = set()
    for stmt in before:
        found = uses(stmt)
        if (_graph(plan, source, stmt) or found.reads & (tainted - {*source.models})) and not _detached(stmt):
            tainted |= found.writes | found.changes
            stmts.add(stmt)
        else:
            tainted -= certain(stmt)
    return tainted, stmts


def _graph(plan: Plan, source: Source, stmt: ast.stmt) -> bool:
    """Whether a statement reads a module or tensor of the source otherwise than by an attribute that is no tensor
    (`net.output_shape`)."""
    if any(source.read_behind(n) for n in ast.walk(stmt)):
        return True
    unit = plan.unit
    for place in source.places(stmt):
        calls = [n for n in unit.tree.ancestors(place) if isinstance(n, ast.Call) and unit.tree.statement(n) is stmt]
        if any((unit.resolve(n.func) or "").startswith("numpy.") for n in calls):
            continue  # what NumPy computes has no graph
        up = plan.unit.tree.parents.get(place)
        kind = plan.unit.kind(up) if isinstance(up, ast.Attribute) else None
        called = isinstance(plan.unit.tree.parents.get(up), ast.Call) if up is not None else False
        if kind is None or called or kind.tag not in ("int", "float", "bool", "str", "tuple", "list", "shape", "dtype"):
            return True
        if kind.tag in ("tuple", "list") and not kind.items:
            return True
        if any(k.tag not in ("int", "float", "bool", "str") for k in kind.items):
            return True
    return False


def _detached(stmt: ast.stmt) -> bool:
    """An assignment whose value is cut off from the graph at its outermost call."""
    value = stmt.value if isinstance(stmt, (ast.Assign, ast.AnnAssign)) else None
    return value is not None and cuts_all(value)


def depends(plan: Plan, function: ast.AST, loss: ast.expr, source: Source) -> bool:
    """Whether the loss may depend on the source by what the function does, in whatever order."""
    tree = plan.unit.tree
    simple = [
        s
        for s in ast.walk(function)
        if isinstance(s, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.For, ast.With))
        and (tree.function(s) or tree.root) is function
        and not under_no_grad(plan.unit, s)
    ]
    names: set[str] = set()
    parts: list[ast.AST] = [loss]
    seen: set[ast.AST] = set()
    while parts:
        part = parts.pop()
        passing = joined(part)
        if any(source.read_by(n) for n in passing if isinstance(n, (ast.Name, ast.Attribute))):
            return True
        if any(source.read_behind(n) for n in passing):
            return True
        names |= {n.id for n in passing if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        for stmt in simple:
            found = uses(stmt.target) if isinstance(stmt, ast.For) else uses(stmt)
            if stmt not in seen and not isinstance(stmt, ast.With) and (found.writes | found.changes) & names:
                seen.add(stmt)
                parts.append(stmt.iter if isinstance(stmt, ast.For) else stmt)
    return False


def _splits(plan: Plan, place: Place, before: Sequence[ast.stmt], loss: ast.expr, source: Source) -> list[Split]:
    """Values that earlier statements made from the source and the loss needs. Raises NotPlain when one of them is not
    made by one call of one module in the same block."""
    tree = plan.unit.tree
    earlier = [s for s in _above(plan, place) if s not in place.zero]
    limit = tree.start(place.block[place.start] if place.start < len(place.block) else place.backward)
    chain = list(tree.ancestors(place.backward))
    tainted: set[str] = set()
    function = place.function
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
        if (
            (_graph(plan, source, stmt) or found.reads & (tainted - {*source.models}))
            and not _detached(stmt)
            and not under_no_grad(plan.unit, stmt)
        ):
            tainted |= {n for n in found.writes if _may_carry(plan, stmt)}
        elif tree.parents[stmt] in chain:
            tainted -= certain(stmt)
    own = {*source.models, *source.arrays}
    lost = tainted & _needed(before, loss) - own
    return [_split(earlier, name, source, tainted) for name in sorted(lost)]


def _above(plan: Plan, place: Place) -> list[ast.stmt]:
    """The statements that run once before the backward statement: of its block, and of those around it in its loop."""
    tree = plan.unit.tree
    found = list(place.block[: place.start])
    at: ast.AST = place.backward
    for up in tree.ancestors(place.backward):
        if isinstance(up, (ast.For, ast.While, ast.AsyncFor, ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)):
            break
        at = up
        if isinstance(at, ast.stmt):
            block = block_of(at, tree.parents)
            found += block[: block.index(at)]
    return found


def _needed(before: Sequence[ast.stmt], loss: ast.expr) -> set[str]:
    """Names that the slice of the loss reads from before."""
    chosen, _ = _slice(before, loss)
    kept: list[ast.stmt] = [*(s for s in before if s in chosen), ast.Expr(loss)]
    return entry_reads(_Joined().visit(copy.deepcopy(s)) for s in kept)


class _Joined(ast.NodeTransformer):
    """Code without the values that are cut off from the graph."""

    def visit(self, node: ast.AST) -> Any:
        return ast.Constant(None) if isinstance(node, ast.expr) and cuts(node) else self.generic_visit(node)


def _split(earlier: Sequence[ast.stmt], name: str, source: Source, tainted: set[str]) -> Split:
    makers = [s for s in earlier if name in uses(s).writes | uses(s).changes]
    stmt = makers[0] if len(makers) == 1 else None
    if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 and isinstance(stmt.targets[0], ast.Name):
        models = {ast.unparse(p) for p in source.places(stmt.value)}
        if len(models) == 1 and not (uses(stmt.value).reads & tainted) and not source.arrays:
            return Split(name, stmt, next(iter(models)))
    raise NotPlain(f"`{name}` was computed from the model outside this block")


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


def _aux(
    plan: Plan, stmts: Sequence[ast.stmt], last: ast.stmt, function: ast.AST, loss: ast.expr, also: set[str]
) -> tuple[str, ...]:
    body = function.body if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)) else []
    live = Liveness(body).after.get(last, frozenset())
    written = uses(stmts).writes
    for stmt in (s for s in stmts if isinstance(s, (ast.For, ast.AsyncFor))):
        written |= uses(stmt.target).writes
    wanted = (written & (live | also)) - ({loss.id} if isinstance(loss, ast.Name) else set())
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
