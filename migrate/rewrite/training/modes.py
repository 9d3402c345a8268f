"""Gradient modes: `no_grad` and its like go; where a gradient could pass, `jax.lax.stop_gradient` cuts it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from ...read.facts import FunctionFacts
from ...read.kinds import Kind
from ...read.liveness import Liveness
from ...read.unit import Unit
from ..decorators import remove_decorator
from ..plan import Plan
from ..writer import Writer
from .flow import uses
from .movable import AUTOCAST
from .roles import function_of
from .steps import Routine
from .text import dedented
from .written import cut_written

OFF = ("torch.no_grad", "torch.inference_mode")
KERNELS = ("torch.nn.attention.sdpa_kernel", "torch.backends.cuda.sdp_kernel")
MODES = (*OFF, *AUTOCAST, *KERNELS, "torch.enable_grad", "torch.set_grad_enabled", "torch.autograd.no_grad")
_FLOAT32 = "everything is computed in float32: autocast is left out, results differ by its rounding"
STOP = "jax.lax.stop_gradient("


def plan_modes(plan: Plan, steps: Sequence[Routine]) -> None:
    """Decide every `with`, decorator and call that sets the gradient mode."""
    unit = plan.unit
    for node in list(unit.tree.parents):
        dotted = _mode(plan, node)
        if not dotted or node in plan.taken:
            continue
        parent = unit.tree.parents[node]
        if isinstance(parent, ast.withitem):
            _block(plan, node, dotted, steps)
        elif isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)) and node in parent.decorator_list:
            _decorator(plan, node, parent, dotted, steps)
        elif isinstance(parent, ast.Expr) and dotted == "torch.set_grad_enabled":
            _statement(plan, node, parent)
        elif dotted in AUTOCAST:
            _held(plan, node, dotted)


def _mode(plan: Plan, node: ast.AST) -> str:
    """The torch name of a gradient mode, when `node` is it: `torch.no_grad()`, or the bare name as a decorator."""
    called = node.func if isinstance(node, ast.Call) else node
    parent = plan.unit.tree.parents.get(node)
    if not isinstance(called, (ast.Name, ast.Attribute)) or (isinstance(parent, ast.Call) and parent.func is node):
        return ""
    if isinstance(parent, ast.Attribute):
        return ""
    dotted = plan.unit.resolve(called) or ""
    return dotted if dotted in MODES else ""


def _turns_off(node: ast.AST, dotted: str) -> bool:
    """Whether the mode stops gradients, as far as its text says; a flag computed at run time may."""
    if dotted == "torch.enable_grad" or dotted in (*AUTOCAST, *KERNELS):
        return False
    flag = (
        next((a for a in [*node.args, *(k.value for k in node.keywords)]), None) if isinstance(node, ast.Call) else None
    )
    if dotted == "torch.set_grad_enabled":
        return not (isinstance(flag, ast.Constant) and flag.value is True)
    return not (isinstance(flag, ast.Constant) and flag.value is False)


def _conditional(node: ast.AST) -> bool:
    """A mode whose flag is not a literal."""
    return isinstance(node, ast.Call) and any(not isinstance(a, ast.Constant) for a in node.args)


def _block(plan: Plan, node: ast.AST, dotted: str, steps: Sequence[Routine]) -> None:
    tree = plan.unit.tree
    item = tree.parents[node]
    stmt = tree.parents[item]
    assert isinstance(item, ast.withitem)
    off = _turns_off(node, dotted)
    needs_stop = off and differentiated(plan, stmt, steps)
    if item.optional_vars is not None or not isinstance(stmt, ast.With):
        return _left(plan, node, dotted, "its value is bound to a name")
    if needs_stop and _conditional(node):
        return _left(plan, node, dotted, "gradients are switched by a value inside a differentiated function")
    _take(plan, node)
    if dotted in (*AUTOCAST, *KERNELS):
        plan.taken |= set(ast.walk(node))
    changed = needs_stop and _stop(plan, stmt, steps)
    if len(stmt.items) > 1:
        _remove_item(plan, stmt, item)
    if all(_is_gone(plan, stmt, i) for i in stmt.items if i is not item):
        plan.lines[stmt] = lambda writer: [_dedented(plan, stmt, writer)]
    if dotted in AUTOCAST:
        _autocast(plan, node, dotted)
    elif dotted in KERNELS:
        plan.found("JM002", node, dotted, "gone: XLA chooses the kernel")
    elif changed == "writes":
        plan.found(
            "JM101",
            node,
            dotted,
            "values written into objects here keep their gradient until the step ends: torch cuts it",
        )
    else:
        extra = "; what leaves it is cut with jax.lax.stop_gradient" if changed else ""
        plan.found("JM002", node, dotted, f"JAX differentiates only what jax.grad is asked for{extra}")
    return None


def _held(plan: Plan, node: ast.AST, dotted: str) -> None:
    """A context of autocast that is kept or chosen (`ctx = autocast("cuda") if fast else nullcontext()`) is none."""
    parent = plan.unit.tree.parents.get(node)
    context = node if isinstance(node, ast.Call) else None
    if isinstance(parent, ast.Call) and parent.args[:1] == [node]:
        context = parent if plan.unit.resolve(parent.func) == "functools.partial" else context
    bound = [b.target for s in plan.unit.scopes.of.values() for b in s.bindings.get("nullcontext", ())]
    if context is None or any(target != "contextlib.nullcontext" for target in bound):
        return
    plan.taken |= set(ast.walk(context))
    plan.replace(context, "nullcontext()" if context is node else "nullcontext", 15)
    _autocast(plan, context, dotted)


def _autocast(plan: Plan, node: ast.AST, dotted: str) -> None:
    """Say what leaving autocast out means: nothing where it is switched off."""
    enabled = next((k.value for k in node.keywords if k.arg == "enabled"), None) if isinstance(node, ast.Call) else None
    if isinstance(enabled, ast.Constant) and enabled.value is False:
        plan.found("JM002", node, dotted, "gone: JAX casts nothing by itself")
        return
    plan.found("JM101", node, dotted, _FLOAT32, advice="For bfloat16 give the layers bfloat16 inputs and weights.")


def _dedented(plan: Plan, stmt: ast.With, writer: Writer) -> str:
    """The body of a `with` at the level of the `with`; a comment on its header line comes first."""
    tree = plan.unit.tree
    header_end = _colon(plan, stmt)
    line_end = tree.text.find("\n", header_end)
    comment = tree.text[header_end:line_end].strip() if line_end >= 0 else ""
    points = plan.points.get(stmt, [])
    first, last = stmt.body[0], stmt.body[-1]
    indent = tree.indent(stmt)
    if tree.position(tree.start(first))[0] == tree.position(tree.start(stmt))[0]:
        return writer.splice_range(stmt, tree.start(first), tree.end(last), points)
    start = line_end + 1
    body = writer.splice_range(stmt, start, tree.end(last), points)
    unit = tree.indent(first).removeprefix(indent)
    text = dedented(body, unit).removeprefix(indent)
    return f"{comment}{tree.newline}{indent}{text}" if comment.startswith("#") else text


def _colon(plan: Plan, stmt: ast.With) -> int:
    """The offset after the colon of a `with` header."""
    tree = plan.unit.tree
    at = max(tree.end(i.optional_vars or i.context_expr) for i in stmt.items)
    return tree.text.index(":", at) + 1


def _remove_item(plan: Plan, stmt: ast.With, item: ast.withitem) -> None:
    """Take one of several items out, with the comma after it, or the one before where it is the last that there is."""
    tree = plan.unit.tree
    index = stmt.items.index(item)
    start, end = tree.start(item.context_expr), tree.end(item.context_expr)
    before = [i for i in stmt.items[:index] if not _is_gone(plan, stmt, i)]
    if any(not _is_gone(plan, stmt, i) for i in stmt.items[index + 1 :]):
        end = tree.start(stmt.items[index + 1].context_expr)
    elif before:
        start = tree.end(before[-1].optional_vars or before[-1].context_expr)
    plan.point(stmt, start, end, "")


def _is_gone(plan: Plan, stmt: ast.With, item: ast.withitem) -> bool:
    start, end = plan.unit.tree.start(item.context_expr), plan.unit.tree.end(item.context_expr)
    return any(p.start <= start and end <= p.end and not p.text for p in plan.points.get(stmt, ()))


def _decorator(
    plan: Plan, node: ast.AST, function: ast.FunctionDef | ast.AsyncFunctionDef, dotted: str, steps: Sequence[Routine]
) -> None:
    if not remove_decorator(plan, function, node):  # type: ignore[arg-type]
        plan.found("JM204", node, dotted, "removing the decorator would lose a comment")
        plan.taken |= set(ast.walk(node))
        return
    _take(plan, node)
    if dotted in AUTOCAST:
        plan.taken |= set(ast.walk(node))
        _autocast(plan, node, dotted)
        return
    stop = _turns_off(node, dotted) and differentiated(plan, function, steps)
    if stop:
        for statement in _own_returns(function):
            if statement.value is not None and _may_carry(plan.unit.kind(statement.value)):
                _wrap(plan, statement, statement.value)
    extra = "; its result is cut with jax.lax.stop_gradient" if stop else ""
    plan.found("JM002", node, dotted, f"JAX differentiates only what jax.grad is asked for{extra}")


def _statement(plan: Plan, node: ast.AST, stmt: ast.Expr) -> None:
    _take(plan, node)
    plan.lines[stmt] = lambda _: []
    plan.found("JM101", node, "torch.set_grad_enabled", "gone: JAX differentiates only what jax.grad is asked for")


def _left(plan: Plan, node: ast.AST, dotted: str, why: str) -> None:
    _take(plan, node)
    plan.found(
        "JM208",
        node,
        dotted,
        f"{dotted}: {why}",
        advice="Cut the gradient with jax.lax.stop_gradient where it must stop.",
    )


def _take(plan: Plan, node: ast.AST) -> None:
    plan.taken |= {node} | ({node.func} if isinstance(node, ast.Call) else set())


def _stop(plan: Plan, stmt: ast.With, steps: Sequence[Routine]) -> str:
    """Cut the gradient of what a block computes and others read. Returns "" (nothing to cut), "cut" or "writes"."""
    region = next((p.region for s in steps for p in s.passes if any(stmt in ast.walk(r) for r in p.region.stmts)), None)
    function = function_of(plan.unit, stmt)
    body = function.body if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)) else []
    live = Liveness(body).after.get(stmt, frozenset())
    wanted = live & region.feeding if region is not None else live
    done: set[str] = set()
    for inner in stmt.body:
        target = inner.targets[0] if isinstance(inner, ast.Assign) and len(inner.targets) == 1 else None
        if (
            isinstance(inner, ast.Assign)
            and target is not None
            and uses(target).writes & wanted
            and not uses(target).changes
        ):
            if _may_carry(plan.unit.kind(inner.value)):
                _wrap(plan, inner, inner.value)
            done |= uses(target).writes
    for inner in (s for s in ast.walk(stmt) if isinstance(s, ast.Return)):
        if inner.value is not None and _may_carry(plan.unit.kind(inner.value)):
            _wrap(plan, inner, inner.value)
            done.add("return")
    rest = sorted((uses(stmt.body).writes & wanted) - done)
    if rest:
        plan.after.setdefault(stmt, []).extend(f"{name} = {STOP}{name})" for name in rest)
    if uses(stmt.body).changes - uses(stmt.body).writes:
        return "cut" if cut_written(plan, stmt) else "writes"
    return "cut" if done or rest else ""


def _wrap(plan: Plan, stmt: ast.stmt, value: ast.expr) -> None:
    tree = plan.unit.tree
    bare = isinstance(value, ast.Tuple) and tree.text[tree.start(value)] != "("
    plan.point(stmt, tree.start(value), tree.start(value), STOP + ("(" if bare else ""))
    plan.point(stmt, tree.end(value), tree.end(value), ")" + (")" if bare else ""))


def _may_carry(kind: Kind) -> bool:
    if kind.tag in ("tuple", "list") and kind.items:
        return any(_may_carry(k) for k in kind.items)
    return kind.is_tensor or kind.tag in ("unknown", "tuple", "list")


def _own_returns(function: ast.AST) -> Iterator[ast.Return]:
    todo = list(ast.iter_child_nodes(function))
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Return):
            yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            todo += ast.iter_child_nodes(node)


def differentiated(plan: Plan, node: ast.AST, steps: Sequence[Routine], depth: int = 0) -> bool:
    """Whether code at `node` may run while a gradient is taken.

    Inside a training step it does if it is part of the loss function. A function is judged by its callers; a method of
    a module, and a function without callers, may always.
    """
    unit = plan.unit
    if any(node is sub for s in steps for p in s.passes for r in p.region.stmts for sub in ast.walk(r)):
        return True
    function = node if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else unit.tree.function(node)
    if function is None:
        return False
    if any(isinstance(n, ast.Attribute) and n.attr == "backward" for n in ast.walk(function)):
        return not any(s.function is function for s in steps)
    facts = unit.functions.get(function)
    callers = list(_callers(plan, function.name))
    if depth > 4 or not callers:
        return function.name != "main"
    owner = facts.owner if isinstance(facts, FunctionFacts) else None
    if owner is not None and owner.is_module and function.name in ("forward", "__call__"):
        return True
    return any(_differentiated_call(plan, other, call, steps, depth) for other, call in callers)


def _differentiated_call(plan: Plan, other: Plan, call: ast.Call, steps: Sequence[Routine], depth: int) -> bool:
    unit = other.unit
    if _under_no_grad(other, call):
        return False
    holder = unit.tree.function(call)
    facts = unit.functions.get(holder) if holder is not None else None
    if facts is not None and facts.owner is not None and facts.owner.is_module:
        return True
    return differentiated(other, call, steps if other is plan else (), depth + 1)


def _under_no_grad(plan: Plan, node: ast.AST) -> bool:
    for up in plan.unit.tree.ancestors(node):
        if isinstance(up, ast.With) and any(_mode(plan, i.context_expr) in OFF for i in up.items):
            return True
        if isinstance(up, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return any(_mode(plan, d) in OFF for d in up.decorator_list)
    return False


def _callers(plan: Plan, name: str) -> Iterator[tuple[Plan, ast.Call]]:
    """Calls of that name anywhere in the project."""
    views: dict[Unit, Plan] = {plan.unit: plan}
    for unit, node in plan.project.calls.get(name, ()):
        if unit not in views:
            views[unit] = Plan(unit, plan.project, plan.catalogue, plan.needs)
        yield views[unit], node
