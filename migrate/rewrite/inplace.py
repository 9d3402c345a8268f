"""In-place writes become rebinding, where no live alias could see the difference."""

from __future__ import annotations

from .plan import Plan


def plan_inplace(plan: Plan) -> None:
    """In-place writes become rebinding, where no live alias could see the difference."""
