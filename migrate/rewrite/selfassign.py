"""Assignments that have nothing left to do: `x, y = x.to(device), y.to(device)` where JAX needs no `.to`."""

from __future__ import annotations

import ast
from collections.abc import Callable

from .plan import Plan
from .writer import Writer


def plan_self_assignments(plan: Plan) -> None:
    """Drop an assignment that would bind each of its names to itself. Asked last, when every value is decided.

    One in a class body gives the class an attribute.
    """
    for stmt in plan.unit.tree.all(ast.Assign):
        pairs = _pairs(stmt) if plan.unit.scope(stmt).kind != "class" else []
        if pairs and stmt not in plan.lines and plan.alone(stmt) and any(value in plan.whole for _, value in pairs):
            plan.lines[stmt] = _lines(plan, stmt, pairs)


def _pairs(stmt: ast.Assign) -> list[tuple[str, ast.expr]]:
    """Names and their values, when every value is the name itself or a chain of calls on it; else nothing."""
    target, value = stmt.targets[0], stmt.value
    targets, values = [target], [value]
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        targets, values = target.elts, value.elts
    named = [(t.id, v) for t, v in zip(targets, values, strict=True) if isinstance(t, ast.Name) and _root(v) == t.id]
    return named if len(named) == len(targets) and len(stmt.targets) == 1 else []


def _root(node: ast.expr) -> str:
    while isinstance(node, (ast.Call, ast.Attribute)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _lines(plan: Plan, stmt: ast.Assign, pairs: list[tuple[str, ast.expr]]) -> Callable[[Writer], list[str]]:
    def lines(writer: Writer) -> list[str]:
        if all(writer.text(value) == name for name, value in pairs):
            return []
        tree = plan.unit.tree
        return [writer.splice_range(stmt, tree.start(stmt), tree.end(stmt), list(plan.points.get(stmt, ())))]

    return lines
