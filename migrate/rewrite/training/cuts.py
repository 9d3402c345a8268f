"""Values that are cut off from the graph at their outermost call."""

from __future__ import annotations

import ast

from .flow import is_cut


def cuts(value: ast.expr) -> bool:
    """Whether an expression's value has no graph."""
    if is_cut(value):
        return True
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        return value.func.attr in ("detach", "item", "tolist", "size")
    return isinstance(value, ast.Attribute) and value.attr in ("data", "shape", "device", "dtype")
