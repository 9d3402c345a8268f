"""Learning-rate schedules: an optax schedule as the learning rate where it steps with the optimizer, else set by hand.

`optax.inject_hyperparams` keeps the rate in the optimizer's state, so that a schedule that steps once an epoch can
set it.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...read.unit import Unit
from ...rulebook.signature import Mismatch, bind
from ..match import Match, Refusal, choose
from ..plan import Plan
from .cycles import Cycled, find_cycled
from .flow import block_of, uses
from .optimizers import OptimizerCall, Optimizers, bound
from .roles import NotPlain, method_call
from .steps import Update

HEAD = "torch.optim.lr_scheduler."
ON_HOST = ("LambdaLR", "MultiplicativeLR", "ReduceLROnPlateau")  # their functions are the user's, or they need a metric
FACTORS = ("StepLR", "MultiStepLR", "ExponentialLR", "ConstantLR", "LinearLR", "PolynomialLR")
COMPOSED = ("SequentialLR", "ChainedScheduler")


@dataclass(frozen=True)
class Schedule:
    """One scheduler: its construction, its optimizer, the statements that step it and the reads of its rate.

    `per_step` says that it steps once with each optimizer step, so that optax can count for it. `shared`: it is used
    beyond its scope, as an object that sets the rate of an nnx.Optimizer. `part`: it is one of another schedule's.
    `cycled` is the other setting that it moves ("momentum", "b1"), and the text of that one's schedule.
    """

    call: ast.Call
    stmt: ast.Assign
    name: str
    dotted: str
    made: OptimizerCall
    found: Match
    steps: tuple[ast.Expr, ...] = ()
    reads: tuple[ast.expr, ...] = ()
    per_step: bool = False
    shared: bool = False
    part: bool = False
    cycled: Cycled | None = None

    @property
    def kind(self) -> str:
        return self.dotted.removeprefix(HEAD)

    @property
    def by_metric(self) -> bool:
        return self.kind == "ReduceLROnPlateau"


def find_schedules(plan: Plan, optimizers: Optimizers, steps: Sequence[Update]) -> list[Schedule]:
    """All schedulers that are understood; the others are reported."""
    unit = plan.unit
    found: list[Schedule] = []
    calls = [c for c in unit.tree.all(ast.Call) if _is_scheduler(unit, c)]
    inner = {p for c in calls for p in parts_of(unit, c)}
    for node in calls:
        dotted = unit.resolve(node.func) or ""
        if isinstance(unit.tree.parents[node], (ast.List, ast.Tuple)) and node in inner:
            continue
        try:
            found.append(_read(plan, optimizers, steps, node, dotted, part=node in inner))
        except NotPlain as problem:
            _refuse(plan, node, dotted, str(problem))
    drivers = [id(s.made) for s in found if not s.part]
    clashing = {d for d in drivers if drivers.count(d) > 1}
    for schedule in [s for s in found if id(s.made) in clashing]:
        _refuse(plan, schedule.call, schedule.dotted, "several schedulers drive one optimizer")
    return [s for s in found if id(s.made) not in clashing]


def _is_scheduler(unit: Unit, node: ast.Call) -> bool:
    dotted = unit.resolve(node.func) or ""
    row = unit.book.find(dotted) if dotted.startswith(HEAD) else None
    return row is not None and row.get("kind") == "Scheduler" and not row.get("unmapped")


def _refuse(plan: Plan, node: ast.Call, dotted: str, problem: str) -> None:
    plan.taken |= {node, node.func}
    plan.found(
        "JM208", node, dotted, f"{dotted.removeprefix('torch.optim.')}: {problem}",
        advice="Use an optax schedule as the learning rate.",
    )  # fmt: skip


def parts_of(unit: Unit, call: ast.Call) -> list[ast.Call]:
    """The schedulers that a SequentialLR or ChainedScheduler is made of; none when one of them is not found."""
    if unit.resolve(call.func) not in (f"{HEAD}SequentialLR", f"{HEAD}ChainedScheduler"):
        return []
    given = [*call.args, *(k.value for k in call.keywords)]
    listed = next((a for a in given if isinstance(a, (ast.List, ast.Tuple))), None)
    if listed is None or not any(_part(unit, e) for e in listed.elts):
        return []
    found = [_part(unit, e) for e in listed.elts]
    return [c for c in found if c is not None] if None not in found else []


def _part(unit: Unit, node: ast.expr) -> ast.Call | None:
    value = bound(unit, node)
    return value if isinstance(value, ast.Call) and _is_scheduler(unit, value) else None


def _read(
    plan: Plan, optimizers: Optimizers, steps: Sequence[Update], call: ast.Call, dotted: str, *, part: bool
) -> Schedule:
    unit = plan.unit
    row = unit.book.find(dotted)
    assert row is not None and row.signature is not None
    stmt = unit.tree.parents[call]
    target = stmt.targets[0] if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 else None
    if not isinstance(stmt, ast.Assign) or optimizers.key(target) is None or not plan.alone(stmt):  # type: ignore[arg-type]
        raise NotPlain("it is not assigned to a name")
    assert target is not None
    arguments = bind(row.signature, call)
    if isinstance(arguments, Mismatch):
        raise NotPlain("its arguments are not understood")
    driven = arguments.named.pop("optimizer", None) or _driven(unit, call)
    made = optimizers.of(driven) if driven is not None else None
    if driven is None or made is None or made.problem or made.found is None:
        raise NotPlain("its optimizer is not made here, or not converted")
    if any(not same_rate(g.settings.lr, made.lr) for g in made.groups):
        raise NotPlain("the parameter groups have rates of their own")
    found = choose(row, row.signature, arguments, unit)
    if isinstance(found, Refusal):
        raise NotPlain(f"{found.message} {found.advice}".strip())
    schedule = Schedule(call, stmt, ast.unparse(target), dotted, made, found, cycled=find_cycled(call, row, made, unit))
    if schedule.kind in COMPOSED and not parts_of(unit, call):
        raise NotPlain("its parts are not made here")
    if schedule.kind == "ChainedScheduler":
        kinds = [(unit.resolve(p.func) or "").removeprefix(HEAD) for p in parts_of(unit, call)]
        if not set(kinds) <= set(FACTORS):
            raise NotPlain("a part does not multiply the rate by a factor of its own")
    try:
        return _in_scope(plan, schedule, target, driven, steps, part=part)
    except NotPlain:
        if part or made.arrays or not _stable(unit, made):
            raise
        if schedule.cycled is not None:
            raise
        return replace(schedule, shared=True)


def _driven(unit: Unit, call: ast.Call) -> ast.expr | None:
    """The optimizer of a ChainedScheduler: that of its parts."""
    first = parts_of(unit, call)[:1]
    return first[0].args[0] if first and first[0].args else None


def same_rate(one: ast.expr | str, other: ast.expr | str) -> bool:
    """Whether two learning rates are written alike."""
    texts = [x if isinstance(x, str) else ast.unparse(x) for x in (one, other)]
    return texts[0] == texts[1]


def _stable(unit: Unit, made: OptimizerCall) -> bool:
    """Whether the learning rate's text still means the same where the scheduler is made."""
    names = uses(made.lr).reads if isinstance(made.lr, ast.expr) else set()
    scope = unit.scope(made.call)
    return all(len((scope.lookup(n) or scope).bindings.get(n, ())) <= 1 for n in names)


def _in_scope(
    plan: Plan, schedule: Schedule, target: ast.expr, driven: ast.expr, steps: Sequence[Update], *, part: bool
) -> Schedule:
    """The schedule with its steps and reads, when all of them are in the scope that makes it. Raises NotPlain."""
    unit, made = plan.unit, schedule.made
    if not isinstance(target, ast.Name) or not isinstance(driven, ast.Name):
        raise NotPlain("it, or its optimizer, is no plain name")
    scope = unit.scope(target)
    if scope is not unit.scope(driven) or scope.node is not made.key[0]:
        raise NotPlain("its optimizer is made in another function")
    if len(scope.bindings[target.id]) != 1 or len(scope.bindings[driven.id]) != 1:
        raise NotPlain("it, or its optimizer, is assigned more than once")
    if not _stable(unit, made):
        raise NotPlain("the learning rate's name is assigned again")
    if part:
        return replace(schedule, part=True)
    stepping, reads = _uses(plan, target, driven, schedule.by_metric)
    counted = not reads and schedule.kind not in ON_HOST and schedule.cycled is None
    per_step = counted and _per_step(plan, made, stepping, reads, steps, schedule.stmt)
    return replace(schedule, steps=stepping, reads=reads, per_step=per_step)


def _uses(
    plan: Plan, target: ast.Name, driven: ast.Name, by_metric: bool
) -> tuple[tuple[ast.Expr, ...], tuple[ast.expr, ...]]:
    """The statements `scheduler.step()` and the reads of the rate. Raises NotPlain for any other use."""
    unit = plan.unit
    scope = unit.scope(target)
    stepping: list[ast.Expr] = []
    reads: list[ast.expr] = []
    for node in unit.tree.all(ast.Name):
        if not isinstance(node.ctx, ast.Load) or unit.scope(node).lookup(node.id) is not scope:
            continue
        if node.id == driven.id and (read := _group_rate(unit.tree.parents, node)) is not None:
            reads.append(read)
        if node.id != target.id:
            continue
        stmt = unit.tree.statement(node)
        call = method_call(stmt, "step")
        attribute = unit.tree.parents[node]
        if unit.scope(node) is not scope:
            raise NotPlain("it is used in another function")
        if call is not None and call.func is attribute:
            if len(call.args) != int(by_metric) or call.keywords:
                raise NotPlain("step() is given an argument")
            assert isinstance(stmt, ast.Expr)
            stepping.append(stmt)
        elif isinstance(attribute, ast.Attribute) and attribute.attr == "get_last_lr":
            reads.append(_last_rate(unit.tree.parents, attribute))
        else:
            raise NotPlain(f"`{ast.unparse(stmt).splitlines()[0][:60]}` uses it otherwise")
    return tuple(stepping), tuple(reads)


def _last_rate(parents: dict[ast.AST, ast.AST], attribute: ast.Attribute) -> ast.expr:
    """The expression `scheduler.get_last_lr()[0]`."""
    call = parents[attribute]
    item = parents.get(call)
    if isinstance(call, ast.Call) and isinstance(item, ast.Subscript) and item.value is call:
        if isinstance(item.slice, ast.Constant) and item.slice.value == 0:
            return item
    raise NotPlain("get_last_lr() is not read as get_last_lr()[0]")


def _group_rate(parents: dict[ast.AST, ast.AST], node: ast.Name) -> ast.expr | None:
    """The expression `optimizer.param_groups[0]["lr"]`, read."""
    groups = parents[node]
    first = parents.get(groups)
    rate = parents.get(first) if first is not None else None
    if not (isinstance(groups, ast.Attribute) and groups.attr == "param_groups"):
        return None
    if isinstance(first, ast.Subscript) and isinstance(rate, ast.Subscript) and isinstance(rate.ctx, ast.Load):
        if isinstance(first.slice, ast.Constant) and first.slice.value == 0 and isinstance(rate.slice, ast.Constant):
            return rate if rate.slice.value == "lr" else None
    return None


def _per_step(
    plan: Plan,
    made: OptimizerCall,
    stepping: Sequence[ast.Expr],
    reads: Sequence[ast.expr],
    steps: Sequence[Update],
    stmt: ast.Assign,
) -> bool:
    """Whether a scheduler step follows each optimizer step in the same block, and nothing asks for the rate."""
    parents = plan.unit.tree.parents
    mine = [s for s in steps if s.made is made]
    if reads or not mine or len(mine) != len(stepping):
        return False
    construction = parents[made.call]
    if not isinstance(construction, ast.Assign) or construction not in (block := block_of(stmt, parents)):
        return False
    between = block[block.index(construction) + 1 : block.index(stmt)]
    if (
        block.index(construction) > block.index(stmt)
        or made.target in uses(between).reads
        or not _bare_line(plan, construction)
    ):
        return False
    for step in mine:
        place = step.block.index(step.stmt)
        after = [s for s in step.block[place + 1 :] if s in stepping]
        if len(after) != 1 or any(
            isinstance(n, (ast.Continue, ast.Break, ast.Return))
            for s in step.block[place : step.block.index(after[0])]
            for n in ast.walk(s)
        ):
            return False
    return True


def _bare_line(plan: Plan, stmt: ast.stmt) -> bool:
    """Whether the statement can move without leaving a comment behind."""
    return (
        plan.alone(stmt)
        and plan.alone_to_end(stmt)
        and not plan.unit.tree.comments_in(plan.unit.tree.start(stmt), plan.unit.tree.end(stmt))
    )
