"""Values that are cut off from the graph at their outermost call."""

from __future__ import annotations

import ast

from ...read.unit import Unit
from .flow import is_cut


def cuts(value: ast.expr) -> bool:
    """Whether an expression's value has no graph."""
    if is_cut(value):
        return True
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        return value.func.attr in ("detach", "item", "tolist", "size")
    return isinstance(value, ast.Attribute) and value.attr in ("data", "shape", "device", "dtype")


def cuts_all(value: ast.expr) -> bool:
    """Whether a value, or each member of what is listed, has no graph."""
    if isinstance(value, (ast.Tuple, ast.List)):
        return bool(value.elts) and all(cuts(v) for v in value.elts)
    if isinstance(value, (ast.Call, ast.Attribute)) and cuts(value):
        return True
    if isinstance(value, ast.Call) and value.args and isinstance(value.args[0], (ast.GeneratorExp, ast.ListComp)):
        return cuts(value.args[0].elt)
    if isinstance(value, ast.DictComp):
        return cuts(value.value)
    return isinstance(value, (ast.ListComp, ast.GeneratorExp)) and cuts(value.elt)


def joined(node: ast.AST) -> list[ast.AST]:
    """The nodes of an expression or statement through which a gradient can pass: not those that are cut off."""
    if isinstance(node, ast.expr) and cuts(node):
        return []
    return [node, *(n for child in ast.iter_child_nodes(node) for n in joined(child))]


def under_no_grad(unit: Unit, stmt: ast.stmt) -> bool:
    """Whether a statement stands under `with torch.no_grad()` in its function."""
    for up in unit.tree.ancestors(stmt):
        if isinstance(up, ast.With):
            for item in up.items:
                called = item.context_expr.func if isinstance(item.context_expr, ast.Call) else item.context_expr
                if unit.resolve(called) in ("torch.no_grad", "torch.inference_mode"):
                    return True
        if isinstance(up, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
    return False
