"""Functions that take a gradient of their own and step nothing: adversarial examples, saliency.

Torch adds to the gradients of the model's parameters too, which does not matter where those are set to zero next.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..plan import Plan
from .callees import Function, called, is_backward
from .flow import is_cut, mark_cut
from .roles import is_model, modules_called
from .slices import depends
from .sources import Source
from .steps import backward_calls


def attack_calls(plan: Plan, function: ast.AST) -> Iterator[ast.Call]:
    """The calls in a function of such functions of the file."""
    for node in ast.walk(function):
        found = called(plan.unit, node) if isinstance(node, ast.Call) else None
        if found is not None and found[1] is plan.unit and found[0] is not function and _attacks(found[0]):
            yield node  # type: ignore[misc]


def _attacks(function: Function) -> bool:
    names = {n.func.attr for n in ast.walk(function) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)}
    return any(is_backward(n) for n in ast.walk(function)) and "step" not in names


def mark_attacks(plan: Plan) -> None:
    """What such a function gives is cut off from the parameters, where nothing on the way to it calls a module."""
    unit = plan.unit
    for function in dict.fromkeys(unit.tree.function(c) or unit.tree.root for c in backward_calls(unit)):
        found = [(c, called(unit, c)) for c in attack_calls(plan, function)]
        calls = [c for c, f in found if f is not None and _gives_constants(plan, f[0])]
        for call in calls:
            mark_cut(call)
        losses = [c.func.value for c in ast.walk(function) if is_backward(c)]  # type: ignore[attr-defined]
        models = Source(tuple(modules_called(plan, function, losses))) if calls else Source()
        while lost := [c for c in calls if is_cut(c) and _is_given_graph(plan, function, c, models)]:
            for call in lost:
                mark_cut(call, False)


def _is_given_graph(plan: Plan, function: ast.AST, call: ast.Call, models: Source) -> bool:
    """Whether an argument is computed by one of the modules: `perturb(head, encoder(x))`."""
    values = [a for a in (*call.args, *(k.value for k in call.keywords)) if not is_model(plan.unit, a)]
    return any(depends(plan, function, value, models) for value in values)


def _gives_constants(plan: Plan, function: Function) -> bool:
    returns = [n.value for n in ast.walk(function) if isinstance(n, ast.Return) and n.value is not None]
    losses = [c.func.value for c in ast.walk(function) if is_backward(c)]  # type: ignore[attr-defined]
    models = modules_called(plan, function, losses)
    if not models or not returns:
        return False
    return not any(depends(plan, function, value, Source(tuple(models))) for value in returns) and not any(
        modules_called(plan, function, [value]) for value in returns
    )
