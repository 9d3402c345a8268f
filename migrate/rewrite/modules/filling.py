"""Initialisers as values: `init_fn=nn.init.xavier_uniform_`, `partial(nn.init.trunc_normal_, std=0.02)`.

The layer file has them under torch's names; they write into the Variable that they are given and take rngs.
"""

from __future__ import annotations

import ast

from ...read.chosen import is_initialiser
from ...read.facts import ClassFacts, FunctionFacts
from ...read.kinds import Kind
from ..plan import Plan, Whole


def plan_filling(plan: Plan) -> None:
    """Decide every initialiser that is handed on, and every call of one that was."""
    for node in plan.unit.tree.both(ast.Name, ast.Attribute):
        dotted = plan.unit.resolve(node) or ""
        if is_initialiser(dotted) and isinstance(node.ctx, ast.Load) and node not in plan.taken:
            parent = plan.unit.tree.parents.get(node)
            if not (isinstance(parent, ast.Call) and parent.func is node):
                _value(plan, node, dotted)
    for call in plan.unit.tree.all(ast.Call):
        if is_filling(plan, call) and call not in plan.taken:
            _call(plan, call)


def is_filling(plan: Plan, call: ast.Call) -> bool:
    """Whether what is called is an initialiser that was handed on (`init_fn(self.fc.weight)`)."""
    kind = plan.unit.kind(call.func)
    return kind.tag == "torch" and is_initialiser(kind.name) and plan.unit.resolve(call.func) is None


def _value(plan: Plan, node: ast.Name | ast.Attribute, dotted: str) -> None:
    name = dotted.rpartition(".")[2]
    plan.taken.add(node)
    if name not in plan.catalogue or not _is_followed(plan, node):
        message = f"{dotted} is handed on to something that is not followed"
        plan.found("JM203", node, dotted, message, advice="Call it where the parameter is known.")
        return
    spelled = plan.layer(name)
    plan.replace(node, spelled)
    plan.found("JM002", node, dotted, f"{dotted} -> {spelled}, which takes rngs")


def _is_followed(plan: Plan, node: ast.expr) -> bool:
    """Whether the place that takes the value is known to hold initialisers, so that all its calls are seen."""
    tree, unit = plan.unit.tree, plan.unit
    up = tree.parents.get(node)
    if isinstance(up, ast.keyword):
        call = tree.parents.get(up)
        return isinstance(call, ast.Call) and _is_taken(plan, call, node, up.arg)
    if isinstance(up, ast.Call):
        return _is_taken(plan, up, node, None)
    if isinstance(up, ast.arguments):
        function = unit.functions.get(tree.parents[up])
        called = function.params.get(_arg_of(up, node).arg) if function is not None else Kind("other")
        return called is None or called.tag in ("unknown", "None") or _holds(called)
    if isinstance(up, ast.Assign):
        return all(_holds(unit.kind(t)) for t in up.targets)
    if isinstance(up, ast.AnnAssign):
        return _holds(unit.kind(up.target))
    if isinstance(up, (ast.Dict, ast.List, ast.Tuple, ast.IfExp, ast.BoolOp)):
        return _is_followed(plan, up)
    if isinstance(up, ast.Subscript) and up.value is node:
        return _holds(unit.kind(up))
    if isinstance(up, ast.Return):
        function = unit.functions.get(tree.function(node) or up)
        return function is not None and _holds(function.returns)
    return False


def _is_taken(plan: Plan, call: ast.Call, node: ast.expr, name: str | None) -> bool:
    dotted, facts = plan.unit.resolve(call.func) or "", plan.unit.kind(call.func).facts
    if dotted in ("functools.partial", "builtins.dict"):
        return _is_followed(plan, call)
    callee = facts.method("__init__") if isinstance(facts, ClassFacts) else facts
    if not isinstance(callee, FunctionFacts):
        return False
    spec = callee.node.args
    arguments = [*spec.posonlyargs, *spec.args]
    if name is None and node in call.args:
        at = call.args.index(node) + (callee.owner is not None)
        name = arguments[at].arg if at < len(arguments) else None
    return name is not None and _holds(callee.params.get(name, Kind("unknown")))


def _arg_of(spec: ast.arguments, default: ast.expr) -> ast.arg:
    if default in spec.kw_defaults:
        return spec.kwonlyargs[spec.kw_defaults.index(default)]
    arguments = [*spec.posonlyargs, *spec.args]
    return arguments[len(arguments) - len(spec.defaults) + spec.defaults.index(default)]


def _holds(kind: Kind) -> bool:
    if kind.tag in ("dict", "list", "tuple"):
        return bool(kind.items) and all(_holds(k) for k in kind.items)
    return kind.tag == "torch" and is_initialiser(kind.name)


def _call(plan: Plan, call: ast.Call) -> None:
    """The initialiser takes the Variable itself, and rngs."""
    kind = plan.unit.kind(call.func)
    tensor = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "tensor"), None)
    plan.taken.add(call)
    if tensor is None or isinstance(tensor, ast.Starred):
        plan.found("JM203", call, kind.name, "the tensor is not given plainly")
        return
    bare = tensor.value if isinstance(tensor, ast.Attribute) and tensor.attr == "data" else tensor
    held = plan.unit.kind(bare)
    if held.tag != "Variable" and (held.known or not isinstance(bare, (ast.Name, ast.Attribute))):
        message = f"`{ast.unparse(bare)[:60]}` is no parameter itself: JAX arrays cannot be written to"
        plan.found("JM206", call, kind.name, message, advice="Give the initialiser the parameter.")
        return
    if bare is not tensor:
        plan.taken.add(tensor)
        plan.whole[tensor] = Whole(lambda writer: writer.text(bare), 15, (bare,))
    plan.rngs_calls.append(call)
    same = kind.name.rpartition(".")[2] in ("zeros_", "ones_", "constant_", "eye_", "dirac_")
    message = "an initialiser that was handed on" + ("" if same else ": same distribution, other numbers")
    plan.found("JM001" if same else "JM121", call, kind.name, message, evidence=held.why)
