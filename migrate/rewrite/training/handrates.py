"""Learning rates written by hand: `for group in optimizer.param_groups: group["lr"] = rate`, or to the first group."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..plan import Plan, Whole
from ..writer import Writer
from .optimizers import OptimizerCall, Optimizers
from .roles import is_optimizer

NAME = "torch.optim.Optimizer.param_groups"


@dataclass(frozen=True)
class HandRate:
    """One place that sets or reads an optimizer's rate: the statement that is replaced, or the expression. `value` is
    what is assigned, `operator` that of an augmented assignment."""

    optimizer: ast.expr
    made: OptimizerCall | None
    node: ast.Attribute
    stmt: ast.stmt | None = None
    read: ast.expr | None = None
    value: ast.expr | None = None
    operator: str = ""


def find_hand_rates(plan: Plan, optimizers: Optimizers) -> list[HandRate]:
    """All of them. A use of param_groups that is none is reported elsewhere."""
    found = []
    for node in plan.unit.tree.all(ast.Attribute):
        if node.attr == "param_groups" and is_optimizer(plan.unit, node.value):
            rate = _of_loop(plan, node, optimizers) or _of_first(plan, node, optimizers)
            if rate is not None:
                found.append(rate)
    return found


def _of_loop(plan: Plan, node: ast.Attribute, optimizers: Optimizers) -> HandRate | None:
    loop = plan.unit.tree.parents[node]
    if not isinstance(loop, ast.For) or loop.iter is not node or len(loop.body) != 1 or loop.orelse:
        return None
    stmt, target = loop.body[0], loop.target
    if not isinstance(target, ast.Name) or not plan.alone(loop):
        return None
    value, operator = _assigned(stmt, target.id)
    if value is None or any(isinstance(n, ast.Name) and n.id == target.id for n in ast.walk(value)):
        return None
    return HandRate(node.value, optimizers.of(node.value), node, stmt=loop, value=value, operator=operator)


def _assigned(stmt: ast.stmt, group: str) -> tuple[ast.expr | None, str]:
    """The value of `group["lr"] = value` and the operator of `group["lr"] *= value`."""
    if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 and _is_rate(stmt.targets[0], group):
        return stmt.value, ""
    if isinstance(stmt, ast.AugAssign) and _is_rate(stmt.target, group):
        return stmt.value, {ast.Mult: "*", ast.Div: "/", ast.Add: "+", ast.Sub: "-"}.get(type(stmt.op), "?")
    return None, ""


def _is_rate(node: ast.expr, group: str) -> bool:
    return (
        isinstance(node, ast.Subscript)
        and ast.unparse(node.value) == group
        and isinstance(node.slice, ast.Constant)
        and node.slice.value == "lr"
    )


def _of_first(plan: Plan, node: ast.Attribute, optimizers: Optimizers) -> HandRate | None:
    parents = plan.unit.tree.parents
    first = parents[node]
    if not isinstance(first, ast.Subscript) or ast.unparse(first.slice) not in ("0", "-1"):
        return None
    rate = parents[first]
    if not isinstance(rate, ast.Subscript) or not _is_rate(rate, ast.unparse(first)):
        return None
    made = optimizers.of(node.value)
    stmt = parents[rate]
    if isinstance(rate.ctx, ast.Load):
        return HandRate(node.value, made, node, read=rate)
    if isinstance(stmt, ast.stmt) and plan.alone(stmt) and (made is None or not made.groups):
        value, operator = _assigned(stmt, ast.unparse(first))
        return (
            HandRate(node.value, made, node, stmt=stmt, value=value, operator=operator) if value is not None else None
        )
    return None


def plan_hand_rates(
    plan: Plan, rates: Sequence[HandRate], explicit: Mapping[int, tuple[str, str] | None], left: bool
) -> None:
    """Write them into the state of optax.inject_hyperparams. `left`: some training code stays torch's."""
    for rate in rates:
        if rate.node in plan.taken or left or (rate.made is not None and rate.made.problem) or rate.operator == "?":
            continue
        names = explicit.get(id(rate.made)) if rate.made is not None else None
        state = names[1] if names is not None else f"{ast.unparse(rate.optimizer)}.opt_state"
        place = f'{state}.hyperparams["learning_rate"]'
        plan.taken.add(rate.node)
        if rate.read is not None:
            plan.taken |= set(ast.walk(rate.read))
            plan.whole[rate.read] = Whole(lambda _, place=place: f"{place}.item()", 15)  # type: ignore[misc]
            plan.found("JM101", rate.read, NAME, "the rate as the optimizer's state holds it, in float32")
            continue
        assert rate.stmt is not None and rate.value is not None
        plan.lines[rate.stmt] = _setter(rate, place, bare=names is not None)
        kept = set(ast.walk(rate.value))
        plan.taken |= {n for n in ast.walk(rate.stmt) if n not in kept}
        what = "the rate in the state of optax.inject_hyperparams"
        foreign = "" if rate.made is not None else ": make the optimizer with it"
        plan.found("JM002" if rate.made is not None else "JM101", rate.node, NAME, what + foreign)


def _setter(rate: HandRate, place: str, *, bare: bool):  # type: ignore[no-untyped-def]
    def lines(writer: Writer) -> list[str]:
        assert rate.value is not None
        value = writer.at_level(rate.value, 12 if rate.operator else 1)
        new = f"{place} {rate.operator} {value}" if rate.operator else value
        if bare:
            return [f"{place} = jnp.asarray({new}, jnp.float32)"]
        return [f"{place}[...] = {new}"]

    return lines
