"""Parameters that are not trained: `p.requires_grad = False`, `module.requires_grad_(False)`."""

from __future__ import annotations

import ast

from ..plan import Plan

_STATED = "the parameter becomes Frozen: nnx.grad and nnx.Optimizer, which ask for nnx.Param, leave it out"


def plan_freezing(plan: Plan) -> None:
    """Decide each statement that switches training off for a Variable or a whole module of known kind."""
    tree = plan.unit.tree
    for stmt in tree.all(ast.Assign):
        target = stmt.targets[0]
        if len(stmt.targets) == 1 and isinstance(target, ast.Attribute) and target.attr == "requires_grad":
            if _is_false(stmt.value) and plan.unit.kind(target.value).tag == "Variable":
                _freeze(plan, stmt, target, target.value)
    for call in tree.all(ast.Call):
        func, line = call.func, tree.parents.get(call)
        off = len(call.args) + len(call.keywords) == 1 and _is_false((*call.args, *(k.value for k in call.keywords))[0])
        if isinstance(func, ast.Attribute) and func.attr == "requires_grad_" and isinstance(line, ast.Expr) and off:
            kind = plan.unit.kind(func.value)
            if kind.tag == "Variable" or (kind.tag == "Module" and kind.name not in ("plain", "super")):
                _freeze(plan, line, call, func.value)


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def _freeze(plan: Plan, stmt: ast.stmt, node: ast.AST, what: ast.expr) -> None:
    tree = plan.unit.tree
    if not plan.alone_to_end(stmt) and tree.comments_in(tree.start(stmt), tree.end(stmt)):
        return
    plan.taken.update((node, getattr(node, "func", node)))
    plan.taken.update(tree.walk(what))
    spelled = plan.layer("freeze")
    plan.lines[stmt] = lambda _: [f"{spelled}({tree.segment(what)})"]
    plan.found("JM101", node, "torch.Tensor.requires_grad", _STATED)
