"""The training step and what stands around it: optimizers, schedules, gradient modes, train and eval."""

from __future__ import annotations

import ast

from ..plan import Plan, Whole
from ..writer import Writer
from .loops import fresh, plan_step
from .methods import plan_methods
from .modes import plan_modes
from .optimizers import OptimizerCall, Optimizers, find_optimizers, optax_text
from .roles import NotPlain, is_optimizer
from .steps import Step, backward_calls, read_step

__all__ = ["plan_training"]


def plan_training(plan: Plan) -> None:
    """Training steps of the plain form, their optimizers, `no_grad` and the methods that switch modes."""
    if "torch" not in plan.unit.source.text:
        return
    optimizers = find_optimizers(plan)
    steps, failed = _steps(plan, optimizers)
    explicit: dict[int, tuple[str, str]] = {}
    for made in optimizers.calls:
        if made.problem:
            plan.found(made.code, made.call, made.name, f"{made.name}: {made.problem}", advice=made.advice)
            plan.taken |= set(ast.walk(made.call))
            continue
        names = _explicit(plan, optimizers, made, steps)
        if names is not None:
            explicit[id(made)] = names
        elif made.arrays:
            plan.found(
                "JM208",
                made.call,
                made.name,
                f"{made.name} of single tensors is only converted together with its training step",
            )
            plan.taken |= set(ast.walk(made.call))
            continue
        _construct(plan, made, names)
    for step in steps:
        plan_step(plan, step, explicit.get(id(step.made)) if step.made is not None else None)
    plan_modes(plan, steps)
    plan_methods(plan)
    _leave(plan, failed)
    _other_zero_grads(plan, steps, failed)


def _steps(plan: Plan, optimizers: Optimizers) -> tuple[list[Step], dict[ast.Call, str]]:
    steps: list[Step] = []
    failed: dict[ast.Call, str] = {}
    for call in backward_calls(plan.unit):
        try:
            steps.append(read_step(plan, call, optimizers))
        except NotPlain as problem:
            failed[call] = str(problem)
    kept = []
    for step in steps:
        if step.arrays and (step.made is None or _explicit(plan, optimizers, step.made, steps) is None):
            failed[step.backward.value] = "its tensors are used outside this scope"  # type: ignore[index]
        else:
            kept.append(step)
    return kept, failed


def _explicit(plan: Plan, optimizers: Optimizers, made: OptimizerCall, steps: list[Step]) -> tuple[str, str] | None:
    """Names for the transformation and its state when every use of the optimizer is a step of the same scope; else None."""
    unit = plan.unit
    stmt = unit.tree.parents[made.call]
    if not isinstance(stmt, ast.Assign) or not isinstance(stmt.targets[0], ast.Name) or not plan.alone(stmt):
        return None
    scope = unit.scopes.of.get(made.key[0])
    if scope is None or len(scope.bindings.get(made.target, ())) != 1 or scope.kind == "class":
        return None
    mine = [s for s in steps if s.made is made]
    known = {id(n) for s in mine for part in (*s.zero, s.step) for n in ast.walk(part)}
    for node in unit.tree.parents:
        if isinstance(node, ast.Name) and node.id == made.target and node is not stmt.targets[0]:
            if unit.scope(node).lookup(node.id) is scope and id(node) not in known and not _lone_zero(unit, node):
                return None
    if not mine or any(unit.scope(s.step) is not scope for s in mine):
        return None
    suffix = "" if sum(1 for c in optimizers.calls if c.key[0] is made.key[0]) == 1 else f"_{made.target}"
    tx = fresh(plan, stmt, (f"tx{suffix}", f"{made.target}_tx"))
    return tx, fresh(plan, stmt, (f"opt_state{suffix}", f"{made.target}_state"))


def _lone_zero(unit, node: ast.Name) -> bool:  # type: ignore[no-untyped-def]
    """Whether a name stands in a statement `x.zero_grad()`."""
    up = unit.tree.parents[node]
    return isinstance(up, ast.Attribute) and up.attr == "zero_grad" and isinstance(unit.tree.statement(node), ast.Expr)


def _construct(plan: Plan, made: OptimizerCall, names: tuple[str, str] | None) -> None:
    """`tx = …` and its state, or `nnx.Optimizer(model, …, wrt=nnx.Param)`."""
    assert made.found is not None
    text = optax_text(made.found, "")
    stmt = plan.unit.tree.parents[made.call]
    plan.taken |= {made.call, made.call.func} | _parameter_nodes(made)
    params = (
        f"nnx.state({made.model}, nnx.Param)"
        if made.model
        else made.arrays[0]
        if len(made.arrays) == 1
        else f"({', '.join(made.arrays)})"
    )
    if names is not None and isinstance(stmt, ast.Assign):
        tx, state = names
        plan.lines[stmt] = lambda writer: [f"{tx} = {text(writer)}", f"{state} = {tx}.init({params})"]
    else:

        def build(writer: Writer) -> str:
            return f"nnx.Optimizer({made.model}, {text(writer)}, wrt=nnx.Param)"

        plan.whole[made.call] = Whole(build, 15, (made.call,))
    plan.found(
        "JM001",
        made.call,
        made.name,
        f"{made.name} -> optax" if names else f"{made.name} -> nnx.Optimizer around optax",
    )


def _parameter_nodes(made: OptimizerCall) -> set[ast.AST]:
    params = made.call.args[0] if made.call.args else next(k.value for k in made.call.keywords if k.arg == "params")
    return set(ast.walk(params))


def _leave(plan: Plan, failed: dict[ast.Call, str]) -> None:
    for call, reason in failed.items():
        plan.taken |= {call, call.func}
        plan.found(
            "JM208", call, "torch.Tensor.backward", f"training step left: {reason}",
            advice="Put the forward pass into a loss function, take nnx.value_and_grad of it and update with its gradients.",
        )  # fmt: skip


def _other_zero_grads(plan: Plan, steps: list[Step], failed: dict[ast.Call, str]) -> None:
    """A zero_grad or step away from a plain step: gone with its optimizer's steps, or left with them."""
    unit = plan.unit
    for node in unit.tree.parents:
        if not isinstance(node, ast.Call) or node in plan.taken or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr not in ("zero_grad", "step") or not is_optimizer(unit, node.func.value):
            continue
        plan.taken |= {node, node.func}
        stmt = unit.tree.parents[node]
        same = [s for s in steps if ast.unparse(s.optimizer) == ast.unparse(node.func.value)]
        name = f"torch.optim.Optimizer.{node.func.attr}"
        if node.func.attr == "zero_grad" and isinstance(stmt, ast.Expr) and same and not failed:
            plan.lines[stmt] = lambda _: []
            plan.found("JM002", node, name, "gradients are values: nothing to set to zero")
        else:
            plan.found("JM208", node, name, "not part of a training step that is converted")
