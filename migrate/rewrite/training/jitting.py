"""The step of a loop as a function of its own under nnx.jit, where tracing it is proven to be safe."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ..plan import Plan
from .caching import cached_loop
from .clips import Clip
from .flow import block_of, certain, uses
from .jitnames import HELD, LOOPS, Segment, class_of, counts, live_after
from .jitwriting import Names, Step, write_steps
from .loops import fresh, gradient_names
from .roles import function_of, is_model, is_optimizer
from .steps import Pass, Routine, Update
from .tracing import Tracer


class NotTraced(Exception):
    """A step stays eager: the text says why, with the line."""


class _Needs(NotTraced):
    """A Python value is read that is made before the step."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.name = name


@dataclass(frozen=True)
class _Part:
    """What one block holds of the training code of a function: passes, updates and clips that are traced together.
    `carried` are the variables of gradients that other blocks or turns of the loop read, too."""

    routines: tuple[Routine, ...]
    block: Sequence[ast.stmt]
    passes: tuple[Pass, ...]
    updates: tuple[Update, ...]
    clips: tuple[Clip, ...]
    carried: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """What the function may be called, the best first."""
        if not self.updates:
            return ("grad_step", "gradient_step")
        return ("train_step", "training_step", "jitted_step") if self.passes else ("update_step", "jitted_update")

    @property
    def kept(self) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for one in self.passes:
            found += [*one.stmts, *one.region.stmts, *(s.stmt for s in one.region.splits)]
        return [*found, *(u.stmt for u in self.updates), *(c.stmt for c in self.clips)]


def plan_jits(plan: Plan, routines: Sequence[Routine], explicit: Names) -> dict[ast.stmt, str]:
    """Extract the steps that can be traced. Returns for each update its function's name, or "" and why not behind a
    colon."""
    said: dict[ast.stmt, list[str]] = {}
    used: dict[str, set[ast.AST]] = {}
    steps: list[Step] = []
    for function in dict.fromkeys(r.function for r in routines):
        for part in _parts(plan, [r for r in routines if r.function is function]):
            try:
                segment = _segment(plan, part)
                name = _name(plan, segment, part, used)
                steps.append(Step(segment, name, part.updates))
                found = name
            except NotTraced as problem:
                found = f":{problem}"
            for update in (u for r in part.routines for u in r.updates):
                if update in part.updates or not part.updates:
                    said.setdefault(update.stmt, []).append(found)
    write_steps(plan, steps, explicit)
    return {stmt: _said(names) for stmt, names in said.items()}


def _said(names: Sequence[str]) -> str:
    """One of the reasons, or the functions."""
    return next((n for n in names if n.startswith(":")), " and ".join(sorted(names)))


def _parts(plan: Plan, routines: Sequence[Routine]) -> Iterator[_Part]:
    """The blocks of a function that become functions: those with updates, and where gradients are carried those with
    passes."""
    carrying = [r for r in routines if _carries(r)]
    plain = [r for r in routines if r not in carrying]
    for block in {id(u.block): u.block for r in plain for u in r.updates}.values():
        inside = tuple(r for r in plain if any(u.block is block for u in r.updates))
        yield _Part(
            inside, block, tuple(p for r in inside for p in r.passes), tuple(u for r in inside for u in r.updates),
            tuple(c for r in inside for c in r.clips),
        )  # fmt: skip
    parents = plan.unit.tree.parents
    for routine in carrying:
        grads = tuple(gradient_names(plan, routine).values())
        homes = [block_of(s, parents) for s in (*(p.stmt for p in routine.passes), *(u.stmt for u in routine.updates))]
        for block in {id(b): b for b in homes}.values():
            yield _Part(
                (routine,), block, tuple(p for p in routine.passes if p.stmt in block),
                tuple(u for u in routine.updates if u.stmt in block),
                tuple(c for c in routine.clips if c.stmt in block), grads,
            )  # fmt: skip


def _carries(routine: Routine) -> bool:
    """Whether gradients are added up over turns of a loop, or used in another block than they come from."""
    return bool(routine.fresh) or any(routine.zeros.values()) or any(u.guarded for u in routine.updates)


def _name(plan: Plan, segment: Segment, part: _Part, used: dict[str, set[ast.AST]]) -> str:
    """A name that neither the file nor another function has that is written in the same place; `used` are the places
    of each."""
    root = plan.unit.tree.root
    place = segment.function if segment.nested else root
    others = {f.name for f in plan.unit.functions.values()}

    def free(name: str) -> bool:
        places = used.get(name, set())
        taken = bool(places) if place is root else bool(places & {place, root})
        return not taken and name not in others and fresh(plan, segment.top, (name,)) == name

    found = next(n for n in (*part.names, *(f"{part.names[0]}_{i}" for i in range(2, 99))) if free(n))
    used.setdefault(found, set()).add(place)
    return found


def _segment(plan: Plan, part: _Part) -> Segment:
    """The statements of a step. Raises NotTraced."""
    tree, block = plan.unit.tree, part.block
    function = part.routines[0].function
    kept = part.kept
    if any(p.source.arrays for p in part.passes) or any(u.source.arrays for u in part.updates):
        raise NotTraced("it trains single tensors")
    if any(r.reads for r in part.routines):
        raise NotTraced("parameters' gradients are read by name")
    for stmt in (s for p in part.passes for s in p.region.late):
        raise NotTraced(f"line {tree.position(tree.start(stmt))[0]}: it acts between forward and backward")
    if any(block_of(s, tree.parents) is not block for p in part.passes for s in p.stmts):
        raise NotTraced("the step is spread over several blocks")
    if any(s not in block for s in kept):
        raise NotTraced("the step is spread over several blocks")
    places = [block.index(s) for s in kept]
    first, last = min(places), max(places)
    loops = [u for u in tree.ancestors(block[first]) if isinstance(u, LOOPS) and _inside(plan, u, function)]
    updates = [u for r in part.routines for u in r.updates]
    nested = isinstance(function, ast.Module) or all(
        u.made is not None and function_of(plan.unit, u.made.call) is function for u in updates
    )
    if nested and not loops:
        raise NotTraced("it is not in a loop")
    tops = [u for u in [block[first], *tree.ancestors(block[first])] if isinstance(u, ast.stmt)]
    top = loops[-1] if nested else tops[-1]
    gone = {z for r in part.routines for z in r.zeros}
    if part.carried and any(z in block[first : last + 1] for z in gone):
        raise NotTraced("gradients are set to zero within the step")
    dropped = part.carried if _cleared(part, block[last + 1 :]) else ()
    models = tuple(dict.fromkeys(m for u in part.updates for m in u.source.models))
    late = _late(plan, block[first : last + 1], {*kept, *gone})
    while True:
        segment = Segment(function, block, first, last, late, top, nested, part.carried, dropped, models)
        segment = replace(segment, numbers=tuple(_numbers(plan, segment)))
        try:
            _check(plan, segment, {*gone, *(u.stmt for u in part.updates)}, part)
            bound = tuple(_bound(plan, segment, part.updates))
            return replace(segment, bound=bound, cached=cached_loop(plan, loops, bound))
        except _Needs as needed:  # a size that is taken just before: `b = real.size(0)`
            made = [i for i in range(first) if needed.name in uses(block[i]).writes]
            if not made:
                raise
            first = made[-1]


def _cleared(part: _Part, following: Sequence[ast.stmt]) -> bool:
    """Whether the gradients are set to zero before anything can read them."""
    zeros = {z for r in part.routines for z, units in r.zeros.items() if units}
    for stmt in following:
        if stmt in zeros:
            return True
        names = {n.attr for n in ast.walk(stmt) if isinstance(n, ast.Attribute)}
        if names & {"grad", "parameters", "named_parameters", "param_groups"}:
            return False
    return False


def _bound(plan: Plan, segment: Segment, updates: Sequence[Update]) -> Iterator[str]:
    """The texts of the models, optimizers and other modules that the step uses, in that order."""
    nodes = [n for s in segment.stmts for n in ast.walk(s) if isinstance(n, (ast.Name, ast.Attribute))]
    models = [ast.unparse(n) for n in nodes if is_model(plan.unit, n)]
    yield from dict.fromkeys([*models, *segment.models])
    yield from dict.fromkeys(ast.unparse(u.optimizer) for u in updates if not u.source.arrays)
    yield from dict.fromkeys(ast.unparse(n) for n in nodes if _is_module(plan, n))


def _is_module(plan: Plan, node: ast.AST) -> bool:
    kind = plan.unit.kind(node)
    return kind.tag == "Module" and kind.name not in ("plain", "super")


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


def _check(plan: Plan, segment: Segment, known: set[ast.stmt], part: _Part) -> None:
    """Raise NotTraced with the line that prevents tracing."""
    tree = plan.unit.tree
    stmts = [s for s in segment.stmts if s not in known]
    passes = {s for p in part.passes for s in p.stmts}
    clips = {c.stmt: c for c in part.clips}
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
            code += [ast.Expr(x) for p in part.passes if stmt in p.stmts for x in p.losses]
        elif (receiver := _item(stmt)) is not None and uses(stmt).writes <= set(segment.numbers):
            code.append(ast.Expr(receiver))
        else:
            code.append(stmt)
    arrays = {n for s in code for n in uses(s).reads if class_of(plan, segment, n) == "array"}
    if problem := Tracer(plan, segment.top).statements(code, arrays):
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
            if not isinstance(up, ast.Attribute) or not (_held_array(plan, up) or counts(unit, up)):
                what = ast.unparse(up) if isinstance(up, ast.Attribute) else "self"
                raise NotTraced(f"{where}`{what}` is no array or module")
        elif class_of(plan, segment, node.id, node) == "host":
            raise _Needs(node.id, f"{where}`{node.id}` is a Python value that may change")


def _held_array(plan: Plan, node: ast.Attribute) -> bool:
    kind = plan.unit.kind(node)
    return kind.is_tensor or _is_module(plan, node) or is_model(plan.unit, node) or is_optimizer(plan.unit, node)
