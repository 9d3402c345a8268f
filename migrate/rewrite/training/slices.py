"""Which statements become the loss function: the backward slice of the loss that depends on the model."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...read.facts import FunctionFacts
from ..plan import Plan
from .flow import GROWING, Liveness, certain, entry_reads, root_name, uses
from .roles import NotPlain, has_parameters

_HOST = frozenset(("numpy", "tolist"))  # methods that fail on a value under differentiation
_HOST_CALLS = frozenset(("builtins.float", "builtins.int"))


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


@dataclass(frozen=True)
class Source:
    """What the gradient is taken of: the model's text, or the names of leaf tensors."""

    model: str
    arrays: tuple[str, ...]

    def read_by(self, node: ast.AST) -> bool:
        return any(True for _ in self.places(node))

    def places(self, node: ast.AST) -> Iterable[ast.AST]:
        for sub in ast.walk(node):
            if (
                isinstance(sub, ast.Name) and isinstance(sub.ctx, ast.Load) and sub.id in (self.model, *self.arrays)
            ) or (isinstance(sub, ast.Attribute) and "." in self.model and ast.unparse(sub) == self.model):
                yield sub


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
    _check(plan, stmts, backward, loss, function, source, tainted)
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
    """Tensors that statements outside the block made from the model: their gradient would be lost, so they are refused."""
    tree = plan.unit.tree
    limit = tree.start(block[0])
    chain = [u for u in tree.ancestors(backward)]
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


def _check(
    plan: Plan,
    stmts: Sequence[ast.stmt],
    backward: ast.stmt,
    loss: ast.expr,
    function: ast.AST,
    source: Source,
    tainted: set[str],
) -> None:
    unit = plan.unit
    local: set[str] = set()
    shared = {n for s in ast.walk(function) if isinstance(s, (ast.Global, ast.Nonlocal)) for n in s.names}
    for stmt in [*stmts, backward]:
        if not plan.alone(stmt) or not _ends_its_line(plan, stmt):
            raise NotPlain("several statements on one line")
    for stmt in stmts:
        problem = _effect(plan, stmt, local)
        if problem:
            raise NotPlain(f"`{ast.unparse(stmt).splitlines()[0][:70]}` stands between forward and backward {problem}")
        if uses(stmt).writes & shared:
            raise NotPlain("the forward pass assigns a global name")
        local |= uses(stmt).writes
    for node in (n for s in [*stmts, loss] for n in ast.walk(s)):
        if isinstance(node, (ast.Await, ast.Yield, ast.YieldFrom)):
            raise NotPlain("await or yield in the forward pass")
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
            kind = unit.kind(node)
            if (
                kind.tag == "Module"
                and kind.name not in ("plain", "super")
                and ast.unparse(node) not in (source.model, "self")
            ):
                if not ast.unparse(node).startswith(f"{source.model}.") and has_parameters(unit, node):
                    raise NotPlain(
                        f"several modules take part: {source.model or source.arrays[0]}, {ast.unparse(node)}"
                    )
        if isinstance(node, ast.Call):
            _call(plan, node, source, tainted | local)


def _ends_its_line(plan: Plan, stmt: ast.stmt) -> bool:
    """Whether nothing but a comment follows on the statement's last line."""
    tree = plan.unit.tree
    rest = tree.text[tree.end(stmt) :].partition("\n")[0].strip()
    return not rest or rest.startswith("#")


def _call(plan: Plan, node: ast.Call, source: Source, carrying: set[str]) -> None:
    """Refuse calls that read the model behind the loss function's back, or that need concrete values."""
    unit = plan.unit
    func = node.func
    dotted = unit.resolve(func) or ""
    if dotted in _HOST_CALLS or dotted.startswith("math."):
        if uses(list(node.args)).reads & carrying and not _concrete(node):
            raise NotPlain(f"`{ast.unparse(node)[:60]}` needs a number inside the differentiated part")
    if isinstance(func, ast.Attribute) and func.attr in _HOST and uses(func.value).reads & carrying:
        raise NotPlain(f"`{ast.unparse(node)[:60]}` leaves the differentiated part")
    target = unit.kind(func).facts or unit.local(func)
    if isinstance(target, FunctionFacts) and target.unit is unit and target.owner is None and source.model:
        root = source.model.partition(".")[0]
        free = uses(target.node.body).reads - {a.arg for a in ast.walk(target.node.args) if isinstance(a, ast.arg)}
        if root in free and root not in uses(target.node.body).writes:
            raise NotPlain(f"`{ast.unparse(func)}` reads {source.model} by itself: pass it as an argument")
    if source.model.startswith("self.") and isinstance(func, ast.Attribute) and root_name(func) == "self":
        if ast.unparse(func) != source.model and not ast.unparse(func).startswith(f"{source.model}."):
            cls = unit.tree.class_of(node)
            facts = unit.classes.get(cls) if cls is not None else None
            if facts is None or facts.method(func.attr) is not None:
                raise NotPlain(f"`{ast.unparse(func)}` may read {source.model} by itself")


def _concrete(node: ast.Call) -> bool:
    """`float(x.size(0))`, `int(len(x))`: of a shape, or of an `.item()`."""
    arg = node.args[0] if node.args else node
    if isinstance(arg, ast.Call) and isinstance(arg.func, ast.Attribute):
        return arg.func.attr in ("item", "size", "numel", "dim")
    return any(isinstance(n, ast.Attribute) and n.attr in ("shape", "ndim") for n in ast.walk(arg)) or (
        isinstance(arg, ast.Call) and isinstance(arg.func, ast.Name) and arg.func.id == "len"
    )


def _effect(plan: Plan, stmt: ast.stmt, local: set[str]) -> str:
    """Why a statement cannot be moved into a function; "" when it can."""
    if isinstance(stmt, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        if uses(stmt).changes - local:
            return "and changes an object in place"
        targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
        plain = all(
            isinstance(n, (ast.Name, ast.Tuple, ast.List, ast.Starred, ast.expr_context))
            for t in targets
            for n in ast.walk(t)
        )
        return "" if plain or not uses(stmt).changes - local else "and writes to an object"
    if isinstance(stmt, (ast.Pass, ast.Assert)):
        return ""
    if isinstance(stmt, ast.Expr):
        call = stmt.value
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in GROWING:
            if isinstance(call.func.value, ast.Name) and call.func.value.id in local:
                return ""
        return "" if isinstance(call, ast.Constant) else "and has effects"
    if isinstance(stmt, ast.If):
        return _effects(plan, [*stmt.body, *stmt.orelse], local)
    if isinstance(stmt, ast.For):
        return _effects(plan, [*stmt.body, *stmt.orelse], local | uses(stmt.target).writes)
    if isinstance(stmt, ast.With):
        for item in stmt.items:
            func = item.context_expr.func if isinstance(item.context_expr, ast.Call) else item.context_expr
            dotted = plan.unit.resolve(func) or ast.unparse(func)
            if dotted not in ("torch.no_grad", "torch.enable_grad", "torch.inference_mode"):
                return f"under {dotted}"
        return _effects(plan, stmt.body, local)
    return "and is no plain statement"


def _effects(plan: Plan, body: Sequence[ast.stmt], local: set[str]) -> str:
    seen = set(local)
    for stmt in body:
        if problem := _effect(plan, stmt, seen):
            return problem
        seen |= uses(stmt).writes
    return ""


def _aux(plan: Plan, stmts: Sequence[ast.stmt], last: ast.stmt, function: ast.AST, loss: ast.expr) -> tuple[str, ...]:
    body = function.body if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)) else []
    at_end = set()
    if isinstance(function, ast.Module):
        at_end = {n for f in plan.unit.functions for n in uses(f).reads}
    live = Liveness(body, at_end).after.get(last, set())
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
    for node in tree.parents:
        if (
            isinstance(node, ast.Name)
            and node.id in names
            and isinstance(node.ctx, ast.Load)
            and tree.start(node) >= start
        ):
            first[node.id] = min(first.get(node.id, 1 << 60), tree.start(node))
    return tuple(sorted(names, key=lambda n: (first.get(n, 1 << 60), n)))
