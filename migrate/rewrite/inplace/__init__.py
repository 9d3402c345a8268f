"""In-place writes become rebinding, where no live alias could see the difference."""

from __future__ import annotations

import ast

from ...read.source import hidden
from ..plan import Plan
from .context import Context
from .functions import writing_function
from .methods import inplace_argument, inplace_call, inplace_module, out_argument
from .mutating import finish, hand_back
from .statements import assignment, augmented


def plan_inplace(plan: Plan) -> None:
    """Decide every write to a tensor: subscript and augmented assignments, in-place methods, `out=`, `inplace=True`."""
    context = Context(plan)
    for node in list(plan.unit.tree.parents):
        if hidden(node) or node in plan.taken:
            continue
        if isinstance(node, ast.Assign) and node not in plan.lines:
            assignment(context, node)
        elif isinstance(node, ast.AugAssign) and node not in plan.lines:
            augmented(context, node)
        elif isinstance(node, ast.Call):
            out_argument(context, node)
            inplace_argument(context, node)
            inplace_module(context, node)
            inplace_call(context, node)
            writing_function(context, node)
    hand_back(context)
    finish(context, plan)
