"""`x += y` where nothing shows what x is: if it is a tensor, whoever else holds it sees the write in torch only."""

from __future__ import annotations

import ast

from ...read.alias import Holder
from ...read.aliascalls import HOLDERS
from ...read.kinds import NUMBERS
from ...read.unit import Unit
from ...read.views import is_view
from .context import Context

AUGMENTED = "torch.Tensor.__iadd__"


def unknown_augmented(context: Context, stmt: ast.AugAssign) -> None:
    """Report the statement when its target may be a tensor that something else may hold."""
    target = stmt.target
    if not _may_write(context, stmt):
        return
    holders = _holders(context, stmt)
    if not holders:
        return
    if isinstance(target, ast.Name) and not context.narrow and context.hands_back(stmt, target):
        text = f"if `{target.id}` is a tensor, torch changes the caller's; in JAX the function returns the new value"
        context.refuse(stmt, AUGMENTED, text, "JM161", "Use what it returns: JAX arrays cannot be changed.")
        return
    text = f"nothing shows what `{ast.unparse(target)[:60]}` is: if it is a tensor, {context.text(holders)}"
    context.refuse(stmt, AUGMENTED, text, "JM201", "Annotate the value, or write x = x + y if it is a number.")


def _may_write(context: Context, stmt: ast.AugAssign) -> bool:
    """Whether the target may be a tensor. What starts as a number becomes one when a tensor is added to it."""
    kind, value = context.unit.kind(stmt.target), context.unit.kind(stmt.value)
    if value.tag in ("str", "list", "tuple", "dict", "None") or isinstance(stmt.value, (ast.ListComp, ast.JoinedStr)):
        return False  # torch raises
    if kind.tag in NUMBERS:
        return value.tag not in NUMBERS and _outlives(context, stmt.target)
    return not kind.known or kind.tag == "other"  # what the standard library gives may be what it was given


def _outlives(context: Context, target: ast.expr) -> bool:
    """Whether the target is still there when the statement runs again in another call."""
    if not isinstance(target, ast.Name):
        return True
    scope = context.unit.scope(target)
    return target.id in scope.globals or target.id in scope.nonlocals


def _holders(context: Context, stmt: ast.AugAssign) -> list[Holder]:
    target = stmt.target
    if context.unit.kind(target).tag in NUMBERS:
        return _kept(context, target)
    if isinstance(target, ast.Subscript):
        return context.aliases.holders(stmt, target.value)
    return context.aliases.holders(stmt, target)


def _kept(context: Context, target: ast.expr) -> list[Holder]:
    """Who keeps the value of something that outlives its function."""
    if isinstance(target, ast.Name):
        return [Holder(f"`{target.id}` belongs to the code around this function")]
    if isinstance(target, ast.Subscript):
        return [] if _is_local(context, target.value) else _kept(context, target.value)
    if isinstance(target, ast.Attribute):
        for unit in context.plan.project.units:
            for node in unit.tree.all(ast.Attribute):
                if node.attr == target.attr and isinstance(node.ctx, ast.Load) and _keeps(unit, node):
                    where = "" if unit is context.unit else f"{unit.source.path} "
                    return [Holder(f"`{ast.unparse(node)}` in {where}line {node.lineno} may be kept")]
    return []


def _is_local(context: Context, node: ast.expr) -> bool:
    """Whether a container is made in the function that writes to it: the kinds of its items are followed there."""
    scope = context.unit.scope(node)
    if not isinstance(node, ast.Name) or scope.lookup(node.id) is not scope:
        return False
    return all(b.kind != "param" for b in scope.bindings[node.id])


def _keeps(unit: Unit, node: ast.expr) -> bool:
    """Whether what uses a value may keep it, were it a tensor: arithmetic and printing do not."""
    up = unit.tree.parents.get(node)
    if isinstance(up, (ast.BinOp, ast.Compare, ast.UnaryOp, ast.FormattedValue, ast.If, ast.While, ast.Assert)):
        return False
    if isinstance(up, ast.Attribute):
        return is_view(up.attr)
    if isinstance(up, ast.Subscript):
        return up.value is node and isinstance(up.ctx, ast.Load) and _keeps(unit, up)
    if isinstance(up, ast.Call):
        place, _, name = (unit.resolve(up.func) or "").rpartition(".")
        return up.func is not node and not (place == "math" or (place == "builtins" and name not in HOLDERS))
    return not isinstance(up, (ast.Expr, ast.AugAssign))
