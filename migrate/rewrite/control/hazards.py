"""What runs eagerly as torch does but fails, or is slow, once `jax.jit` traces it: one finding a construct."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...read.scopes import COMPREHENSIONS
from ...read.source import hidden
from ..indexing import index_parts
from ..plan import Plan
from .truth import asks_itself, is_mask, tested

TRUTH = "torch.Tensor.__bool__"
ADVICE = {
    "if": "For jit: jnp.where(test, a, b) for values, jax.lax.cond(test, f, g, x) for whole branches.",
    "return": "For jit: compute both results and return jnp.where(test, a, b) or jax.lax.cond(test, f, g, x).",
    "raise": "For jit: check before the jitted function, or with jax.experimental.checkify.",
    "while": "For jit: jax.lax.while_loop(test, body, state); it has no reverse-mode gradient.",
    "ternary": "For jit: jnp.where(test, a, b), or jax.lax.cond when one side must not be computed.",
    "logic": "For jit: jnp.logical_and, jnp.logical_or, jnp.logical_not; `is None` to ask for a default.",
    "filter": "For jit: keep all elements and a mask, and choose with jnp.where.",
    "in": "For jit: jnp.any(x == value).",
    "chain": "For jit: (low < x) & (x < high).",
    "max": "For jit: jnp.maximum(a, b), or jnp.max of an array.",
    "min": "For jit: jnp.minimum(a, b), or jnp.min of an array.",
    "sorted": "For jit: jnp.sort(x).",
    "any": "For jit: jnp.any of an array.",
    "all": "For jit: jnp.all of an array.",
    "range": "For jit: jax.lax.fori_loop(0, n, body, state).",
    "mask": "For jit: jnp.where(mask, x, fill) keeps the shape; for a sum or mean pass where=mask.",
    "stack": "For jit: jax.lax.scan(body, state, xs) compiles the body once and stacks what it returns.",
}


def plan_hazards(plan: Plan) -> None:
    """Report control flow on tensor values, masks that decide a shape, and loops that jit unrolls."""
    told = {node for node, finding in plan.nodes if finding.code == "JM141"}
    asked: set[ast.AST] = set()  # conditions that the finding about a larger construct speaks of
    for node in plan.unit.tree.nodes:
        if hidden(node) or node in asked or node in plan.settled:
            continue
        for kind, what, conditions in _constructs(plan, node):
            asked.update(_inside(plan, conditions))
            if not told.intersection(n for c in conditions for n in plan.unit.tree.walk(c)):
                _report(plan, node, kind, what)
        if isinstance(node, ast.Subscript):
            _mask(plan, node)
        elif isinstance(node, ast.For):
            _stacked(plan, node)


def _constructs(plan: Plan, node: ast.AST) -> Iterator[tuple[str, str, list[ast.expr]]]:
    """What is to say about a node: the kind of construct, how to name it, and the conditions that it asks."""
    unit = plan.unit
    if isinstance(node, (ast.If, ast.While, ast.Assert, ast.IfExp)):
        if any(tested(unit, node.test)):
            yield *_named(node), [node.test]
    elif isinstance(node, COMPREHENSIONS):
        filters = [test for g in node.generators for test in g.ifs]
        if any(True for test in filters for _ in tested(unit, test)):
            yield "filter", "the filter of a comprehension", filters
    elif isinstance(node, (ast.BoolOp, ast.UnaryOp)):
        values = node.values if isinstance(node, ast.BoolOp) else [node.operand]
        if isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.Not):
            return
        last = len(values) - 1 if isinstance(node, ast.BoolOp) else 1
        if any(True for value in values[:last] for _ in tested(unit, value)):
            word = "not" if isinstance(node, ast.UnaryOp) else "and" if isinstance(node.op, ast.And) else "or"
            yield "logic", f"`{word}`", list(values)
    elif isinstance(node, ast.Compare):
        how = asks_itself(unit, node)
        if how:
            yield how, "`in`" if how == "in" else "a chained comparison", [node]
    elif isinstance(node, ast.Call):
        yield from _calls(plan, node)


def _calls(plan: Plan, node: ast.Call) -> Iterator[tuple[str, str, list[ast.expr]]]:
    unit = plan.unit
    name = (unit.resolve(node.func) or "").removeprefix("builtins.")
    how = asks_itself(unit, node)
    if how:
        yield how, f"`{how}()`", [node]
    elif name == "bool" and len(node.args) == 1 and any(tested(unit, node.args[0])):
        yield "logic", "`bool()`", [node.args[0]]
    elif name == "range" and any(unit.kind(a).is_tensor for a in node.args):
        yield "range", "`range()`", []


def _named(node: ast.If | ast.While | ast.Assert | ast.IfExp) -> tuple[str, str]:
    if isinstance(node, ast.IfExp):
        return "ternary", "a conditional expression"
    if isinstance(node, ast.While):
        return "while", "`while`"
    if isinstance(node, ast.Assert):
        return "raise", "`assert`"
    body = [*node.body, *node.orelse]
    if any(isinstance(s, ast.Raise) for s in body):
        return "raise", "`if`"
    return ("return" if any(isinstance(s, ast.Return) for s in body) else "if"), "`if`"


def _inside(plan: Plan, conditions: list[ast.expr]) -> Iterator[ast.AST]:
    """The conditions with the conditions that they are made of."""
    for node in conditions:
        yield node
        if isinstance(node, ast.BoolOp):
            yield from _inside(plan, node.values)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield from _inside(plan, [node.operand])
        elif isinstance(node, ast.Call) and plan.unit.resolve(node.func) == "builtins.bool":
            yield from _inside(plan, node.args)


def _report(plan: Plan, node: ast.AST, kind: str, what: str) -> None:
    place = node.test if isinstance(node, (ast.If, ast.While)) else node
    plan.found(
        "JM141", place, TRUTH, f"{what} reads the value of a tensor: eagerly as in torch, not under jit",
        advice=ADVICE[kind], rule=f"control flow: {kind}",
    )  # fmt: skip


def _mask(plan: Plan, node: ast.Subscript) -> None:
    """`x[mask]`: as long as the mask has true elements."""
    unit = plan.unit
    if not isinstance(node.ctx, ast.Load) or node in plan.taken or not unit.kind(node.value).is_tensor:
        return
    if not any(is_mask(unit, part) for part in index_parts(node.slice)):
        return
    message = "a boolean mask decides the size of the result: eagerly as in torch, not under jit"
    if any(about is node for about, _ in plan.nodes):
        plan.restate(node, "JM141", message, ADVICE["mask"])
    else:
        plan.found("JM141", node, "torch.Tensor.__getitem__", message, advice=ADVICE["mask"], rule="boolean mask")


def _stacked(plan: Plan, node: ast.For) -> None:
    """`for …: xs.append(t)` and `torch.stack(xs)` after it: right under jit too, but compiled once a turn."""
    unit = plan.unit
    if isinstance(node.iter, (ast.List, ast.Tuple)) or unit.kind(node.iter).tag in ("Module", "Loader"):
        return
    home = unit.tree.function(node) or unit.tree.root
    stacked = {
        n.args[0].id
        for n in unit.tree.walk(home)
        if isinstance(n, ast.Call) and n.args and isinstance(n.args[0], ast.Name)
        if unit.resolve(n.func) in ("torch.stack", "torch.cat")
    }
    for stmt in node.body:
        call = stmt.value if isinstance(stmt, ast.Expr) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "append":
            owner = call.func.value
            if isinstance(owner, ast.Name) and owner.id in stacked and call.args and unit.kind(call.args[0]).is_tensor:
                plan.found(
                    "JM143", stmt, "torch.stack", f"`{owner.id}` grows in a loop and is stacked: jit unrolls the loop",
                    advice=ADVICE["stack"], rule="control flow: stack",
                )  # fmt: skip
                return
