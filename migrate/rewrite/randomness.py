"""Random numbers: PRNG keys reach every draw."""

from __future__ import annotations

from .plan import Plan


def plan_keys(plan: Plan) -> None:
    """Random numbers: PRNG keys reach every draw."""
