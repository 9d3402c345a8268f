"""The training step and what stands around it: optimizers, schedules, gradient modes, train and eval."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ..plan import Plan, Whole
from ..writer import Writer
from .gradients import plan_gradient
from .idle import is_idle, plan_idle
from .loops import fresh, plan_step
from .methods import plan_freezing, plan_methods
from .modes import plan_modes
from .optimizers import OptimizerCall, Optimizers, find_optimizers
from .rates import injected, plan_schedule, schedule_text
from .roles import NotPlain, is_optimizer
from .schedules import Schedule, find_schedules
from .steps import Step, backward_calls, read_step
from .transforms import optax_text

__all__ = ["plan_training"]


def plan_training(plan: Plan) -> None:
    """Training steps of the plain form, their optimizers and schedules, `no_grad`, and methods of modules."""
    optimizers = find_optimizers(plan)
    steps, failed = _steps(plan, optimizers)
    schedules = find_schedules(plan, optimizers, steps)
    explicit: dict[int, tuple[str, str] | None] = {}
    for made in optimizers.calls:
        schedule = next((s for s in schedules if s.made is made), None)
        explicit[id(made)] = _optimizer(plan, optimizers, made, steps, schedule)
    for step in steps:
        plan_step(plan, step, explicit.get(id(step.made)) if step.made is not None else None)
    for schedule in schedules:
        plan_schedule(plan, schedule, explicit.get(id(schedule.made)), idle=is_idle(plan, schedule.made, schedule))
    plan_modes(plan, steps)
    plan_methods(plan)
    plan_freezing(plan)
    _leave(plan, failed)
    _other_uses(plan, steps, failed)


def _steps(plan: Plan, optimizers: Optimizers) -> tuple[list[Step], dict[ast.Call, str]]:
    """The steps of the plain form, and the backward calls that are not part of one with the reason."""
    steps: list[Step] = []
    failed: dict[ast.Call, str] = {}
    for call in backward_calls(plan.unit):
        try:
            steps.append(read_step(plan, call, optimizers))
        except NotPlain as problem:
            try:
                plan_gradient(plan, call)
            except NotPlain as other:
                bare = "no optimizer.step()" in str(problem) and "no optimizer.step()" not in str(other)
                failed[call] = str(other if bare else problem)
    schedules: list[Schedule] = []
    kept = []
    for step in steps:
        alone = step.made is not None and _explicit(plan, optimizers, step.made, steps, schedules) is not None
        if step.arrays and not alone:
            assert isinstance(step.backward.value, ast.Call)
            failed[step.backward.value] = "its tensors are used outside this scope"
        else:
            kept.append(step)
    return kept, failed


def _optimizer(
    plan: Plan, optimizers: Optimizers, made: OptimizerCall, steps: list[Step], schedule: Schedule | None
) -> tuple[str, str] | None:
    """Write one construction. Returns the names of transformation and state where those replace the optimizer."""
    names = None
    problem, code = made.problem, made.code
    if not problem and schedule is not None and is_idle(plan, made, schedule):
        plan_idle(plan, made)
        return None
    if not problem:
        names = _explicit(plan, optimizers, made, steps, [schedule] if schedule is not None else [])
        if made.arrays and names is None:
            problem = "single tensors are only converted together with their training step"
    if problem:
        plan.found(code, made.call, made.name, f"{made.name}: {problem}", advice=made.advice)
        plan.taken |= set(ast.walk(made.call))
        return None
    _construct(plan, made, names, schedule)
    return names


def _explicit(
    plan: Plan, optimizers: Optimizers, made: OptimizerCall, steps: list[Step], schedules: Sequence[Schedule]
) -> tuple[str, str] | None:
    """Names for transformation and state when every use of the optimizer is known and in one scope; else None."""
    unit = plan.unit
    stmt = unit.tree.parents[made.call]
    if not isinstance(stmt, ast.Assign) or not isinstance(stmt.targets[0], ast.Name) or not plan.alone(stmt):
        return None
    scope = unit.scopes.of.get(made.key[0])
    if scope is None or len(scope.bindings.get(made.target, ())) != 1 or scope.kind == "class":
        return None
    mine = [s for s in steps if s.made is made]
    known = {n for s in mine for part in (*s.zero, s.step) for n in ast.walk(part)}
    known |= {n for s in schedules for part in (s.call, *s.reads) for n in ast.walk(part)}
    for node in unit.tree.all(ast.Name):
        if node.id == made.target and node is not stmt.targets[0] and node not in known:
            if unit.scope(node).lookup(node.id) is scope and not _lone_zero(plan, node):
                return None
    if not mine or any(unit.scope(s.step) is not scope for s in mine):
        return None
    several = sum(1 for c in optimizers.calls if c.key[0] is made.key[0]) > 1
    suffix = f"_{made.target}" if several else ""
    tx = fresh(plan, stmt, (f"tx{suffix}", f"{made.target}_tx"))
    return tx, fresh(plan, stmt, (f"opt_state{suffix}", f"{made.target}_state"))


def _lone_zero(plan: Plan, node: ast.Name) -> bool:
    """Whether a name stands in a statement `x.zero_grad()`."""
    tree = plan.unit.tree
    up = tree.parents[node]
    return isinstance(up, ast.Attribute) and up.attr == "zero_grad" and isinstance(tree.statement(node), ast.Expr)


def _construct(plan: Plan, made: OptimizerCall, names: tuple[str, str] | None, schedule: Schedule | None) -> None:
    """`tx = …` and its state, or `nnx.Optimizer(model, …, wrt=nnx.Param)`; a schedule per step is the learning rate."""
    assert made.found is not None
    stmt = plan.unit.tree.parents[made.call]
    plan.taken |= {made.call, made.call.func} | _parameter_nodes(made)
    if schedule is None:
        text = optax_text(plan, made.found)
    elif schedule.per_step and made.found.takes_schedule:
        text = optax_text(plan, made.found, schedule.name)
    else:
        text = injected(plan, made, schedule.name if schedule.per_step else "")
    params = f"nnx.state({made.model}, nnx.Param)" if made.model else _tuple(made.arrays)

    def statement(writer: Writer) -> list[str]:
        if names is None:
            return [f"{made.target} = nnx.Optimizer({made.model}, {text(writer)}, wrt=nnx.Param)"]
        return [f"{names[0]} = {text(writer)}", f"{names[1]} = {names[0]}.init({params})"]

    if schedule is not None and schedule.per_step:
        rate = schedule_text(plan, schedule)
        assert isinstance(stmt, ast.stmt)
        plan.lines[stmt] = lambda _: []
        plan.lines[schedule.stmt] = lambda writer: [f"{schedule.name} = {rate(writer)}", *statement(writer)]
    elif names is not None and isinstance(stmt, ast.Assign):
        plan.lines[stmt] = statement
    else:
        plan.whole[made.call] = Whole(
            lambda writer: f"nnx.Optimizer({made.model}, {text(writer)}, wrt=nnx.Param)", 15, (made.call,)
        )
    _report(plan, made, names)


def _report(plan: Plan, made: OptimizerCall, names: tuple[str, str] | None) -> None:
    assert made.found is not None
    target = "optax" if names else "nnx.Optimizer around optax"
    if made.found.decays:
        text = "a parameter that the loss does not use is decayed too; torch leaves it alone"
        plan.found("JM101", made.call, made.name, f"{made.name} -> {target}: {text}")
    else:
        plan.found("JM001", made.call, made.name, f"{made.name} -> {target}")


def _tuple(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"({', '.join(names)})"


def _parameter_nodes(made: OptimizerCall) -> set[ast.AST]:
    params = made.call.args[0] if made.call.args else next(k.value for k in made.call.keywords if k.arg == "params")
    return set(ast.walk(params))


def _leave(plan: Plan, failed: dict[ast.Call, str]) -> None:
    for call, reason in failed.items():
        plan.taken |= {call, call.func}
        plan.found(
            "JM208", call, "torch.Tensor.backward", f"training step left: {reason}",
            advice="Put the forward pass into a loss function, take nnx.value_and_grad of it, then update.",
        )  # fmt: skip


_OF_OPTIMIZERS = frozenset(("param_groups", "state", "defaults", "zero_grad", "step"))


def _other_uses(plan: Plan, steps: list[Step], failed: dict[ast.Call, str]) -> None:
    """What else is done with an optimizer: a zero_grad goes with its optimizer's steps, the rest is left."""
    unit = plan.unit
    for node in unit.tree.all(ast.Attribute):
        if node in plan.taken or node.attr not in _OF_OPTIMIZERS:
            continue
        if not is_optimizer(unit, node.value):
            continue
        call = unit.tree.parents[node]
        if node.attr in ("param_groups", "state", "defaults"):
            plan.taken.add(node)
            plan.found(
                "JM208", node, f"torch.optim.Optimizer.{node.attr}", f"the optimizer's {node.attr} has no counterpart",
                advice="Set rates with optax.inject_hyperparams; optax keeps its state in a pytree.",
            )  # fmt: skip
        elif node.attr in ("zero_grad", "step") and isinstance(call, ast.Call) and call not in plan.taken:
            _other_call(plan, call, node, steps, failed)


def _other_call(
    plan: Plan, node: ast.Call, func: ast.Attribute, steps: list[Step], failed: dict[ast.Call, str]
) -> None:
    plan.taken |= {node, func}
    stmt = plan.unit.tree.parents[node]
    same = [s for s in steps if ast.unparse(s.optimizer) == ast.unparse(func.value)]
    name = f"torch.optim.Optimizer.{func.attr}"
    if func.attr == "zero_grad" and isinstance(stmt, ast.Expr) and same and not failed:
        plan.lines[stmt] = lambda _: []
        plan.found("JM002", node, name, "gradients are values: nothing to set to zero")
    else:
        plan.found("JM208", node, name, "not part of a training step that is converted")
