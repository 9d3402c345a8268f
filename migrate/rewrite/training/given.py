"""Which of a function's modules an optimizer that it is given trains, as its calls show."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from ...read.unit import Unit
from .callees import arguments_at
from .optimizers import Optimizers
from .sources import Source


def trained_by_calls(
    unit: Unit, optimizers: Optimizers, function: ast.AST, name: str, inside: tuple[ast.AST, ...] = ()
) -> Source | None:
    """The parameters of a function whose modules the optimizer `name`, another parameter, trains: the same ones at each
    of its calls; None where that is not shown."""
    calls = arguments_at(unit, function) if function not in inside else None
    found = {_trained(unit, optimizers, call, given, name, (*inside, function)) for call, given in calls or ()}
    return found.pop() if len(found) == 1 else None


def _trained(
    unit: Unit,
    optimizers: Optimizers,
    call: ast.Call,
    given: Mapping[str, ast.expr],
    name: str,
    inside: tuple[ast.AST, ...],
) -> Source | None:
    """What one call shows. It may stand in a function that is itself given the optimizer."""
    optimizer, caller = given.get(name), unit.tree.function(call)
    made = optimizers.of(optimizer) if optimizer is not None else None
    if made is not None:
        source = made.source if not made.problem and not made.arrays else None
    elif isinstance(optimizer, ast.Name) and caller is not None:
        source = trained_by_calls(unit, optimizers, caller, optimizer.id, inside)
    else:
        source = None
    place = unit.scope(made.call if made is not None else call)
    names = []
    for model in source.models if source is not None else ():
        same = [n for n, value in given.items() if ast.unparse(value) == model]
        root = model.partition(".")[0]
        if len(same) != 1 or (root != "self" and place.lookup(root) is not unit.scope(call).lookup(root)):
            return None
        names += same
    return Source(tuple(names)) if names else None
