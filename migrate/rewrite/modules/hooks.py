"""Forward hooks: `layer.register_forward_hook(f)` becomes `register_forward_hook(layer, f)` of the layer file.

A hook that belongs to a module (`self._save`) keeps hold of that object, while nnx.jit and nnx.grad call copies of it:
such a hook is reported.
"""

from __future__ import annotations

import ast

from ...read.facts import FunctionFacts
from ...read.kinds import Kind
from ...read.unit import Unit
from ...rulebook.precedence import LAMBDA
from ..plan import Plan, Whole
from ..writer import Writer

HOOKS = ("register_forward_hook", "register_forward_pre_hook")
_ADVICE = "Call the function in __call__ itself, or sow the value with nnx.Module.sow."


def plan_hooks(plan: Plan) -> None:
    """Decide every registration of a forward hook. No other class of torch has methods of these names."""
    found = [
        (node, node.func)
        for node in plan.unit.tree.all(ast.Call)
        if isinstance(node.func, ast.Attribute)
        and node.func.attr in HOOKS
        and node not in plan.taken
        and _may_be_module(plan.unit.kind(node.func.value))
        and not plan.unit.resolve(node.func)
    ]
    elsewhere = _told_apart(plan) if found else ""
    for node, func in found:
        _hook(plan, node, func, elsewhere)


def _may_be_module(kind: Kind) -> bool:
    return kind.tag in ("Module", "unknown") and kind.name not in ("plain", "super")


def _told_apart(plan: Plan) -> str:
    """Where the project does what a module with hooks answers otherwise than torch's: its forward, which runs no hook
    there, has become a call of it; its type is another one. "" when it does neither."""
    for unit in plan.project.units:
        for node in unit.tree.both(ast.Attribute, ast.Compare):
            line = f"{unit.source.path}:{unit.tree.position(unit.tree.start(node))[0]}"
            if isinstance(node, ast.Attribute):
                if node.attr == "forward" and isinstance(node.ctx, ast.Load) and _may_be_module(unit.kind(node.value)):
                    return f"{line} calls `forward` itself, which runs no hooks, and here it would"
            elif _compares_type(unit, node):
                return f"{line} compares the type of a module: with hooks it is a class of its own"
    return ""


def _compares_type(unit: Unit, node: ast.Compare) -> bool:
    sides = [s for side in (node.left, *node.comparators) for s in getattr(side, "elts", [side])]
    asked = any(isinstance(s, ast.Call) and unit.resolve(s.func) == "builtins.type" for s in sides)
    return asked and any(unit.kind(s).tag == "Class" or (unit.resolve(s) or "").startswith("torch.nn.") for s in sides)


def _hook(plan: Plan, node: ast.Call, func: ast.Attribute, elsewhere: str) -> None:
    dotted = f"torch.nn.Module.{func.attr}"
    plan.taken.update((node, func))
    given = {k.arg or "": k.value for k in node.keywords}
    hook = node.args[0] if node.args else given.get("hook")
    if hook is None or len(node.args) > 1 or set(given) - {"hook", "with_kwargs"} or isinstance(hook, ast.Starred):
        plan.found("JM202", node, dotted, "prepend and always_call have no counterpart", advice=_ADVICE)
        return
    problem = _problem(plan, hook) or elsewhere
    if problem:
        plan.found("JM301", node, dotted, problem, advice=_ADVICE)
        return
    spelled = plan.layer(func.attr)
    options = [k for k in node.keywords if k.arg == "with_kwargs"]

    def build(writer: Writer) -> str:
        parts = [writer.at_level(func.value, 1), writer.at_level(hook, LAMBDA)]
        return f"{spelled}({', '.join([*parts, *(f'with_kwargs={writer.at_level(k.value, 1)}' for k in options)])})"

    plan.whole[node] = Whole(build, 15, (func.value, hook, *(k.value for k in options)))
    message = f"{func.attr} -> {spelled}: under jit the hook runs once, while tracing"
    plan.found("JM142", node, dotted, message, evidence=plan.unit.kind(func.value).why)


def _problem(plan: Plan, hook: ast.expr) -> str:
    """Why a hook cannot be handed on as it is; "" when it can."""
    if isinstance(hook, ast.Lambda):
        return _holds_self(plan, hook)
    kind = plan.unit.kind(hook)
    facts = kind.facts
    if isinstance(facts, FunctionFacts):
        if facts.owner is not None and facts.owner.is_module:
            return "the hook is a method of a module: nnx.jit and nnx.grad call copies of the module, not this object"
        if facts in plan.needs.rngs or facts in plan.needs.keys:
            return "the hook draws random numbers: it has no key when it is called"
        return _holds_self(plan, facts.node) if facts.unit is plan.unit else ""
    if kind.tag == "unknown" and isinstance(hook, ast.Attribute):
        return "nothing shows what the hook is"
    return _holds_self(plan, hook)


def _holds_self(plan: Plan, hook: ast.AST) -> str:
    """Whether a function inside a class, or a call that makes one there, holds on to a module."""
    if plan.unit.tree.class_of(hook) is None:
        return ""
    inside = set(ast.walk(hook))
    for node in inside:
        if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load):
            continue
        kind, scope = plan.unit.kind(node), plan.unit.scope(node).lookup(node.id)
        own = scope is not None and any(b.kind == "param" and b.node in inside for b in scope.bindings[node.id])
        if kind.tag == "Module" and kind.name != "plain" and not own:
            return f"the hook holds `{node.id}`: nnx.jit and nnx.grad call copies of the module, not this object"
    return ""
