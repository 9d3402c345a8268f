"""Gradients that are kept: torch changes a kept `x.grad` when it adds to it, clips it or sets it to zero in place."""

from __future__ import annotations

import ast
from collections.abc import Collection

from ...read.unit import Unit
from .optimizers import SHARING
from .roles import NotPlain

_ADDING = ("append", "extend", "insert", "add", "setdefault", "update")


def check_held(unit: Unit, reads: Collection[ast.Attribute], changes: Collection[ast.AST]) -> None:
    """Raise NotPlain when one of the gradients is kept, and read once a statement of `changes` has changed it."""
    if not changes:
        return
    first = min(unit.tree.start(c) for c in changes)
    for node in reads:
        holder = _holder(unit, node)
        if holder is None:
            continue
        if not isinstance(holder, ast.Name) or _read_later(unit, holder, first):
            raise NotPlain(f"`{ast.unparse(node)}` is kept, and changes later")


def _holder(unit: Unit, read: ast.expr) -> ast.AST | None:
    """What keeps a gradient: the name that it is assigned to, or something else; None when nothing does."""
    node: ast.AST = read
    up = unit.tree.parents[node]
    while True:
        if isinstance(up, ast.Attribute) and up.attr not in SHARING:
            return None
        shares = isinstance(up, (ast.Attribute, ast.Subscript)) or (isinstance(up, ast.Call) and up.func is node)
        if not shares or (isinstance(up, ast.Subscript) and up.value is not node):
            break
        node, up = up, unit.tree.parents[up]
    if isinstance(up, ast.Assign):
        target = up.targets[0] if len(up.targets) == 1 else up
        return target if isinstance(target, (ast.Name, ast.Attribute, ast.Subscript)) else up
    if isinstance(up, ast.Call):
        return up if isinstance(up.func, ast.Attribute) and up.func.attr in _ADDING else None
    kept = (
        ast.NamedExpr,
        ast.List,
        ast.Tuple,
        ast.Dict,
        ast.Set,
        ast.Yield,
        ast.ListComp,
        ast.GeneratorExp,
        ast.DictComp,
    )
    return up if isinstance(up, kept) and not _consumed(unit, up) else None


def _consumed(unit: Unit, node: ast.AST) -> bool:
    """Whether a list of gradients is only an argument of one of torch's functions."""
    up = unit.tree.parents.get(node)
    return isinstance(up, ast.Call) and (unit.resolve(up.func) or "").startswith(("torch.", "builtins."))


def _read_later(unit: Unit, name: ast.Name, changed: int) -> bool:
    """Whether a name is read behind a place, or above its own assignment (in the next turn of a loop)."""
    tree, scope = unit.tree, unit.scope(name)
    for node in tree.all(ast.Name):
        if node.id == name.id and isinstance(node.ctx, ast.Load) and unit.scope(node).lookup(name.id) is scope:
            if tree.start(node) > changed or tree.start(node) < tree.start(name):
                return True
    return False
