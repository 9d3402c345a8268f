"""Code that expects to fail on what is no tensor."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .unit import Unit

_CATCHING = frozenset(
    f"builtins.{name}" for name in ("AttributeError", "TypeError", "Exception", "BaseException", "NotImplementedError")
)


def is_caught(node: ast.AST, unit: Unit) -> bool:
    """Whether the code expects that `node` fails on what is no tensor: it stands in a `try` that catches that, or under
    `contextlib.suppress`. JAX accepts numbers where torch has no method, so the handler would be passed by."""
    child: ast.AST = node
    for up in unit.tree.ancestors(node):
        if isinstance(up, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            return False
        if isinstance(up, ast.Try) and child in up.body and any(_catches(h, unit) for h in up.handlers):
            return True
        if isinstance(up, (ast.With, ast.AsyncWith)) and child in up.body:
            opened = [i.context_expr for i in up.items if isinstance(i.context_expr, ast.Call)]
            if any((unit.resolve(c.func) or "").rpartition(".")[2] in ("suppress", "raises") for c in opened):
                return True
        child = up
    return False


def _catches(handler: ast.ExceptHandler, unit: Unit) -> bool:
    if handler.type is None:
        return True
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any((unit.resolve(t) or "") in _CATCHING or unit.resolve(t) is None for t in types)
