"""Schedules, written: as the learning rate itself, or set in the optimizer's state at each scheduler step."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from ...rulebook.signature import Arguments, bind
from ..match import Match, choose
from ..plan import Plan, Whole
from ..writer import Writer
from .cycles import Cycled
from .flow import uses
from .optimizers import OptimizerCall
from .schedules import COMPOSED, HEAD, Schedule, parts_of
from .transforms import form_text, optax_text

METHODS = ("step", "get_last_lr", "state_dict", "load_state_dict")
STARTS_AT_LR = frozenset(
    ("StepLR", "MultiStepLR", "ExponentialLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "PolynomialLR")
)


def schedule_text(plan: Plan, schedule: Schedule) -> Callable[[Writer], str]:
    """The optax schedule, a function of the number of scheduler steps so far."""
    made, found = schedule.made, schedule.found

    def build(writer: Writer) -> str:
        loose = made.lr if isinstance(made.lr, str) else writer.at_level(made.lr, 12)
        if schedule.kind in COMPOSED:
            return _composed(plan, schedule, loose, writer)
        return form_text(plan, found, {"lr": loose}, writer)

    return build


def _composed(plan: Plan, schedule: Schedule, lr: str, writer: Writer) -> str:
    """SequentialLR joins its parts; ChainedScheduler multiplies their factors."""
    given = [*schedule.call.args, *(k.value for k in schedule.call.keywords)]
    listed = next(a for a in given if isinstance(a, (ast.List, ast.Tuple)) and any(not _is_number(e) for e in a.elts))
    texts = [_part_text(plan, e, lr, writer) for e in listed.elts]
    if schedule.kind == "SequentialLR":
        stones = schedule.found.arguments.named["milestones"]
        return f"optax.join_schedules([{', '.join(texts)}], {writer.at_level(stones, 1)})"
    product = " * ".join(f"{t if t.isidentifier() else f'({t})'}(count)" for t in texts)
    return f"lambda count: {product}" + "".join(f" / {lr}" for _ in texts[1:])


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, (ast.Constant, ast.UnaryOp))


def _part_text(plan: Plan, node: ast.expr, lr: str, writer: Writer) -> str:
    if isinstance(node, ast.Name):
        return node.id
    assert isinstance(node, ast.Call)
    row = plan.unit.book.find(plan.unit.resolve(node.func) or "")
    assert row is not None and row.signature is not None
    arguments = bind(row.signature, node)
    assert isinstance(arguments, Arguments)
    arguments.named.pop("optimizer", None)
    found = choose(row, row.signature, arguments, plan.unit)
    assert isinstance(found, Match)
    return form_text(plan, found, {"lr": lr}, writer)


def settings_text(
    plan: Plan, made: OptimizerCall, lr: str = "", cycled: Cycled | None = None
) -> Callable[[Writer], str]:
    """The optax transformation of an optimizer; with parameter groups one for each, by labels."""
    assert made.found is not None
    if cycled is not None:
        return optax_text(plan, cycled.settings, lr, cycled.setting)
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


def injected(
    plan: Plan, made: OptimizerCall, schedule: str = "", cycled: Cycled | None = None
) -> Callable[[Writer], str]:
    """The transformation with its learning rate in the state, where it can be set; or as `schedule` has it."""

    def build(writer: Writer) -> str:
        assert made.found is not None
        rate = schedule or (made.lr if isinstance(made.lr, str) else writer.at_level(made.lr, 1))
        text = settings_text(plan, made, "learning_rate", cycled)(writer)
        bare = text.removesuffix("(learning_rate)")
        names, values = ["learning_rate"], [f"learning_rate={rate}"]
        if cycled is not None:
            names.append(cycled.setting)
            values.append(f"{cycled.setting}=0.0")
        plain = bare.replace(".", "").isidentifier() and cycled is None
        inner = bare if plain else f"lambda {', '.join(names)}: {text}"
        return f"optax.inject_hyperparams({inner})({', '.join(values)})"

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
    for part in parts_of(plan.unit, schedule.call):
        if not isinstance(plan.unit.tree.parents[part], ast.Assign):
            plan.taken |= {part, part.func}
            plan.found("JM001", part, plan.unit.resolve(part.func) or "", f"a part of the {schedule.kind}")
    for stmt in schedule.steps:
        plan.taken |= {stmt.value, stmt.value.func}  # type: ignore[attr-defined]
        how = "optax counts the steps" if schedule.per_step else "the rate is set in the optimizer's state"
        plan.found("JM002", stmt, f"{HEAD}LRScheduler.step", how)
    if schedule.per_step:
        for stmt in schedule.steps:
            plan.lines[stmt] = lambda _: []
        return
    text = schedule_text(plan, schedule)
    if schedule.part:
        plan.lines[schedule.stmt] = lambda writer: [f"{schedule.name} = {text(writer)}"]
        return
    if schedule.shared:
        _plan_shared(plan, schedule, text)
        return
    if idle:
        _count_only(plan, schedule)
        return
    if schedule.by_metric:
        plan.lines[schedule.stmt] = lambda writer: [f"{schedule.name} = {text(writer)}"]
        for stmt in schedule.steps:
            metric = stmt.value.args[0]  # type: ignore[attr-defined]
            plan.lines[stmt] = lambda w, metric=metric: [  # type: ignore[misc]
                _set(schedule, explicit, "learning_rate", f"{schedule.name}.step({w.at_level(metric, 1)})")
            ]
    else:
        _plan_counted(plan, schedule, explicit, text)
    for read in schedule.reads:
        plan.taken |= set(ast.walk(read))
        plan.whole[read] = Whole(lambda _: f"{_rate(schedule, explicit)}.item()", 15)
        plan.found(
            "JM101", read, f"{HEAD}LRScheduler.get_last_lr", "the rate as the optimizer's state holds it, in float32"
        )


def _plan_counted(
    plan: Plan, schedule: Schedule, explicit: tuple[str, str] | None, text: Callable[[Writer], str]
) -> None:
    """A count of the scheduler's steps, and at each of them the rate (and the momentum) that belongs to it."""
    counter = _counter(plan, schedule)
    first = [f"{counter[0]} = 0"] if counter[1] else []
    cycled = schedule.cycled
    other = f"{schedule.name}_{cycled.setting}" if cycled is not None else ""

    def settings(count: str) -> list[str]:
        lines = [_set(schedule, explicit, "learning_rate", f"{schedule.name}({count})")]
        if cycled is not None:
            lines.append(_set(schedule, explicit, cycled.setting, f"{other}({count})"))
        return lines

    start = [] if schedule.kind in STARTS_AT_LR else settings("0")

    def made(writer: Writer) -> list[str]:
        more = [f"{other} = {cycled.text(plan, writer)}"] if cycled is not None else []
        return [f"{schedule.name} = {text(writer)}", *more, *first, *start]

    plan.lines[schedule.stmt] = made
    for stmt in schedule.steps:
        lines = [*([f"{counter[0]} += 1"] if counter[1] else []), *settings(counter[0])]
        plan.lines[stmt] = lambda _, lines=lines: lines  # type: ignore[misc]


def _plan_shared(plan: Plan, schedule: Schedule, text: Callable[[Writer], str]) -> None:
    """The layer library's LRScheduler, an object with torch's methods."""
    spelled = plan.layer("LRScheduler")
    target = schedule.made.target
    plan.whole[schedule.call] = Whole(lambda w: f"{spelled}({target}, {text(w)})", 15, (schedule.call,))
    plan.taken |= {
        n for n in ast.walk(schedule.call) if isinstance(n, (ast.Name, ast.Attribute)) and ast.unparse(n) == target
    }


def plan_scheduler_methods(plan: Plan, schedules: Sequence[Schedule]) -> None:
    """The methods of schedulers that are objects stay as they are."""
    if not any(s.shared for s in schedules):
        return
    for node in plan.unit.tree.all(ast.Call):
        func = node.func
        if not isinstance(func, ast.Attribute) or node in plan.taken or func.attr not in METHODS:
            continue
        named = any(s.shared and ast.unparse(func.value) == s.name for s in schedules)
        if plan.unit.kind(func.value).tag == "Scheduler" or named:
            plan.taken |= {node, func}
            plan.found("JM001", node, f"{HEAD}LRScheduler.{func.attr}", "the same of the layer library's LRScheduler")


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


def _set(schedule: Schedule, explicit: tuple[str, str] | None, name: str, value: str) -> str:
    state = explicit[1] if explicit else f"{schedule.made.target}.opt_state"
    if explicit:
        return f'{state}.hyperparams["{name}"] = jnp.asarray({value}, jnp.float32)'
    return f'{state}.hyperparams["{name}"][...] = {value}'


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
