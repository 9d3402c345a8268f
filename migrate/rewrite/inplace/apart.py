"""Whether a call that writes can run in front of the statement that it is part of."""

from __future__ import annotations

import ast

from .locate import Locator
from .places import Place

SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return, ast.Assert)


def apart(locator: Locator, stmt: ast.stmt, call: ast.Call, place: Place) -> bool:
    """Whether running `call` before the rest of its statement changes nothing: nothing there reads what it writes."""
    unit = locator.unit
    if not isinstance(stmt, SIMPLE):
        return False
    inside = {id(n) for n in ast.walk(call)}
    memory = locator.aliases.reached(stmt, place.base)
    for node in unit.tree.walk(stmt):
        if id(node) in inside or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)):
            continue
        if isinstance(node, (ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await)):
            return False
        if isinstance(node, ast.Call) and call not in ast.walk(node):
            dotted = unit.resolve(node.func) or ""
            method = isinstance(node.func, ast.Attribute) and unit.kind(node.func.value).is_tensor
            if not (dotted.startswith(("torch.", "builtins.", "math.")) or method):
                return False
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
            if locator.aliases.reached(stmt, node) & memory:
                return False
    return True
