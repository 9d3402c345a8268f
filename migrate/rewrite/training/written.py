"""Parameters and buffers that a `no_grad` block writes into: their new values carry no gradient of how they came."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..plan import Plan
from .flow import GROWING

_LEAVING = (ast.Return, ast.Break, ast.Continue, ast.Yield, ast.YieldFrom)


def cut_written(plan: Plan, stmt: ast.With) -> bool:
    """Cut the gradient of what the block writes into variables of `self`, after it. A buffer is then a constant; a
    parameter a leaf, whose gradient is that of its new value. False when the block changes anything else."""
    nodes = [n for inner in stmt.body for n in plan.unit.tree.walk(inner)]
    if any(isinstance(n, (*_LEAVING, ast.FunctionDef, ast.Lambda)) for n in nodes):
        return False
    buffers: list[str] = []
    parameters: dict[str, str] = {}
    for target in _changed(nodes):
        base = _base(target)
        if _is_plain(plan, target):
            continue
        kind = plan.unit.kind(base)
        if not isinstance(base, ast.Attribute) or not isinstance(base.value, ast.Name) or kind.tag != "Variable":
            return False
        if kind.why == "register_buffer":
            buffers.append(ast.unparse(base))
        elif kind.why == "a parameter":
            parameters[ast.unparse(base)] = base.attr
        else:
            return False
    if not buffers and not parameters:
        return False
    taken = {n.id for n in plan.unit.tree.all(ast.Name)} | {a.arg for a in plan.unit.tree.all(ast.arg)}
    held = {
        text: next(n for n in (f"old_{name}", f"{name}_before") if n not in taken) for text, name in parameters.items()
    }
    after = plan.after.setdefault(stmt, [])
    for text in dict.fromkeys(buffers):
        after.append(f"{text}[...] = jax.lax.stop_gradient({text}[...])")
    for text, old in held.items():
        plan.before.setdefault(stmt, []).append(f"{old} = {text}[...]")
        after.append(f"{text}[...] = {plan.layer('written_over')}({old}, {text}[...])")
    return True


def _changed(nodes: list[ast.AST]) -> Iterator[ast.expr]:
    """What is assigned to, but for plain names, and what methods that change their receiver are called on."""
    for node in nodes:
        if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, (ast.Store, ast.Del)):
            yield node
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = node.func.attr
            if name in GROWING or (name.endswith("_") and not name.endswith("__")):
                yield node.func.value


def _base(node: ast.expr) -> ast.expr:
    """The variable behind `self.mean[0]`, `self.weight.data` and `self.mean.mul_(0.9)`."""
    while True:
        if isinstance(node, ast.Subscript) or (isinstance(node, ast.Attribute) and node.attr == "data"):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.endswith("_"):
            node = node.func.value
        else:
            return node


def _is_plain(plan: Plan, target: ast.expr) -> bool:
    """Whether a literal is kept in an attribute: `self.ready = True`."""
    stmt = plan.unit.tree.parents.get(target)
    return isinstance(target, ast.Attribute) and isinstance(stmt, ast.Assign) and isinstance(stmt.value, ast.Constant)
