"""`when` conditions of rows: a small, closed language over a call's arguments."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b, ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}  # fmt: skip


@cache
def parse(text: str) -> ast.expr:
    """The condition's tree. Raises SyntaxError."""
    return ast.parse(text, mode="eval").body


def holds(text: str, ask: Callable[[str, str], Any]) -> bool:
    """Whether the condition holds. `ask("kind", "p")` answers `kind(p)`. Raises ValueError."""
    return bool(_value(parse(text), ask))


def _value(node: ast.expr, ask: Callable[[str, str], Any]) -> Any:
    if isinstance(node, ast.BoolOp):
        values = (_value(v, ask) for v in node.values)
        return all(values) if isinstance(node.op, ast.And) else any(values)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return not _value(node.operand, ask)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, ask)
    if isinstance(node, ast.Compare):
        left = _value(node.left, ask)
        for op, comparator in zip(node.ops, node.comparators, strict=True):
            right = _value(comparator, ask)
            try:
                if not _COMPARE[type(op)](left, right):
                    return False
            except TypeError:
                return False
            left = right
        return True
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.args
        and isinstance(node.args[0], ast.Name)
    ):
        return ask(node.func.id, node.args[0].id)
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return tuple(_value(e, ask) for e in node.elts)
    raise ValueError(f"not a condition: {ast.unparse(node)}")
