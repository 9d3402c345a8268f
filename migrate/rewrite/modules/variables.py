"""Parameters and buffers are nnx Variables: read as `self.w[...]`, written as `self.w[...] = v`."""

from __future__ import annotations

import ast

from ...read.chosen import is_initialiser
from ...read.facts import FunctionFacts
from ...rulebook.precedence import ATOM, TERNARY
from ..optional import maybe_none
from ..plan import Plan, Whole
from ..writer import Writer

# Attributes that a Variable answers as its array does.
_FORWARDED = frozenset({"shape", "dtype", "ndim"})
_KEEPING = frozenset({"append", "register_parameter", "register_buffer", "add"})
_BY_NAME = frozenset(
    {"isinstance", "hasattr", "getattr", "setattr", "id", "type", "print", "len", "issubclass", "list", "tuple"}
)


def plan_variables(plan: Plan) -> None:
    """Decide each read and each rebinding of a Variable."""
    tree, unit = plan.unit.tree, plan.unit
    for node in list(tree.parents):
        if not isinstance(node, (ast.Attribute, ast.Name, ast.Subscript)) or node in plan.taken:
            continue
        if unit.kind(node).tag != "Variable" or unit.resolve(node):
            continue
        if isinstance(node.ctx, ast.Store):
            _store(plan, node)
        elif isinstance(node.ctx, ast.Load) and _wants_value(plan, node):
            guarded = _guarded(plan, node)
            if guarded == "as it is":
                continue
            if guarded:
                plan.whole.setdefault(node, Whole(lambda w, n=node: _or_none(_plain(w, n)), TERNARY, (node,)))  # type: ignore[misc]
                continue
            plan.whole.setdefault(node, Whole(lambda w, n=node: _plain(w, n) + "[...]", ATOM, (node,)))  # type: ignore[misc]


# What the functions batch_norm and instance_norm of the layer library write to.
_STATISTICS = ("running_mean", "running_var")
# Functions of the layer library that take a Variable as well as an array, or None.
_TAKE_EITHER = frozenset(
    f"torch.nn.functional.{name}"
    for name in ("linear", "conv1d", "conv2d", "conv3d", "layer_norm", "group_norm", "batch_norm")
)


def _or_none(text: str) -> str:
    return f"None if {text} is None else {text}[...]"


def _guarded(plan: Plan, node: ast.expr) -> str:
    """How a Variable that may be None is handed on: "or None" where None is as good as an array, "as it is" where the
    function takes the Variable too; "" where torch needs a tensor, or the Variable is there."""
    if not maybe_none(node, plan.unit):
        return ""
    parent = plan.unit.tree.parents.get(node)
    if isinstance(parent, ast.Assign):
        return "or None"
    call = plan.unit.tree.parents.get(parent) if isinstance(parent, ast.keyword) else parent
    if not isinstance(call, ast.Call):
        return ""
    dotted = plan.unit.resolve(call.func) or ""
    if not dotted.startswith("torch."):
        return "or None" if isinstance(plan.unit.kind(call.func).facts, FunctionFacts) else ""
    row = plan.unit.book.find(dotted)
    if row is None or row.signature is None:
        return ""
    at = call.args.index(node) if node in call.args else -1
    if at < 0:
        name = parent.arg if isinstance(parent, ast.keyword) else ""
    else:
        name = row.signature.params[at].name if at < len(row.signature.params) else ""
    param = row.signature.by_name.get(name or "")
    if param is None or (param.default != "None" and not param.name.startswith("running_")):
        return ""
    return "as it is" if row.name in _TAKE_EITHER else "or None"


def _plain(writer: Writer, node: ast.AST) -> str:
    """The node's own text, not the replacement of itself."""
    return writer.splice_range(node, writer.tree.start(node), writer.tree.end(node), writer.plan.points.get(node, []))


def _store(plan: Plan, node: ast.expr) -> None:
    """`self.buf = v` writes into the Variable when `v` is an array; a Variable on the right is bound."""
    stmt = plan.unit.tree.statement(node)
    if isinstance(stmt, ast.AugAssign) and stmt.target is node and not isinstance(node, ast.Subscript):
        end = plan.unit.tree.end(node)
        plan.point(stmt, end, end, "[...]")
        plan.found("JM001", stmt, "torch.nn.Parameter", "the Variable is written in place")
        return
    if not isinstance(stmt, ast.Assign) or not isinstance(node, ast.Attribute) or node not in stmt.targets:
        return
    value = plan.unit.kind(stmt.value)
    if value.tag in ("Tensor",) and _is_buffer(plan, node):
        end = plan.unit.tree.end(node)
        plan.point(stmt, end, end, "[...]")
        plan.found(
            "JM001", stmt, "torch.nn.Module.register_buffer", "the buffer is written in place", evidence="buffer"
        )


def _is_buffer(plan: Plan, node: ast.Attribute) -> bool:
    return "register_buffer" in plan.unit.kind(node).why or plan.unit.kind(node).tag == "Variable"


def _wants_value(plan: Plan, node: ast.expr) -> bool:
    """Whether this place needs the array and not the Variable that holds it."""
    parent = plan.unit.tree.parents.get(node)
    if isinstance(parent, ast.Attribute):
        return (
            parent.attr not in _FORWARDED
            and parent.attr not in ("data", "grad", "requires_grad")
            and _is_method(plan, parent)
        )
    if isinstance(parent, ast.Subscript):
        return parent.slice is node
    if isinstance(parent, ast.Tuple) and isinstance(up := plan.unit.tree.parents.get(parent), ast.Subscript):
        return up.slice is parent
    if isinstance(parent, ast.Compare):
        return not any(isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for op in parent.ops)
    if isinstance(parent, (ast.BinOp, ast.UnaryOp, ast.Starred)):
        return not isinstance(parent, ast.UnaryOp) or not isinstance(parent.op, ast.Not)
    if isinstance(parent, ast.keyword):
        call = plan.unit.tree.parents.get(parent)
        return isinstance(call, ast.Call) and _call_wants_value(plan, call) and not _writes_to(plan, call, node)
    if isinstance(parent, ast.Call):
        return parent.func is not node and _call_wants_value(plan, parent) and not _writes_to(plan, parent, node)
    if isinstance(parent, (ast.List, ast.Tuple)):
        if (name := _unpacked_to(plan, parent, node)) is not None:
            return plan.unit.kind(name).tag != "Variable"
        up = plan.unit.tree.parents.get(parent)
        return (
            isinstance(up, ast.Call)
            and (plan.unit.resolve(up.func) or "").startswith(("torch.", "einops."))
            and not _is_optimizer(plan, up)
            and (not (plan.unit.resolve(up.func) or "").startswith("torch.nn.Par"))
        )
    if isinstance(parent, ast.Return):
        function = plan.unit.tree.function(node)
        return function is not None and function.name in ("forward", "__call__")
    if isinstance(parent, (ast.IfExp, ast.BoolOp)):
        if isinstance(parent, ast.IfExp) and parent.test is node:
            return False
        return _wants_value(plan, parent)
    if isinstance(parent, ast.Assign):
        return isinstance(parent.targets[0], ast.Name) and plan.unit.kind(parent.targets[0]).tag != "Variable"
    return isinstance(parent, ast.FormattedValue)


def _unpacked_to(plan: Plan, values: ast.List | ast.Tuple, node: ast.expr) -> ast.Name | None:
    """The local name that takes `node` in `weight, bias = self.weight, self.bias`."""
    stmt = plan.unit.tree.parents.get(values)
    if not isinstance(stmt, ast.Assign) or stmt.value is not values or len(stmt.targets) != 1:
        return None
    target = stmt.targets[0]
    if not isinstance(target, (ast.List, ast.Tuple)) or len(target.elts) != len(values.elts):
        return None
    name = target.elts[values.elts.index(node)]
    return name if isinstance(name, ast.Name) else None


def _is_method(plan: Plan, parent: ast.Attribute) -> bool:
    """`self.w.unsqueeze(0)` reads the array; in-place calls write the Variable and are the in-place pass's business."""
    return not parent.attr.endswith("_") or parent.attr.startswith("__")


def _is_optimizer(plan: Plan, call: ast.Call) -> bool:
    return (plan.unit.resolve(call.func) or "").startswith("torch.optim.")


def _writes_to(plan: Plan, call: ast.Call, node: ast.expr) -> bool:
    """Whether the call writes to the Variable `node`: running statistics, or the parameter of a function of the project
    that is always called with Variables."""
    if plan.unit.resolve(call.func) in ("torch.nn.functional.batch_norm", "torch.nn.functional.instance_norm"):
        given = dict(zip(("input", *_STATISTICS), call.args, strict=False)) | {
            k.arg or "": k.value for k in call.keywords
        }
        return any(given.get(name) is node for name in _STATISTICS)
    facts = plan.unit.kind(call.func).facts
    if not isinstance(facts, FunctionFacts):
        return False
    names = [a.arg for a in [*facts.node.args.posonlyargs, *facts.node.args.args]]
    names = names[1:] if facts.owner is not None else names
    given = dict(zip(names, call.args, strict=False)) | {k.arg or "": k.value for k in call.keywords}
    name = next((n for n, v in given.items() if v is node), "")
    kind = facts.params.get(name)
    return kind is not None and kind.tag == "Variable" and name in facts.unit.usage(facts.node).written


def _call_wants_value(plan: Plan, call: ast.Call) -> bool:
    dotted = plan.unit.resolve(call.func) or ""
    if dotted.startswith("builtins."):
        return dotted[9:] not in _BY_NAME
    kind = plan.unit.kind(call.func)
    if kind.tag == "torch" and is_initialiser(kind.name):
        return False
    if dotted.startswith(("torch.nn.init.", "torch.optim.")) or dotted in ("torch.nn.Parameter",):
        return False
    return not (isinstance(call.func, ast.Attribute) and call.func.attr in _KEEPING)
