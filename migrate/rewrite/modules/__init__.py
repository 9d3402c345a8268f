"""Modules: classes, constructors, parameters, buffers, and the rngs that reach them."""

from __future__ import annotations

from ..plan import Plan
from .classes import plan_classes
from .filling import plan_filling
from .freezing import plan_freezing
from .hooks import plan_hooks
from .initialise import plan_initialisation
from .members import plan_members
from .named import plan_named
from .variables import plan_variables


def plan_modules(plan: Plan) -> None:
    """Everything about the structure of nn.Module classes and what they hold."""
    plan_classes(plan)
    plan_freezing(plan)
    plan_named(plan)
    plan_initialisation(plan)
    plan_filling(plan)
    plan_hooks(plan)
    plan_members(plan)
    plan_variables(plan)


__all__ = ["plan_modules"]
