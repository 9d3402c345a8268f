"""GradScaler: found by how it is made or used; scaling the loss and the gradients back is left out."""

from __future__ import annotations

import ast

from ...read.unit import Unit
from ..plan import Plan, Whole
from .roles import function_of

NAMES = ("torch.GradScaler", "torch.amp.GradScaler", "torch.cuda.amp.GradScaler", "torch.cpu.amp.GradScaler")
_IDLE = ("unscale_", "update")
_KNOWN = (*_IDLE, "scale", "step")


def scaled(unit: Unit, node: ast.expr) -> ast.expr:
    """`loss` for `scaler.scale(loss)`, the node itself for anything else."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "scale":
        if len(node.args) == 1 and is_scaler(unit, node.func.value):
            return node.args[0]
    return node


def stepped(unit: Unit, call: ast.Call) -> ast.expr | None:
    """The optimizer of `scaler.step(optimizer)`."""
    if isinstance(call.func, ast.Attribute) and call.func.attr == "step" and len(call.args) == 1:
        if is_scaler(unit, call.func.value):
            return call.args[0]
    return None


def is_scaler(unit: Unit, node: ast.expr) -> bool:
    """Made as a GradScaler, or used as one: `.scale(loss).backward()` is called on it in the function."""
    text = ast.unparse(node)
    made = _made(unit, node)
    if made:
        return True
    return any(
        isinstance(n, ast.Call)
        and isinstance(n.func, ast.Attribute)
        and n.func.attr == "unscale_"
        and ast.unparse(n.func.value) == text
        for n in ast.walk(function_of(unit, node))
    ) or _in_chain(unit, node, text)


def _in_chain(unit: Unit, node: ast.expr, text: str) -> bool:
    """`text.scale(…).backward()` and `text.step(…)` and `text.update()`: together only a GradScaler has them."""
    where = function_of(unit, node)
    called = [n.func for n in ast.walk(where) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)]
    own = {f.attr for f in called if ast.unparse(f.value) == text}
    return {"scale", "step", "update"} <= own


def _made(unit: Unit, node: ast.expr) -> bool:
    text = ast.unparse(node)
    where = unit.tree.class_of(node) if text.startswith("self.") else unit.tree.root
    for stmt in ast.walk(where) if where is not None else ():
        if isinstance(stmt, ast.Assign) and any(ast.unparse(t) == text for t in stmt.targets):
            if isinstance(stmt.value, ast.Call) and unit.resolve(stmt.value.func) in NAMES:
                return True
    return False


def plan_scaling(plan: Plan) -> None:
    """Take out what a scaler does beside the loss and the step, and its construction where nothing else uses it."""
    unit = plan.unit
    for node in unit.tree.all(ast.Call):
        if not isinstance(node.func, ast.Attribute) or node in plan.taken:
            continue
        stmt = unit.tree.parents[node]
        if node.func.attr in _IDLE and isinstance(stmt, ast.Expr) and is_scaler(unit, node.func.value):
            plan.taken |= {node, node.func}
            plan.lines[stmt] = lambda _: []
            plan.found("JM002", node, f"torch.GradScaler.{node.func.attr}", "the gradients were not scaled")
        elif node.func.attr == "scale" and node is not scaled(unit, node):
            plan.taken |= {node, node.func}
            inner = scaled(unit, node)
            plan.whole[node] = Whole(lambda w, inner=inner: w.text(inner), 0, (inner,))  # type: ignore[misc]
            plan.found("JM002", node, "torch.GradScaler.scale", "the loss is not scaled")
    for node in unit.tree.all(ast.Call):
        if unit.resolve(node.func) in NAMES and node not in plan.taken:
            _construction(plan, node)


def _construction(plan: Plan, node: ast.Call) -> None:
    stmt = plan.unit.tree.parents[node]
    if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1 or not plan.alone(stmt):
        return
    text = ast.unparse(stmt.targets[0])
    others = [
        n
        for n in plan.unit.tree.parents
        if isinstance(n, (ast.Name, ast.Attribute)) and ast.unparse(n) == text and not _understood(plan, n)
    ]
    if any(n is not stmt.targets[0] for n in others):
        return
    plan.taken |= set(ast.walk(node))
    plan.lines[stmt] = lambda _: []
    plan.found(
        "JM101", node, "torch.GradScaler",
        "gone: float32 and bfloat16 need no loss scaling; torch skips a step whose scaled gradients overflow",
    )  # fmt: skip


def _understood(plan: Plan, node: ast.Name | ast.Attribute) -> bool:
    up = plan.unit.tree.parents[node]
    return isinstance(up, ast.Attribute) and up.attr in _KNOWN
