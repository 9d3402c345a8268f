"""Statements between forward and backward that can follow the gradient: they print, count, or leave the loop."""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence

from ..plan import Plan
from .flow import uses
from .movable import effect, ends_its_line
from .roles import is_model

_HARMLESS = frozenset(
    """
    append extend item tolist numpy cpu detach format join write info debug warning log add_scalar add_scalars update
    set_description set_postfix size dim numel mean sum max min argmax eq float int long view reshape get time
    """.split()  # noqa: SIM905
)
_BUILTINS = frozenset(("print", "len", "round", "float", "int", "str", "format", "range", "max", "min", "abs", "repr"))
_LEAVING = (ast.Continue, ast.Break, ast.Return)


def late(plan: Plan, stmts: Sequence[ast.stmt], chosen: Collection[ast.stmt]) -> tuple[ast.stmt, ...]:
    """Those of `stmts` that act on the world, that the loss does not need (`chosen` are those that it does), and that
    give the same when all others have run before."""
    found: list[ast.stmt] = []
    local = {n for s in stmts for n in uses(s).writes}
    for index in range(len(stmts) - 1, -1, -1):
        stmt = stmts[index]
        if stmt in chosen or not effect(plan, stmt, local):
            continue
        rest = [s for s in stmts[index + 1 :] if s not in found]
        read, written = _names(rest)
        own = uses(stmt)
        touched = {n.id for n in ast.walk(stmt) if isinstance(n, ast.Name)}
        if (own.writes | own.changes) & (read | written) or touched & written or not _harmless(plan, stmt):
            continue
        if any(isinstance(n, _LEAVING) for n in ast.walk(stmt)) and any(_moves(plan, s) for s in rest):
            continue
        found.insert(0, stmt)
    return tuple(found)


def _names(stmts: Sequence[ast.stmt]) -> tuple[set[str], set[str]]:
    found = [uses(s) for s in stmts]
    return {n for u in found for n in u.reads}, {n for u in found for n in u.writes | u.changes}


def _harmless(plan: Plan, stmt: ast.stmt) -> bool:
    """Whether a statement only looks at values, and calls nothing that may change what is trained."""
    if not plan.alone(stmt) or not ends_its_line(plan, stmt):
        return False
    for node in ast.walk(stmt):
        if isinstance(node, (ast.Try, ast.With, ast.Global, ast.Nonlocal, ast.Await, ast.Yield, ast.YieldFrom)):
            return False
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, (ast.Store, ast.Del)):
            return False
        if not isinstance(node, ast.Call):
            continue
        dotted = plan.unit.resolve(node.func) or ""
        if isinstance(node.func, ast.Name):
            if dotted.removeprefix("builtins.") not in _BUILTINS:
                return False
        elif (
            not isinstance(node.func, ast.Attribute)
            or node.func.attr not in _HARMLESS
            or is_model(plan.unit, node.func.value)
            or plan.unit.kind(node.func.value).tag in ("Module", "Optimizer")
        ):
            return False
    return True


def _moves(plan: Plan, stmt: ast.stmt) -> bool:
    """Whether a statement may run a module that keeps something, or draw."""
    for node in ast.walk(stmt):
        if isinstance(node, ast.Call):
            if is_model(plan.unit, node.func):
                return True
            known = plan.unit.kind(node.func).tag == "Module" or plan.unit.resolve(node.func) is not None
            if not known and not isinstance(node.func, ast.Attribute):
                return True
            if node in plan.needs.sites:
                return True
    return False
