"""Statements and expressions about `.grad` and `.requires_grad`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...read.unit import Unit
from .callees import is_backward
from .flow import block_of


def marks(stmt: ast.stmt) -> str:
    """`x` of the statements `x.requires_grad_()`, `x.requires_grad = True`, `x.retain_grad()`; "" for any other."""
    if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1:
        target, value = stmt.targets[0], stmt.value
        given = isinstance(value, ast.Constant) and value.value is True
        return ast.unparse(target.value) if is_mark(target) and given and isinstance(target, ast.Attribute) else ""
    call = stmt.value if isinstance(stmt, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and is_mark(call.func) and marks_true(call):
        return ast.unparse(call.func.value)
    return ""


def is_mark(node: ast.AST) -> bool:
    """An attribute that says whether a tensor gets a gradient."""
    return isinstance(node, ast.Attribute) and node.attr in ("requires_grad_", "requires_grad", "retain_grad")


def marks_true(call: ast.Call) -> bool:
    """`requires_grad_()` or `requires_grad_(True)`."""
    values = [*call.args, *(k.value for k in call.keywords)]
    return all(isinstance(v, ast.Constant) and v.value is True for v in values)


def gradient_nodes(unit: Unit, function: ast.AST) -> Iterator[ast.Attribute]:
    """The expressions `x.grad` of a function."""
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and node.attr == "grad" and unit.resolve(node) is None:
            yield node


def clears(stmt: ast.stmt) -> ast.expr | None:
    """`x` of a statement that sets x.grad to zero or None, also where one is asked for first; None for any other."""
    if isinstance(stmt, ast.If) and len(stmt.body) == 1 and not stmt.orelse:
        owner = clears(stmt.body[0])
        asked = ast.unparse(stmt.test).removesuffix(" is not None")
        return owner if owner is not None and asked == f"{ast.unparse(owner)}.grad" else None
    if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 and isinstance(stmt.value, ast.Constant):
        target = stmt.targets[0]
        if isinstance(target, ast.Attribute) and target.attr == "grad" and stmt.value.value is None:
            return target.value
    call = stmt.value if isinstance(stmt, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.args or call.keywords:
        return None
    owner = call.func.value
    while isinstance(owner, ast.Attribute) and owner.attr == "data":
        owner = owner.value
    found = isinstance(owner, ast.Attribute) and owner.attr == "grad" and call.func.attr == "zero_"
    return owner.value if found and isinstance(owner, ast.Attribute) else None


def zeroes(stmt: ast.stmt) -> bool:
    """Whether a statement sets a gradient to zero in place, not to None."""
    return any(isinstance(n, ast.Attribute) and n.attr == "zero_" for n in ast.walk(stmt))


def keeps_tensors(stmt: ast.stmt) -> bool:
    """Whether `zero_grad(set_to_none=…)` sets to zero in place."""
    given = [k.value for n in ast.walk(stmt) if isinstance(n, ast.Call) for k in n.keywords if k.arg == "set_to_none"]
    given += [a for n in ast.walk(stmt) if isinstance(n, ast.Call) for a in n.args]
    return any(not (isinstance(v, ast.Constant) and v.value is True) for v in given)


def backward_before(unit: Unit, node: ast.AST) -> ast.stmt | None:
    """The last backward statement above `node` in its block, or else in a block around it."""
    parents = unit.tree.parents
    for up in [node, *unit.tree.ancestors(node)]:
        if not isinstance(up, ast.stmt):
            continue
        block = block_of(up, parents)
        found = [s for s in block[: block.index(up)] if is_backward(getattr(s, "value", s))]
        if found:
            return found[-1]
        if isinstance(up, (ast.FunctionDef, ast.AsyncFunctionDef)):
            break
    return None
