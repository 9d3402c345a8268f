"""Loops over parameters that write to each: weight clipping, moving averages, updates by hand under no_grad."""

from __future__ import annotations

import ast
import copy

from ..plan import Plan

_NAME = "torch.Tensor.data"


def plan_sweeps(plan: Plan) -> None:
    """`for p in model.parameters(): p.data.clamp_(-c, c)` writes `p[...] = jnp.clip(p[...], -c, c)`."""
    for loop in plan.unit.tree.all(ast.For):
        names = _walked(loop)
        if not names or len(loop.body) != 1 or loop.orelse or not plan.alone(loop.body[0]):
            continue
        stmt = loop.body[0]
        found = written(stmt, names)
        if (
            found is None
            or stmt in plan.lines
            or any(n in plan.taken for n in ast.walk(stmt) if isinstance(n, ast.expr))
        ):
            continue
        name, text = found
        plan.taken |= set(ast.walk(stmt))
        plan.lines[stmt] = lambda _, name=name, text=text: [f"{name}[...] = {text}"]  # type: ignore[misc]
        plan.found("JM002", stmt, _NAME, "the variable gets its new value")


def _walked(loop: ast.For) -> list[str]:
    """The names that walk over parameters: of `m.parameters()`, or of zip of such calls."""
    iterable = loop.iter
    calls = iterable.args if isinstance(iterable, ast.Call) and ast.unparse(iterable.func) == "zip" else [iterable]
    targets = loop.target.elts if isinstance(loop.target, ast.Tuple) and len(calls) > 1 else [loop.target]
    if len(targets) != len(calls) or not all(_is_parameters(c) for c in calls):
        return []
    names = [t.id for t in targets if isinstance(t, ast.Name)]
    return names if len(names) == len(calls) else []


def _is_parameters(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "parameters"
        and not node.args
        and not node.keywords
    )


def written(stmt: ast.stmt, names: list[str]) -> tuple[str, str] | None:
    """(name, new value) of a statement that writes to one of the names; None when it is not understood."""
    if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 and (name := _data(stmt.targets[0], names)):
        value = _value(stmt.value, names)
        return (name, ast.unparse(value)) if value is not None and isinstance(stmt.targets[0], ast.Attribute) else None
    if isinstance(stmt, ast.AugAssign) and (name := _data(stmt.target, names)):
        value = _value(stmt.value, names)
        return (name, ast.unparse(ast.BinOp(_whole(name), stmt.op, value))) if value is not None else None
    if not isinstance(stmt, ast.Expr) or not isinstance(stmt.value, ast.Call):
        return None
    calls: list[ast.Call] = []
    node: ast.expr = stmt.value
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        calls.insert(0, node)
        node = node.func.value
    owner = _data(node, names)
    current: ast.expr | None = _whole(owner) if owner else None
    for call in calls:
        current = _applied(current, call, names) if current is not None else None
    return (owner, ast.unparse(current)) if current is not None else None


def _data(node: ast.expr, names: list[str]) -> str:
    """`p` of `p` and `p.data`."""
    base = node.value if isinstance(node, ast.Attribute) and node.attr == "data" else node
    return base.id if isinstance(base, ast.Name) and base.id in names else ""


def _whole(name: str) -> ast.Subscript:
    return ast.Subscript(ast.Name(name, ast.Load()), ast.Constant(...), ast.Load())


_ALLOWED = (ast.Constant, ast.Name, ast.Attribute, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.expr_context)


def _value(node: ast.expr, names: list[str]) -> ast.expr | None:
    """An operand with the parameters' values in it; None when it calls something or reads a gradient."""
    for part in ast.walk(node):
        if not isinstance(part, _ALLOWED) or (isinstance(part, ast.Attribute) and part.attr in ("grad", "T", "shape")):
            return None

    class Values(ast.NodeTransformer):
        def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
            return _whole(name) if (name := _data(node, names)) else node

        def visit_Name(self, node: ast.Name) -> ast.AST:
            return _whole(node.id) if node.id in names else node

    return Values().visit(copy.deepcopy(node))  # type: ignore[no-any-return]


def _applied(current: ast.expr, call: ast.Call, names: list[str]) -> ast.expr | None:
    """The value after an in-place method."""
    assert isinstance(call.func, ast.Attribute)
    values = [_value(a, names) for a in call.args]
    given = {k.arg: _value(k.value, names) for k in call.keywords}
    if None in values or None in given.values():
        return None
    args = [v for v in values if v is not None]
    name = call.func.attr
    if name in ("add_", "sub_") and len(args) == 1 and set(given) <= {"alpha"}:
        alpha = given.get("alpha")
        term = ast.BinOp(alpha, ast.Mult(), args[0]) if alpha is not None else args[0]
        return ast.BinOp(current, ast.Add() if name == "add_" else ast.Sub(), term)
    if name in ("mul_", "div_") and len(args) == 1 and not given:
        return ast.BinOp(current, ast.Mult() if name == "mul_" else ast.Div(), args[0])
    if name == "copy_" and len(args) == 1 and not given:
        return args[0]
    if name == "lerp_" and len(args) == 2 and not given:
        return ast.BinOp(current, ast.Add(), ast.BinOp(args[1], ast.Mult(), ast.BinOp(args[0], ast.Sub(), current)))
    if name == "clamp_" and len(args) + len(given) == 2 and set(given) <= {"min", "max"}:
        limits = [*args, *(given[k] for k in ("min", "max") if k in given)]
        clip = ast.Attribute(ast.Name("jnp", ast.Load()), "clip", ast.Load())
        return ast.Call(clip, [current, *limits], [])  # type: ignore[list-item]
    return None
