"""Integers that may pass 32 bits: torch's are 64 bits wide, JAX's wrap around. Said once a file."""

from __future__ import annotations

import ast

from ..read.integers import Integers
from ..read.source import hidden
from .plan import Plan
from .x64 import ADVICE, is_on


def plan_integers(plan: Plan) -> None:
    """One finding at the first product, power or sum of integers in a file, where 64-bit types are off."""
    if is_on(plan):
        return
    places = [node for node in Integers(plan.unit).growing() if not hidden(node)]
    if not places:
        return
    lines = {plan.unit.tree.position(plan.unit.tree.start(node))[0] for node in places[1:]}
    more = f" (and in {len(lines)} more line{'s' if len(lines) > 1 else ''} of this file)" if lines else ""
    text = ast.unparse(places[0])
    plan.found(
        "JM111", places[0], "torch.int64",
        f"integers are 64 bits wide in torch, 32 in JAX: `{text[:60]}` wraps around beyond 2^31{more}",
        advice=ADVICE, rule="integer range",
    )  # fmt: skip
