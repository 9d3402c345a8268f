"""Methods of modules outside their classes: train, eval, to, parameters, state_dict and their like."""

from __future__ import annotations

import ast

from ..plan import Plan, Whole
from ..writer import Writer
from .chains import PLACES, plan_chain
from .roles import MODULE, SWITCHES, has_own, is_module, refuse

_STEPPING = ("builtins.next", "builtins.iter")
LIBRARY = ("named_parameters", "named_buffers", "state_dict")
NAMES = frozenset((*SWITCHES, *PLACES, *LIBRARY, "parameters", "buffers", "load_state_dict", "requires_grad_"))


def plan_methods(plan: Plan) -> None:
    """Decide the module methods that other passes have not taken."""
    for node in plan.unit.tree.all(ast.Call):
        if node not in plan.taken and isinstance(node.func, ast.Attribute):
            if node.func.attr in NAMES and is_module(plan, node.func.value) and not has_own(plan, node.func):
                _method(plan, node, node.func)


def plan_freezing(plan: Plan) -> None:
    """`p.requires_grad = False`: an optimizer must be told which parameters to train."""
    for node in plan.unit.tree.all(ast.Attribute):
        if node.attr == "requires_grad" and isinstance(node.ctx, ast.Store):
            if node not in plan.taken:
                plan.taken.add(node)
                plan.found(
                    "JM208", node, "torch.Tensor.requires_grad", "which parameters are trained is not converted",
                    advice="Give nnx.Optimizer and nnx.grad a filter of the parameters to train (wrt=…).",
                )  # fmt: skip


def _method(plan: Plan, node: ast.Call, func: ast.Attribute) -> None:
    name = func.attr
    if name in SWITCHES or name in PLACES:
        plan_chain(plan, node)
    elif name in LIBRARY and not node.args and not node.keywords:
        _library(plan, node, func, name, "{}")
    elif name in ("parameters", "buffers") and not node.args and not node.keywords:
        _parameters(plan, node, func)
    elif name == "load_state_dict":
        _load(plan, node, func)
    elif name == "requires_grad_":
        refuse(plan, node, "JM208", MODULE + name, "only some parameters are trained")
    else:
        refuse(plan, node, "JM203", MODULE + name, f"{name} is not called in its plain form")


def _library(plan: Plan, node: ast.Call, func: ast.Attribute, function: str, form: str) -> None:
    spelled = plan.layer(function)
    plan.taken |= {node, func}
    plan.whole[node] = Whole(lambda w: form.format(f"{spelled}({w.at_level(func.value, 1)})"), 15, (func.value,))
    plan.found("JM001", node, MODULE + func.attr, f"{func.attr} -> {function}")


def _parameters(plan: Plan, node: ast.Call, func: ast.Attribute) -> None:
    """Counting takes the state's leaves; a loop takes `named_parameters` without the names."""
    tree = plan.unit.tree
    counted = _counted(plan, node)
    function = f"named_{func.attr}"
    parent = tree.parents[node]
    if counted is not None and func.attr == "parameters":
        plan.taken |= set(ast.walk(counted)) - set(ast.walk(func.value))
        name = counted.generators[0].target.id  # type: ignore[attr-defined]
        plan.whole[counted] = Whole(
            lambda w: f"{name}.size for {name} in jax.tree.leaves(nnx.state({w.at_level(func.value, 1)}, nnx.Param))",
            15, (func.value,),
        )  # fmt: skip
        if not _wrapped_by_call(plan, counted):
            inner = plan.whole[counted]
            plan.whole[counted] = Whole(lambda w: f"({inner.build(w)})", 15, inner.kept)
        plan.found("JM001", node, MODULE + "parameters", "parameters -> the leaves of nnx.state(model, nnx.Param)")
    elif (
        isinstance(parent, (ast.For, ast.comprehension)) and parent.iter is node and isinstance(parent.target, ast.Name)
    ):
        target = parent.target
        plan.whole[target] = Whole(lambda _: f"_, {target.id}", 15)
        _library(plan, node, func, function, "{}")
    else:
        item = "p" if func.attr == "parameters" else "b"
        items = f"{item} for _, {item} in {{}}"
        alone = isinstance(parent, ast.Call) and len(parent.args) == 1 and not parent.keywords
        asked = isinstance(parent, ast.Call) and plan.unit.resolve(parent.func) in _STEPPING
        _library(plan, node, func, function, (items if alone else f"({items})") if asked else f"[{items}]")


def _counted(plan: Plan, node: ast.Call) -> ast.GeneratorExp | ast.ListComp | None:
    """The comprehension of `sum(p.numel() for p in model.parameters())`, also with `if p.requires_grad`."""
    tree = plan.unit.tree
    generator = tree.parents[node]
    made = tree.parents.get(generator)
    if not isinstance(generator, ast.comprehension) or not isinstance(made, (ast.GeneratorExp, ast.ListComp)):
        return None
    target, element = generator.target, made.elt
    if len(made.generators) != 1 or not isinstance(target, ast.Name):
        return None
    counts = (
        isinstance(element, ast.Call)
        and isinstance(element.func, ast.Attribute)
        and element.func.attr in ("numel", "nelement")
        and isinstance(element.func.value, ast.Name)
        and element.func.value.id == target.id
    )
    filters = [ast.unparse(t) for t in generator.ifs]
    trainable = filters == [f"{target.id}.requires_grad"] and not _freezes(plan)
    return made if counts and (not filters or trainable) else None


def _freezes(plan: Plan) -> bool:
    """Whether the file switches requires_grad of anything."""
    return any(
        isinstance(n, ast.Attribute)
        and (n.attr == "requires_grad_" or (n.attr == "requires_grad" and isinstance(n.ctx, ast.Store)))
        for n in plan.unit.tree.parents
    )


def _wrapped_by_call(plan: Plan, made: ast.AST) -> bool:
    """A generator that is a call's only argument shares its parentheses with it."""
    tree = plan.unit.tree
    return isinstance(made, ast.ListComp) is False and tree.text[tree.start(made)] != "("


def _load(plan: Plan, node: ast.Call, func: ast.Attribute) -> None:
    """`model.load_state_dict(d)` becomes `load_state_dict(model, d)`."""
    dotted = MODULE + "load_state_dict"
    stmt = plan.unit.tree.parents[node]
    names = [k.arg for k in node.keywords]
    unpacked = isinstance(stmt, ast.Assign) and isinstance(stmt.targets[0], ast.Tuple)
    if (
        not (isinstance(stmt, ast.Expr) or unpacked)
        or any(n not in ("strict", "state_dict") for n in names)
        or len(node.args) > 2
    ):
        refuse(plan, node, "JM203", dotted, "load_state_dict is not called in its plain form")
        return
    tree = plan.unit.tree
    spelled = plan.layer("load_state_dict")
    plan.taken |= {node, func}
    open_at = tree.text.index("(", tree.end(func))

    def build(writer: Writer) -> str:
        rest = writer.splice_range(node, open_at + 1, tree.end(node), plan.points.get(node, []))
        return f"{spelled}({writer.at_level(func.value, 1)}, {rest}"

    plan.whole[node] = Whole(build, 15, (node,))
    plan.found("JM001", node, dotted, "load_state_dict -> the layer library's")
