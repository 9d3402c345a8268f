"""Torch names that are not called: attributes of tensors and layers, constants, types, functions handed on."""

from __future__ import annotations

import ast
import re

from ..read.kinds import Kind
from ..read.needs import key_parameter
from ..rulebook.condition import holds
from ..rulebook.load import packages, torch_names
from ..rulebook.precedence import ATOM, LAMBDA, level_of_text
from ..rulebook.rows import Row
from ..rulebook.signature import Arguments
from .imports import in_annotation
from .match import asker
from .nativecalls import native_class
from .plan import Plan, Whole
from .settle import of_module, settle, why
from .writer import Writer

# Attributes that a JAX array has under torch's name, with torch's meaning.
SAME_ATTRIBUTES = frozenset({"shape", "dtype", "ndim", "T", "mT", "real", "imag", "nbytes", "itemsize"})

ABSENT_ATTRIBUTES = frozenset({"H", "mH"})  # which a JAX array lacks


def plan_attribute(plan: Plan, node: ast.Attribute) -> None:
    unit = plan.unit
    dotted = unit.resolve(node)
    if dotted and _has_rules(plan, dotted):
        plan_value(plan, node, dotted)
        return
    if dotted:
        _foreign_value(plan, node, dotted)
        return
    if not isinstance(node.ctx, ast.Load):
        return
    called = isinstance(plan.unit.tree.parents.get(node), ast.Call) and plan.unit.tree.parents[node].func is node  # type: ignore[attr-defined]
    holder = unit.kind(node.value)
    if holder.is_tensor:
        row = unit.book.find(f"torch.Tensor.{node.attr}")
        if row is not None and row.get("property"):
            plan.taken.add(node)
            _property(plan, row, node)
        elif not called and node.attr not in SAME_ATTRIBUTES and torch_names().known(f"torch.Tensor.{node.attr}"):
            plan.found(
                "JM302",
                node,
                f"torch.Tensor.{node.attr}",
                f"no rule for the attribute `.{node.attr}` of a tensor",
                evidence=why(holder),
            )
    elif holder.tag == "dtype" and (row := unit.book.find(f"torch.dtype.{node.attr}")) is not None:
        plan.taken.add(node)
        _property(plan, row, node)
    elif holder.tag == "Module" and holder.facts is None and holder.name and not called:
        _layer_attribute(plan, node, holder)
    elif not holder.known and node.attr in ABSENT_ATTRIBUTES and not called:
        plan.found("JM201", node, f"torch.Tensor.{node.attr}", f"`.{node.attr}`: nothing shows what it is taken from",
                   advice="Annotate the value (x: torch.Tensor), or write jnp.conj(x).mT.")  # fmt: skip


def _layer_attribute(plan: Plan, node: ast.Attribute, holder: Kind) -> None:
    """An attribute of a torch layer that the layer library does not have."""
    row = plan.unit.book.find(holder.name)
    entry = plan.catalogue.get(str(row.get("layer"))) if row is not None else None
    if row is None or entry is None:
        return
    own = {*entry.params, *row.get("params", ()), *row.get("buffers", ()), "training", "weight", "bias"}
    if node.attr not in own and not node.attr.isdigit():
        plan.found(
            "JM302",
            node,
            f"{holder.name}.{node.attr}",
            f"the layer library's {entry.name} has no `.{node.attr}`",
            evidence=why(holder),
        )


def _property(plan: Plan, row: Row, node: ast.Attribute) -> None:
    if row.get("unmapped"):
        name = f"torch.Tensor.{node.attr}"
        plan.found("JM301", node, name, f"{name} has no counterpart", rule=row.name, advice=row.advice)
        return
    if not row.options:
        return
    form = row.options[0].template.form(frozenset({"self"}))
    if "".join(p if isinstance(p, str) else "{}" for p in form.pieces) == f"{{}}.{node.attr}":
        return

    def build(writer: Writer) -> str:
        return "".join(
            p if isinstance(p, str) else writer.at_level(node.value, p.level, p.enclosed) for p in form.pieces
        )

    result = Whole(build, form.level, (node.value,))
    settle(plan, row, node, row.name, result, why(plan.unit.kind(node.value)))


def plan_name(plan: Plan, node: ast.Name) -> None:
    dotted = plan.unit.resolve(node)
    if not dotted or not isinstance(node.ctx, ast.Load):
        return
    if _has_rules(plan, dotted):
        plan_value(plan, node, dotted)
    else:
        _foreign_value(plan, node, dotted)


def _has_rules(plan: Plan, dotted: str) -> bool:
    """Whether rules speak of a name: all of torch's, some of packages built on it."""
    return dotted.startswith("torch.") or (plan.unit.book.find(dotted) is not None and not plan.project.holds(dotted))


def _foreign_value(plan: Plan, node: ast.Attribute | ast.Name, dotted: str) -> None:
    """A class or function of a package built on torch, used as a base or handed on."""
    parent = plan.unit.tree.parents.get(node)
    top = dotted.partition(".")[0]
    called = isinstance(parent, ast.Call) and parent.func is node
    if called or isinstance(parent, ast.Attribute) or top == "einops" or plan.project.holds(dotted):
        return
    if "." in dotted and top in packages():
        plan.found("JM303", node, dotted, f"{top} is built on torch", advice=str(packages()[top]))


def plan_value(plan: Plan, node: ast.expr, dotted: str) -> None:
    """A torch name that is not called here: a constant, a type, a class or function handed on."""
    parent = plan.unit.tree.parents.get(node)
    if isinstance(parent, ast.Attribute) and (plan.unit.resolve(parent) or "").startswith("torch"):
        return
    if isinstance(parent, ast.Call) and parent.func is node and node not in plan.taken:
        return
    if (
        dotted == "torch.strided"
        and isinstance(parent, ast.keyword)
        and plan.unit.tree.parents.get(parent) in plan.whole
    ):
        return  # the usual layout, in a call that was converted without it
    row = plan.unit.book.find(dotted) or of_module(plan, dotted)
    if _says_optimizer(plan, node, dotted):
        plan.replace(node, "nnx.Optimizer")
        plan.found("JM001", node, dotted, f"{dotted} -> nnx.Optimizer")
        return
    if row is None:
        if torch_names().names.get(dotted) is None:
            plan.found("JM302", node, dotted, f"no rule for {dotted}")
        return
    if row.get("unmapped"):
        plan.found("JM301", node, dotted, f"{dotted} has no counterpart", rule=row.name, advice=row.advice)
    elif row.get("layer"):
        text = native_class(plan, node, str(row.get("layer"))) or plan.layer(str(row.get("layer")))
        plan.replace(node, text)
        plan.found("JM001", node, dotted, f"{dotted} -> {text}", rule=row.name)
    elif (row.get("const") or row.get("property")) and row.options:
        if (fixed := fixed_text(row)) is not None:
            text, level = fixed
            plan.replace(node, text, level)
            note = row.notes[0] if row.notes else None
            plan.found(
                note.code if note else "JM001",
                node,
                dotted,
                note.text if note else f"{dotted} -> {text}",
                rule=row.name,
            )
    else:
        _function_value(plan, row, node, dotted)


def fixed_text(row: Row) -> tuple[str, int] | None:
    """What a constant or a type becomes, with how tightly that binds; None for a function or a form with holes."""
    if not (row.get("const") or row.get("property")) or not row.options:
        return None
    form = row.options[0].template.form(frozenset())
    return None if form.holes else ("".join(str(p) for p in form.pieces), form.level)


def _says_optimizer(plan: Plan, node: ast.expr, dotted: str) -> bool:
    """Whether an optimizer's class is named only to say what a value is: they are all `nnx.Optimizer`."""
    if not re.fullmatch(r"torch\.optim\.\w+", dotted):
        return False
    up = plan.unit.tree.parents.get(node)
    asked = isinstance(up, ast.Call) and plan.unit.resolve(up.func) == "builtins.isinstance" and node in up.args[1:]
    return (asked and dotted == "torch.optim.Optimizer") or in_annotation(plan.unit.tree, node)


def _function_value(plan: Plan, row: Row, node: ast.expr, dotted: str) -> None:
    """A torch function handed on as a value: the JAX function, or a lambda around the target form."""
    signature = row.signature
    if signature is None or not signature.params or not row.options:
        plan.found("JM302", node, dotted, f"{dotted} is not converted as a value", rule=row.name, advice=row.advice)
        return
    if row.get("effect"):
        plan.found("JM203", node, dotted, f"{dotted} writes into its argument: it is not converted as a value")
        return
    found = function_text(plan, row)
    if found is None:
        plan.found("JM203", node, dotted, f"{dotted} is not converted as a value", rule=row.name)
        return
    text, level = found
    if plan.unit.scope(node).kind == "class" and isinstance(
        plan.unit.tree.parents.get(node), (ast.Assign, ast.AnnAssign)
    ):
        text, level = f"staticmethod({text})", ATOM  # torch's are built in and not bound to the object, JAX's would be
    plan.replace(node, text, level)
    plan.found("JM001", node, dotted, f"{dotted} -> {text}", rule=row.name)


def function_text(plan: Plan, row: Row) -> tuple[str, int] | None:
    """How a torch function is written as a value, with how tightly that binds; None when no form fits."""
    signature = row.signature
    if signature is None or row.get("effect"):
        return None
    if value := str(row.get("value", "")):
        plan.layers |= {value} & plan.catalogue.keys()
        return value, level_of_text(value)
    entry = plan.catalogue.get(str(row.get("layer", "")))
    if entry is not None and entry.kind == "function" and not key_parameter(row, entry) and not entry.needs_rngs:
        plan.layers.add(entry.name)
        return entry.name, ATOM
    needed = [p for p in signature.params if p.default is None and p.kind == "normal"]
    names = frozenset(p.name for p in needed)
    ask = asker(signature, Arguments({}), plan.unit)
    for option in row.options:
        if (
            (option.when and not holds(option.when, ask))
            or not option.template.required <= names
            or "key" in option.template.required
        ):
            continue
        form = option.template.form(names)
        for name in option.template.free_names:
            if name in plan.catalogue:
                plan.layers.add(name)
        text = "".join(p if isinstance(p, str) else _plain(p.name) for p in form.pieces)
        arguments = ", ".join(_plain(p.name) for p in needed)
        bare = text.removesuffix(f"({arguments})")
        if bare != text and bare.replace(".", "").isidentifier():
            return bare, ATOM
        return f"lambda {arguments}: {text}", LAMBDA
    return None


def _plain(name: str) -> str:
    return "x" if name in ("self", "input") else name
