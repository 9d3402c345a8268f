"""Code that expects to fail on what is no tensor."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .unit import Unit

_ERRORS = frozenset({"builtins.AttributeError", "builtins.TypeError"})
_GENERAL = frozenset({"builtins.Exception", "builtins.BaseException"})


def is_caught(node: ast.AST, unit: Unit, general: bool = False) -> bool:
    """Whether the code expects that `node` fails on what is no tensor: it stands in a `try` that catches that, or under
    `contextlib.suppress`. JAX accepts numbers where torch has no method, so the handler would be passed by. With
    `general`, handlers of all exceptions count: code often has those for other reasons."""
    wanted = _ERRORS | _GENERAL if general else _ERRORS
    child: ast.AST = node
    for up in unit.tree.ancestors(node):
        if isinstance(up, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            return False
        if isinstance(up, ast.Try) and child in up.body:
            if any(_catches(h.type, wanted, unit) or (general and h.type is None) for h in up.handlers):
                return True
        if isinstance(up, (ast.With, ast.AsyncWith)) and child in up.body:
            opened = [i.context_expr for i in up.items if isinstance(i.context_expr, ast.Call)]
            if any((unit.resolve(c.func) or "").rpartition(".")[2] in ("suppress", "raises") for c in opened):
                return True
        child = up
    return False


def _catches(caught: ast.expr | None, wanted: frozenset[str], unit: Unit) -> bool:
    types = caught.elts if isinstance(caught, ast.Tuple) else [caught] if caught is not None else []
    return any((unit.resolve(t) or "") in wanted for t in types)
