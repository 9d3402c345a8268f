"""Schedules, written: as the learning rate itself, or set in the optimizer's state at each scheduler step."""

from __future__ import annotations

import ast
from collections.abc import Callable

from ..plan import Plan, Whole
from ..writer import Writer
from .flow import uses
from .optimizers import OptimizerCall
from .schedules import HEAD, Schedule
from .transforms import form_text, optax_text

STARTS_AT_LR = frozenset(
    ("StepLR", "MultiStepLR", "ExponentialLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "PolynomialLR")
)


def schedule_text(plan: Plan, schedule: Schedule) -> Callable[[Writer], str]:
    """The optax schedule, a function of the number of scheduler steps so far."""
    made, found = schedule.made, schedule.found

    def build(writer: Writer) -> str:
        lr = made.lr if isinstance(made.lr, str) else writer.at_level(made.lr, 12)
        return form_text(plan, found, {"lr": lr}, writer)

    return build


def settings_text(plan: Plan, made: OptimizerCall, lr: str = "") -> Callable[[Writer], str]:
    """The optax transformation of an optimizer; with parameter groups one for each, by labels."""
    assert made.found is not None
    if not made.groups:
        return optax_text(plan, made.found, lr)
    spelled = plan.layer("label_parameters")
    model = made.source.models[0]

    def build(writer: Writer) -> str:
        each = [f'"{g.name}": {optax_text(plan, g.settings, lr)(writer)}' for g in made.groups]
        labels = ", ".join(f"{g.name}={writer.at_level(g.params, 1)}" for g in made.groups)
        by_label = ", ".join([*each, '"frozen": optax.set_to_zero()'])
        return f"optax.partition({{{by_label}}}, {spelled}({model}, {labels}))"

    return build


def injected(plan: Plan, made: OptimizerCall, schedule: str = "") -> Callable[[Writer], str]:
    """The transformation with its learning rate in the state, where it can be set; or as `schedule` has it."""

    def build(writer: Writer) -> str:
        assert made.found is not None
        rate = schedule or (made.lr if isinstance(made.lr, str) else writer.at_level(made.lr, 1))
        text = settings_text(plan, made, "learning_rate")(writer)
        bare = text.removesuffix("(learning_rate)")
        inner = bare if bare.replace(".", "").isidentifier() else f"lambda learning_rate: {text}"
        return f"optax.inject_hyperparams({inner})(learning_rate={rate})"

    return build


def plan_schedule(plan: Plan, schedule: Schedule, explicit: tuple[str, str] | None, *, idle: bool = False) -> None:
    """Write the schedule's statements; its optimizer is written by the caller. `idle`: there is no optimizer to set."""
    plan.taken |= {schedule.call, schedule.call.func}
    note = schedule.found.notes[0] if schedule.found.notes else None
    plan.found(
        note.code if note else "JM001",
        schedule.call,
        schedule.dotted,
        f"an optax schedule{': ' + note.text if note else ''}",
    )
    for stmt in schedule.steps:
        plan.taken |= {stmt.value, stmt.value.func}  # type: ignore[attr-defined]
        how = "optax counts the steps" if schedule.per_step else "the rate is set in the optimizer's state"
        plan.found("JM002", stmt, f"{HEAD}LRScheduler.step", how)
    if schedule.per_step:
        for stmt in schedule.steps:
            plan.lines[stmt] = lambda _: []
        return
    if idle:
        _count_only(plan, schedule)
        return
    text = schedule_text(plan, schedule)
    counter = _counter(plan, schedule)
    first = [f"{counter[0]} = 0"] if counter[1] else []
    start = [] if schedule.dotted.removeprefix(HEAD) in STARTS_AT_LR else [_set_rate(schedule, explicit, "0")]
    plan.lines[schedule.stmt] = lambda writer: [f"{schedule.name} = {text(writer)}", *first, *start]
    for stmt in schedule.steps:
        lines = [*([f"{counter[0]} += 1"] if counter[1] else []), _set_rate(schedule, explicit, counter[0])]
        plan.lines[stmt] = lambda _, lines=lines: lines  # type: ignore[misc]
    for read in schedule.reads:
        plan.taken |= set(ast.walk(read))
        plan.whole[read] = Whole(lambda _: f"{_rate(schedule, explicit)}.item()", 15)
        plan.found(
            "JM101", read, f"{HEAD}LRScheduler.get_last_lr", "the rate as the optimizer's state holds it, in float32"
        )


def _count_only(plan: Plan, schedule: Schedule) -> None:
    """The rates themselves, by the number of steps so far."""
    text, count = schedule_text(plan, schedule), f"{schedule.name}_steps"
    plan.lines[schedule.stmt] = lambda writer: [f"{schedule.name} = {text(writer)}", f"{count} = 0"]
    for stmt in schedule.steps:
        plan.lines[stmt] = lambda _: [f"{count} += 1"]
    for read in schedule.reads:
        plan.taken |= set(ast.walk(read))
        plan.whole[read] = Whole(lambda _: f"float({schedule.name}({count}))", 15)
        plan.found("JM101", read, f"{HEAD}LRScheduler.get_last_lr", "the rate of the schedule, in float32")


def _rate(schedule: Schedule, explicit: tuple[str, str] | None) -> str:
    state = explicit[1] if explicit else f"{schedule.made.target}.opt_state"
    return f'{state}.hyperparams["learning_rate"]'


def _set_rate(schedule: Schedule, explicit: tuple[str, str] | None, count: str) -> str:
    if explicit:
        return f"{_rate(schedule, explicit)} = jnp.asarray({schedule.name}({count}), jnp.float32)"
    return f"{_rate(schedule, explicit)}[...] = {schedule.name}({count})"


def _counter(plan: Plan, schedule: Schedule) -> tuple[str, bool]:
    """The number of scheduler steps so far: from the loop's variable, else a variable of its own (True)."""
    own = f"{schedule.name}_steps", True
    if len(schedule.steps) != 1:
        return own
    parents = plan.unit.tree.parents
    stmt = schedule.steps[0]
    loop = parents[stmt]
    if not isinstance(loop, ast.For) or stmt not in loop.body or not isinstance(loop.target, ast.Name):
        return own
    bounds = (
        loop.iter.args
        if isinstance(loop.iter, ast.Call) and plan.unit.resolve(loop.iter.func) == "builtins.range"
        else []
    )
    before = loop.body[: loop.body.index(stmt)]
    inside = any(isinstance(u, (ast.For, ast.While)) for u in plan.unit.tree.ancestors(loop))
    skipped = (
        any(isinstance(n, ast.Continue) for s in before for n in ast.walk(s))
        or loop.target.id in uses(loop.body).writes
    )
    if len(bounds) not in (1, 2) or inside or skipped or schedule.stmt in set(ast.walk(loop)):
        return own
    start = bounds[0] if len(bounds) == 2 else None
    if start is None or (isinstance(start, ast.Constant) and start.value == 0):
        return f"{loop.target.id} + 1", False
    if isinstance(start, ast.Constant) and start.value == 1:
        return loop.target.id, False
    return own
