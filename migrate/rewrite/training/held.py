"""Gradients that are kept: torch changes a kept `x.grad` when it adds to it, clips it or sets it to zero in place."""

from __future__ import annotations

import ast
from collections.abc import Collection

from ...read.alias import Aliases
from ...read.unit import Unit
from ...read.views import is_view
from .callees import called
from .roles import NotPlain

ADDING = ("append", "extend", "insert", "add", "setdefault", "update")
_HOLDING = ("list", "tuple", "dict", "set", "zip", "enumerate", "reversed", "iter", "next")


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


def shared(unit: Unit, node: ast.AST) -> tuple[ast.AST, ast.AST]:
    """The outermost expression around a tensor that may be its memory too (`x.view(-1)`, `torch.flatten(x)`), and what
    that stands in."""
    up = unit.tree.parents[node]
    while _passes(unit, up, node):
        node, up = up, unit.tree.parents[up]
    return node, up


def _passes(unit: Unit, up: ast.AST, node: ast.AST) -> bool:
    """Whether `up` may give the memory of its part `node`."""
    if isinstance(up, ast.Attribute):
        return is_view(up.attr)
    if isinstance(up, ast.Subscript):
        return up.value is node
    if isinstance(up, ast.IfExp):
        return up.test is not node
    if isinstance(up, ast.Call) and up.func is not node:
        found = called(unit, up)
        facts = found[1].functions.get(found[0]) if found is not None else None
        if facts is not None:
            return bool(Aliases(unit).summary(facts).returned)
        head, _, name = (unit.resolve(up.func) or "").rpartition(".")
        return name in _HOLDING if head == "builtins" else bool(head) and is_view(name)
    return isinstance(up, (ast.Call, ast.BoolOp, ast.keyword, ast.Starred))


def _holder(unit: Unit, read: ast.expr) -> ast.AST | None:
    """What keeps a gradient: the name that it is assigned to, or something else; None when nothing does."""
    _, up = shared(unit, read)
    if isinstance(up, ast.Assign):
        target = up.targets[0] if len(up.targets) == 1 else up
        return target if isinstance(target, (ast.Name, ast.Attribute, ast.Subscript)) else up
    if isinstance(up, ast.AnnAssign):
        return up.target
    if isinstance(up, ast.Call):
        return up if isinstance(up.func, ast.Attribute) and up.func.attr in ADDING else None
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
