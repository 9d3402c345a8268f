"""Saving and loading what an optimizer remembers."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from ..plan import Plan, Whole
from .optimizers import Optimizers
from .roles import is_optimizer

HEAD = "torch.optim.Optimizer."
NAMES = ("state_dict", "load_state_dict")


def state_calls(plan: Plan) -> Iterator[tuple[ast.Call, ast.Attribute]]:
    """The calls `optimizer.state_dict()` and `optimizer.load_state_dict(state)` in their plain form."""
    for node in plan.unit.tree.all(ast.Call):
        func = node.func
        if isinstance(func, ast.Attribute) and func.attr in NAMES and is_optimizer(plan.unit, func.value):
            loads = func.attr == "load_state_dict"
            statement = isinstance(plan.unit.tree.parents[node], ast.Expr)
            if len(node.args) == int(loads) and not node.keywords and (statement or not loads):
                yield node, func


def plan_states(plan: Plan, optimizers: Optimizers, explicit: Mapping[int, tuple[str, str] | None], left: bool) -> None:
    """Write them: the optax state itself, or the layer library's functions for an nnx.Optimizer. `left` says that some
    training code stays torch's, and with it the optimizers."""
    for node, func in state_calls(plan):
        made = optimizers.of(func.value)
        if node in plan.taken or left or (made is not None and made.problem):
            continue
        names = explicit.get(id(made)) if made is not None else None
        plan.taken |= {node, func}
        stmt = plan.unit.tree.parents[node]
        if names is not None and func.attr == "state_dict":
            plan.replace(node, names[1])
        elif names is not None:
            assert isinstance(stmt, ast.Expr)
            value = node.args[0]
            plan.lines[stmt] = lambda w, value=value, state=names[1]: [f"{state} = {w.at_level(value, 1, False)}"]  # type: ignore[misc]
        elif func.attr == "state_dict":
            spelled = plan.layer("optimizer_state")
            plan.whole[node] = Whole(lambda w, f=func, s=spelled: f"{s}({w.at_level(f.value, 1)})", 15, (func.value,))  # type: ignore[misc]
        else:
            spelled = plan.layer("load_optimizer_state")
            plan.whole[node] = Whole(
                lambda w, n=node, f=func, s=spelled: f"{s}({w.at_level(f.value, 1)}, {w.at_level(n.args[0], 1)})",  # type: ignore[misc]
                15, (func.value, node.args[0]),
            )  # fmt: skip
        plan.found("JM101", node, HEAD + func.attr, "the state of the optax transformation: torch's has another form")
