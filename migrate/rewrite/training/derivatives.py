"""`torch.autograd.grad` with respect to tensors: all calls of a file."""

from __future__ import annotations

import ast

from ..plan import Plan
from .functional import Line
from .functional_text import write_line
from .gradcalls import GRAD, GradCall, find_helpers, grad_calls, helper_calls, read_call
from .roles import NotPlain, function_of

__all__ = ["plan_grad_calls"]


def plan_grad_calls(plan: Plan) -> None:
    """Convert the calls of torch.autograd.grad; those that are not understood are left and reported."""
    unit = plan.unit
    helpers = find_helpers(unit)
    calls: list[GradCall] = []
    for call in grad_calls(unit):
        try:
            function = unit.tree.function(call)
            if isinstance(function, ast.FunctionDef) and function in helpers:
                calls += helper_calls(unit, function, call)
            else:
                calls.append(read_call(unit, call))
        except NotPlain as problem:
            _left(plan, call, str(problem))
    lines: dict[ast.AST, list[GradCall]] = {}
    for read in sorted(calls, key=lambda c: unit.tree.start(c.call)):
        lines.setdefault(function_of(unit, read.stmt), []).append(read)
    failed: dict[ast.FunctionDef | None, str] = {}
    ready: list[Line] = []
    for group in lines.values():
        try:
            ready.append(Line(plan, group))
        except NotPlain as problem:
            for read in group:
                failed.setdefault(read.helper, str(problem))
                if read.helper is None:
                    _left(plan, read.call, str(problem))
    broken = {h for h in failed if h is not None}
    for line in ready:
        if any(c.helper in broken for c in line.calls if c.helper):
            for read in line.calls:
                if read.helper is None:
                    _left(plan, read.call, "a helper is called beside it that stays torch's")
            continue
        write_line(line)
    for helper, inner in helpers.items():
        _helper(plan, helper, inner, failed.get(helper, ""), any(c.helper is helper for c in calls))


def _left(plan: Plan, call: ast.Call, why: str) -> None:
    if call in plan.taken:
        return
    plan.taken |= {call, call.func}
    plan.found(
        "JM208", call, GRAD, f"gradient left: {why}",
        advice="Write the output as a function of the input and take jax.grad (jax.vjp with grad_outputs).",
    )  # fmt: skip


def _helper(plan: Plan, helper: ast.FunctionDef, inner: ast.Call, problem: str, used: bool) -> None:
    """A function whose calls have all been written out goes."""
    if inner in plan.taken:
        return
    if problem or not used or not plan.alone(helper):
        _left(plan, inner, problem or "its output is made outside of this function")
        return
    plan.taken |= set(ast.walk(helper))
    plan.lines[helper] = lambda _: []
    plan.found("JM002", inner, GRAD, f"{helper.name} is written out where it is called")
