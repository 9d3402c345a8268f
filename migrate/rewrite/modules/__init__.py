"""Modules: classes, constructors, parameters, buffers, and the rngs that reach them."""

from __future__ import annotations

from ..plan import Plan


def plan_modules(plan: Plan) -> None:
    """Modules: classes, constructors, parameters, buffers, and the rngs that reach them."""
