"""An optimizer of single tensors that get no gradient: torch's step changes nothing, only rates are asked for."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..plan import Plan
from .callees import is_backward
from .optimizers import OptimizerCall
from .roles import function_of, method_call
from .schedules import Schedule


def is_idle(plan: Plan, made: OptimizerCall, schedule: Schedule) -> bool:
    """Whether no backward pass can reach the tensors, and the optimizer is only stepped and driven by the schedule."""
    unit = plan.unit
    function = function_of(unit, made.call)
    if not made.arrays or isinstance(function, ast.Module) or any(is_backward(n) for n in ast.walk(function)):
        return False
    known = {n for s in _statements(plan, made) for n in ast.walk(s)}
    known |= {n for part in (schedule.call, *schedule.reads) for n in ast.walk(part)}
    inside = set(ast.walk(made.call))
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            if node.id == made.target and node not in known:
                return False
            if node.id in made.arrays and node not in inside and not isinstance(unit.tree.parents[node], ast.Return):
                return False
    return True


def plan_idle(plan: Plan, made: OptimizerCall) -> None:
    """Take the optimizer and its steps out."""
    stmt = plan.unit.tree.statement(made.call)
    plan.taken |= set(ast.walk(made.call))
    plan.lines[stmt] = lambda _: []
    plan.found("JM002", made.call, made.name, "no gradient is computed here: it changes nothing")
    for use in _statements(plan, made):
        plan.taken |= set(ast.walk(use))
        plan.lines[use] = lambda _: []
        plan.found("JM002", use, "torch.optim.Optimizer.step", "no gradient is computed here: it changes nothing")


def _statements(plan: Plan, made: OptimizerCall) -> Iterator[ast.stmt]:
    """The statements `optimizer.step()` and `optimizer.zero_grad()`."""
    for node in ast.walk(function_of(plan.unit, made.call)):
        call = method_call(node, "step") or method_call(node, "zero_grad")
        if call is not None and isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == made.target:
            if isinstance(node, ast.stmt) and not call.args:
                yield node
