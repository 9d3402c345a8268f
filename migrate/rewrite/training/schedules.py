"""Learning-rate schedules: an optax schedule as the learning rate where it steps with the optimizer, else set by hand.

`optax.inject_hyperparams` keeps the rate in the optimizer's state, so that a schedule that steps once an epoch can
set it.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from ...rulebook.signature import Mismatch, bind
from ..match import Match, Refusal, choose
from ..plan import Plan
from .flow import block_of, uses
from .optimizers import OptimizerCall, Optimizers
from .roles import NotPlain, method_call
from .steps import Update

HEAD = "torch.optim.lr_scheduler."


@dataclass(frozen=True)
class Schedule:
    """One scheduler: its construction, its optimizer, the statements that step it and the reads of its rate.

    `per_step` says that it steps once with each optimizer step, so that optax can count for it.
    """

    call: ast.Call
    stmt: ast.Assign
    name: str
    dotted: str
    made: OptimizerCall
    found: Match
    steps: tuple[ast.Expr, ...]
    reads: tuple[ast.expr, ...]
    per_step: bool


def find_schedules(plan: Plan, optimizers: Optimizers, steps: Sequence[Update]) -> list[Schedule]:
    """All schedulers of a plain form; the others are reported."""
    unit = plan.unit
    found = []
    for node in unit.tree.all(ast.Call):
        dotted = unit.resolve(node.func) or ""
        row = unit.book.find(dotted) if dotted.startswith(HEAD) else None
        if row is None or row.get("kind") != "Scheduler" or row.get("unmapped"):
            continue
        try:
            found.append(_read(plan, optimizers, steps, node, dotted))
        except NotPlain as problem:
            plan.taken |= {node, node.func}
            plan.found(
                "JM208",
                node,
                dotted,
                f"{dotted.removeprefix('torch.optim.')}: {problem}",
                advice="Use an optax schedule as the learning rate.",
            )
    drivers = [s.made for s in found]
    if len({id(m) for m in drivers}) != len(drivers):
        for schedule in found:
            plan.taken |= {schedule.call, schedule.call.func}
            plan.found("JM208", schedule.call, schedule.dotted, "several schedulers drive one optimizer")
        return []
    return found


def _read(plan: Plan, optimizers: Optimizers, steps: Sequence[Update], call: ast.Call, dotted: str) -> Schedule:
    unit = plan.unit
    row = unit.book.find(dotted)
    assert row is not None and row.signature is not None
    stmt = unit.tree.parents[call]
    if (
        not isinstance(stmt, ast.Assign)
        or len(stmt.targets) != 1
        or not isinstance(stmt.targets[0], ast.Name)
        or not plan.alone(stmt)
    ):
        raise NotPlain("it is not assigned to a name")
    target = stmt.targets[0]
    arguments = bind(row.signature, call)
    if isinstance(arguments, Mismatch):
        raise NotPlain("its arguments are not understood")
    driven = arguments.named.pop("optimizer")
    made = optimizers.of(driven)
    if made is None or made.problem or not isinstance(driven, ast.Name) or made.found is None:
        raise NotPlain("its optimizer is not made here, or not converted")
    scope = unit.scope(target)
    if scope is not unit.scope(driven) or scope.node is not made.key[0]:
        raise NotPlain("its optimizer is made in another function")
    if len(scope.bindings[target.id]) != 1 or len(scope.bindings[driven.id]) != 1:
        raise NotPlain("it, or its optimizer, is assigned more than once")
    lr_names = uses(made.lr).reads if isinstance(made.lr, ast.expr) else set()
    if any(len(scope.bindings.get(n, ())) > 1 for n in lr_names) or any(
        isinstance(n, ast.Call) for n in ast.walk(call.func)
    ):
        raise NotPlain("the learning rate's name is assigned again")
    found = choose(row, row.signature, arguments, unit)
    if isinstance(found, Refusal):
        raise NotPlain(f"{found.message} {found.advice}".strip())
    stepping, reads = _uses(plan, target, driven)
    return Schedule(
        call, stmt, target.id, dotted, made, found, stepping, reads, _per_step(plan, made, stepping, reads, steps, stmt)
    )


def _uses(plan: Plan, target: ast.Name, driven: ast.Name) -> tuple[tuple[ast.Expr, ...], tuple[ast.expr, ...]]:
    """The statements `scheduler.step()` and the reads of the rate. Raises NotPlain for any other use."""
    unit = plan.unit
    scope = unit.scope(target)
    stepping: list[ast.Expr] = []
    reads: list[ast.expr] = []
    for node in unit.tree.all(ast.Name):
        if not isinstance(node.ctx, ast.Load) or unit.scope(node).lookup(node.id) is not scope:
            continue
        if node.id == driven.id and (read := _group_rate(unit.tree.parents, node)) is not None:
            reads.append(read)
        if node.id != target.id:
            continue
        stmt = unit.tree.statement(node)
        call = method_call(stmt, "step")
        attribute = unit.tree.parents[node]
        if unit.scope(node) is not scope:
            raise NotPlain("it is used in another function")
        if call is not None and call.func is attribute:
            if call.args or call.keywords:
                raise NotPlain("step() is given an argument")
            assert isinstance(stmt, ast.Expr)
            stepping.append(stmt)
        elif isinstance(attribute, ast.Attribute) and attribute.attr == "get_last_lr":
            reads.append(_last_rate(unit.tree.parents, attribute))
        else:
            raise NotPlain(f"`{ast.unparse(stmt).splitlines()[0][:60]}` uses it otherwise")
    return tuple(stepping), tuple(reads)


def _last_rate(parents: dict[ast.AST, ast.AST], attribute: ast.Attribute) -> ast.expr:
    """The expression `scheduler.get_last_lr()[0]`."""
    call = parents[attribute]
    item = parents.get(call)
    if isinstance(call, ast.Call) and isinstance(item, ast.Subscript) and item.value is call:
        if isinstance(item.slice, ast.Constant) and item.slice.value == 0:
            return item
    raise NotPlain("get_last_lr() is not read as get_last_lr()[0]")


def _group_rate(parents: dict[ast.AST, ast.AST], node: ast.Name) -> ast.expr | None:
    """The expression `optimizer.param_groups[0]["lr"]`, read."""
    groups = parents[node]
    first = parents.get(groups)
    rate = parents.get(first) if first is not None else None
    if not (isinstance(groups, ast.Attribute) and groups.attr == "param_groups"):
        return None
    if isinstance(first, ast.Subscript) and isinstance(rate, ast.Subscript) and isinstance(rate.ctx, ast.Load):
        if isinstance(first.slice, ast.Constant) and first.slice.value == 0 and isinstance(rate.slice, ast.Constant):
            return rate if rate.slice.value == "lr" else None
    return None


def _per_step(
    plan: Plan,
    made: OptimizerCall,
    stepping: Sequence[ast.Expr],
    reads: Sequence[ast.expr],
    steps: Sequence[Update],
    stmt: ast.Assign,
) -> bool:
    """Whether a scheduler step follows each optimizer step in the same block, and nothing asks for the rate."""
    parents = plan.unit.tree.parents
    mine = [s for s in steps if s.made is made]
    if reads or not mine or len(mine) != len(stepping):
        return False
    construction = parents[made.call]
    if not isinstance(construction, ast.Assign) or construction not in (block := block_of(stmt, parents)):
        return False
    between = block[block.index(construction) + 1 : block.index(stmt)]
    if (
        block.index(construction) > block.index(stmt)
        or made.target in uses(between).reads
        or not _bare_line(plan, construction)
    ):
        return False
    for step in mine:
        place = step.block.index(step.stmt)
        after = [s for s in step.block[place + 1 :] if s in stepping]
        if len(after) != 1 or any(
            isinstance(n, (ast.Continue, ast.Break, ast.Return))
            for s in step.block[place : step.block.index(after[0])]
            for n in ast.walk(s)
        ):
            return False
    return True


def _bare_line(plan: Plan, stmt: ast.stmt) -> bool:
    """Whether the statement can move without leaving a comment behind."""
    return (
        plan.alone(stmt)
        and plan.alone_to_end(stmt)
        and not plan.unit.tree.comments_in(plan.unit.tree.start(stmt), plan.unit.tree.end(stmt))
    )
