"""`--control-flow lax`: branches and loops on tensor values in the forms that jit can trace, where proved the same."""

from __future__ import annotations

from ..plan import Plan
from .branches import plan_branches
from .loops import plan_loops


def plan_lax(plan: Plan) -> None:
    """Branches first, then loops. What is not proved stays as it is, and is reported with the hazards."""
    if plan.settings.control_flow == "lax":
        plan_branches(plan)
        plan_loops(plan)
