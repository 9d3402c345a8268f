"""The step of a loop as a function of its own under nnx.jit, where tracing it is proven to be safe."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..plan import Plan
from .caching import cached_loop
from .flow import block_of, certain, uses
from .jitnames import HELD, LOOPS, Segment, class_of, live_after
from .jitwriting import Names, write_step
from .loops import fresh
from .roles import function_of, is_model, is_optimizer
from .steps import Routine, Update
from .tracing import Tracer


class NotTraced(Exception):
    """A step stays eager: the text says why, with the line."""


class _Needs(NotTraced):
    """A Python value is read that is made before the step."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.name = name


def plan_jits(plan: Plan, routines: Sequence[Routine], explicit: Names) -> dict[ast.stmt, str]:
    """Extract the steps that can be traced. Returns for each update its function's name, or "" and why not behind a
    colon."""
    said: dict[ast.stmt, str] = {}
    used: set[str] = set()
    for function in dict.fromkeys(r.function for r in routines):
        mine = [r for r in routines if r.function is function]
        updates = [u for r in mine for u in r.updates]
        for block in {id(u.block): u.block for u in updates}.values():
            inside = [r for r in mine if any(u.block is block for u in r.updates)]
            stmts = [u.stmt for u in updates if u.block is block]
            try:
                segment = _segment(plan, inside, block, explicit)
                name = _name(plan, segment, used)
                write_step(plan, segment, name, [u for u in updates if u.block is block], explicit)
                said |= dict.fromkeys(stmts, name)
            except NotTraced as problem:
                said |= dict.fromkeys(stmts, f":{problem}")
    return said


def _name(plan: Plan, segment: Segment, used: set[str]) -> str:
    taken = used | {f.name for f in plan.unit.functions.values()}
    found = next(n for n in ("train_step", "update_step", "jitted_step", *(f"train_step_{i}" for i in range(2, 99)))
                 if n not in taken and fresh(plan, segment.top, (n,)) == n)  # fmt: skip
    used.add(found)
    return found


def _segment(plan: Plan, routines: Sequence[Routine], block: Sequence[ast.stmt], explicit: Names) -> Segment:
    """The statements of a step. Raises NotTraced."""
    tree = plan.unit.tree
    function = routines[0].function
    kept: list[ast.stmt] = []
    for routine in routines:
        if routine.fresh or any(routine.zeros.values()) or any(u.guarded for u in routine.updates):
            raise NotTraced("gradients are carried from one turn of the loop to the next")
        if any(u.block is not block for u in routine.updates):
            raise NotTraced("the step is spread over several blocks")
        if routine.reads:
            raise NotTraced("parameters' gradients are read by name")
        if any(p.source.arrays for p in routine.passes):
            raise NotTraced("it trains single tensors")
        for one in routine.passes:
            if any(block_of(s, tree.parents) is not block for s in one.stmts):
                raise NotTraced("the step is spread over several blocks")
            kept += [*one.stmts, *one.region.stmts, *(s.stmt for s in one.region.splits)]
        kept += [*(u.stmt for u in routine.updates), *(c.stmt for c in routine.clips)]
    if any(s not in block for s in kept):
        raise NotTraced("the step is spread over several blocks")
    places = [block.index(s) for s in kept]
    first, last = min(places), max(places)
    loops = [u for u in tree.ancestors(block[first]) if isinstance(u, LOOPS) and _inside(plan, u, function)]
    updates = [u for r in routines for u in r.updates]
    nested = isinstance(function, ast.Module) or all(
        u.made is not None and function_of(plan.unit, u.made.call) is function for u in updates
    )
    if nested and not loops:
        raise NotTraced("it is not in a loop")
    tops = [u for u in [block[first], *tree.ancestors(block[first])] if isinstance(u, ast.stmt)]
    top = loops[-1] if nested else tops[-1]
    gone = {z for r in routines for z in r.zeros}
    late = _late(plan, block[first : last + 1], {*kept, *gone})
    while True:
        segment = Segment(function, block, first, last, late, top, nested)
        segment = replace(segment, numbers=tuple(_numbers(plan, segment)))
        try:
            _check(plan, segment, {*gone, *(u.stmt for u in updates)}, routines)
            bound = tuple(_bound(plan, segment, updates))
            return replace(segment, bound=bound, cached=cached_loop(plan, loops, bound))
        except _Needs as needed:  # a size that is taken just before: `b = real.size(0)`
            made = [i for i in range(first) if needed.name in uses(block[i]).writes]
            if not made:
                raise
            first = made[-1]


def _bound(plan: Plan, segment: Segment, updates: Sequence[Update]) -> Iterator[str]:
    """The texts of the models, optimizers and other modules that the step uses, in that order."""
    nodes = [n for s in segment.stmts for n in ast.walk(s) if isinstance(n, (ast.Name, ast.Attribute))]
    yield from dict.fromkeys(ast.unparse(n) for n in nodes if is_model(plan.unit, n))
    yield from dict.fromkeys(ast.unparse(u.optimizer) for u in updates if not u.source.arrays)
    yield from dict.fromkeys(ast.unparse(n) for n in nodes if plan.unit.kind(n).tag == "Module")


def _inside(plan: Plan, node: ast.AST, function: ast.AST) -> bool:
    return isinstance(function, ast.Module) or function in plan.unit.tree.ancestors(node)


def _late(plan: Plan, stmts: Sequence[ast.stmt], kept: set[ast.stmt]) -> tuple[ast.stmt, ...]:
    """Statements after the last forward pass that can follow the step: nothing later in it needs or changes what they
    read or write, as `total += loss.item()`."""
    late: list[ast.stmt] = []
    later_reads: set[str] = set()
    later_writes: set[str] = set()
    for stmt in reversed(stmts):
        found = uses(stmt)
        touched = {n.id for n in ast.walk(stmt) if isinstance(n, ast.Name)}
        models = any(is_model(plan.unit, n) for n in ast.walk(stmt) if isinstance(n, (ast.Name, ast.Attribute)))
        free = not ((found.writes | found.changes) & (later_reads | later_writes)) and not (touched & later_writes)
        if stmt not in kept and free and not models and _acts(plan, stmt):
            late.insert(0, stmt)
            continue
        later_reads |= found.reads
        later_writes |= found.writes | found.changes
    return tuple(late)


def _numbers(plan: Plan, segment: Segment) -> Iterator[str]:
    """Names that are assigned `….item()` once in the step, and not read in it."""
    assigned = [(s, _item(s)) for s in segment.stmts]
    for stmt, receiver in assigned:
        if receiver is None:
            continue
        assert isinstance(stmt, ast.Assign) and isinstance(stmt.targets[0], ast.Name)
        name = stmt.targets[0].id
        others = [s for s in segment.stmts if s is not stmt]
        if not any(name in uses(s).reads | uses(s).writes for s in others):
            yield name


def _item(stmt: ast.stmt) -> ast.expr | None:
    """`x.mean()` of the statement `name = x.mean().item()`."""
    if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1 or not isinstance(stmt.targets[0], ast.Name):
        return None
    call = stmt.value
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "item":
        return call.func.value if not call.args else None
    return None


_HARMLESS = frozenset(
    """
    append extend item detach cpu numpy tolist format join write info debug warning log add_scalar add_scalars print
    set_description set_postfix size dim numel mean sum max min argmax eq float int long view reshape get time
    """.split()  # noqa: SIM905
)
_LEAVING = (ast.Break, ast.Continue, ast.Return, ast.Raise, ast.Assert, ast.Try, ast.With, ast.Global, ast.Nonlocal)


def _acts(plan: Plan, stmt: ast.stmt) -> bool:
    """Whether a statement should stay outside and may follow the step: it cannot be traced, always ends, and calls
    nothing that could look at what is trained."""
    unit = plan.unit
    for node in ast.walk(stmt):
        if isinstance(node, _LEAVING):
            return False
        if isinstance(node, (ast.Name, ast.Attribute)):
            if is_optimizer(unit, node) or unit.kind(node).tag in ("Scheduler", "Function", "Class"):
                return False
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if not (unit.resolve(node.func) or "").startswith("builtins."):
                return False
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr not in _HARMLESS:
            return False
    return bool(Tracer(plan).statements([stmt], ())) or bool(uses(stmt).changes)


def _check(plan: Plan, segment: Segment, known: set[ast.stmt], routines: Sequence[Routine]) -> None:
    """Raise NotTraced with the line that prevents tracing."""
    tree = plan.unit.tree
    stmts = [s for s in segment.stmts if s not in known]
    passes = {s for r in routines for p in r.passes for s in p.stmts}
    clips = {c.stmt: c for r in routines for c in r.clips}
    for stmt in segment.stmts:
        if any(isinstance(n, (ast.Break, ast.Continue, ast.Return)) for n in ast.walk(stmt)):
            raise NotTraced(f"line {tree.position(tree.start(stmt))[0]}: the step may be left half way")
        if not plan.alone(stmt) or (not plan.alone_to_end(stmt) and not _comment(plan, stmt)):
            raise NotTraced("several statements on one line")
    code: list[ast.stmt] = []
    for stmt in stmts:
        if stmt in clips:
            code.append(ast.Expr(clips[stmt].limit))
        elif stmt in passes:
            code += [ast.Expr(x) for r in routines for p in r.passes if stmt in p.stmts for x in p.losses]
        elif (receiver := _item(stmt)) is not None and uses(stmt).writes <= set(segment.numbers):
            code.append(ast.Expr(receiver))
        else:
            code.append(stmt)
    arrays = {n for s in code for n in uses(s).reads if class_of(plan, segment, n) == "array"}
    if problem := Tracer(plan).statements(code, arrays):
        raise NotTraced(problem)
    made: set[str] = set()
    for stmt in code:
        _names(plan, segment, stmt, made)
        made |= certain(stmt)
    written = {n for s in stmts for n in uses(s).writes}
    after = live_after(plan, segment) & written
    for name in sorted(after):
        kinds = [plan.unit.kind(n) for s in stmts for n in ast.walk(s)
                 if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store)]  # fmt: skip
        if name not in segment.numbers and any(k.tag in HELD and k.tag not in ("tuple", "list") for k in kinds):
            raise NotTraced(f"`{name}` is a Python value that is read after the step")


def _comment(plan: Plan, stmt: ast.stmt) -> bool:
    tree = plan.unit.tree
    return tree.text[tree.end(stmt) :].partition("\n")[0].strip().startswith("#")


def _names(plan: Plan, segment: Segment, stmt: ast.stmt, made: set[str]) -> None:
    """Refuse names that a function of its own cannot have: Python values that change, what `self` holds. `made` are
    those that the function assigns itself."""
    unit = plan.unit
    line = unit.tree.position(unit.tree.start(stmt))[0] if hasattr(stmt, "lineno") else 0
    for node in ast.walk(stmt):
        if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load) or node.id in made:
            continue
        where = f"line {line or unit.tree.position(unit.tree.start(node))[0]}: "
        if node.id == "self":
            up = unit.tree.parents[node]
            if not isinstance(up, ast.Attribute) or not _held_array(plan, up):
                what = ast.unparse(up) if isinstance(up, ast.Attribute) else "self"
                raise NotTraced(f"{where}`{what}` is no array or module")
        elif class_of(plan, segment, node.id, node) == "host":
            raise _Needs(node.id, f"{where}`{node.id}` is a Python value that may change")


def _held_array(plan: Plan, node: ast.Attribute) -> bool:
    kind = plan.unit.kind(node)
    return kind.is_tensor or kind.tag == "Module" or is_model(plan.unit, node) or is_optimizer(plan.unit, node)
