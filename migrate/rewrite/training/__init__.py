"""Training loops, optimizers, schedules, no_grad, train and eval."""

from __future__ import annotations

from ..plan import Plan


def plan_training(plan: Plan) -> None:
    """Training loops, optimizers, schedules, no_grad, train and eval."""
