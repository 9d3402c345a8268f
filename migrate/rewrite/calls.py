"""Rows applied to expressions: calls, methods, attributes, constants, functions and classes passed as values."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from ..read.kinds import CONTAINERS, Kind
from ..read.source import hidden
from ..rulebook.condition import holds
from ..rulebook.load import packages, torch_names
from ..rulebook.precedence import ATOM, LAMBDA
from ..rulebook.rows import Row
from ..rulebook.signature import Arguments
from .imports import KNOWN
from .layercalls import layer_call
from .layout import keep_layout
from .match import Match, Refusal, asker, match, whole
from .plan import Plan, Whole
from .writer import Writer

# Attributes that a JAX array has under torch's name, with torch's meaning.
SAME_ATTRIBUTES = frozenset({"shape", "dtype", "ndim", "T", "mT", "real", "imag", "nbytes", "itemsize"})
RECEIVERS = {
    "Module": "torch.nn.Module.",
    "Optimizer": "torch.optim.Optimizer.",
    "Generator": "torch.Generator.",
    "Scheduler": "torch.optim.lr_scheduler.LRScheduler.",
}


def plan_calls(plan: Plan) -> None:
    """Decide every expression that leads to torch and that no structural pass has taken."""
    for node in _expressions(plan):
        if isinstance(node, ast.Call):
            _call(plan, node)
        elif isinstance(node, ast.Attribute):
            _attribute(plan, node)
        elif isinstance(node, ast.Name):
            _name(plan, node)


def _expressions(plan: Plan) -> Iterator[ast.expr]:
    """Expressions in source order, calls before their parts."""
    for node in plan.unit.tree.parents:
        if isinstance(node, (ast.Call, ast.Attribute, ast.Name)) and not (node in plan.taken or hidden(node)):
            yield node


def _call(plan: Plan, node: ast.Call) -> None:
    unit = plan.unit
    func = node.func
    dotted = unit.resolve(func)
    if dotted and dotted.startswith("torch."):
        plan.taken.add(func)
        _torch_call(plan, node, dotted)
    elif dotted and not dotted.startswith("builtins."):
        _foreign_call(plan, node, dotted)
    elif isinstance(func, ast.Attribute) and not dotted:
        _method_call(plan, node, func)


def _torch_call(plan: Plan, node: ast.Call, dotted: str) -> None:
    row = plan.unit.book.find(dotted) or _of_module(plan, dotted)
    if row is None:
        known = torch_names().known(dotted)
        plan.found(
            "JM302",
            node,
            dotted,
            f"no rule for {dotted}" if known else f"torch has no public name {dotted}",
            advice="Write a rule (CONTRIBUTING.md) or convert by hand.",
        )
        return
    apply(plan, row, node, dotted, None)


def _of_module(plan: Plan, dotted: str) -> Row | None:
    """The unmapped row of the nearest module above a name (`torch.distributed` for `torch.distributed.all_reduce`)."""
    while dotted.count(".") > 1:
        dotted = dotted.rpartition(".")[0]
        row = plan.unit.book.find(dotted)
        if row is not None:
            return row if row.get("unmapped") else None
    return None


def apply(plan: Plan, row: Row, node: ast.Call, dotted: str, receiver: ast.expr | None, evidence: str = "") -> bool:
    """Apply a row to a call. Returns whether the call was converted; a finding says so either way."""
    if row.get("unmapped"):
        plan.found("JM301", node, dotted, f"{dotted} has no counterpart", rule=row.name, advice=row.advice)
        return False
    if row.get("effect") == "inplace":
        plan.found("JM205", node, dotted, f"the value of {dotted} is used", rule=row.name, evidence=evidence)
        return False
    if row.get("layer"):
        return layer_call(plan, row, node, dotted, receiver, evidence)
    if row.get("structural"):
        plan.found(
            "JM208" if row.get("pass") == "training" else "JM203",
            node,
            dotted,
            f"{dotted} is converted only in its usual place, which this is not",
            rule=row.name,
            advice=row.advice,
        )
        return False
    if row.get("handler"):
        from .handlers import HANDLERS

        handler = HANDLERS.get(str(row.get("handler")))
        if handler is not None:
            result = handler(plan, row, node, receiver)
            return _settle(plan, row, node, dotted, result, evidence)
        plan.found("JM302", node, dotted, f"{dotted} is not converted yet", rule=row.name, advice=row.advice)
        return False
    found = match(row, node, receiver, plan.unit)
    if isinstance(found, Refusal):
        return _settle(plan, row, node, dotted, found, evidence)
    return _settle(plan, row, node, dotted, _replacement(plan, found, node), evidence, found)


def _replacement(plan: Plan, found: Match, node: ast.Call) -> Whole | Refusal:
    for name in sorted(_free_names(found)):
        if name in plan.catalogue:
            plan.layers.add(name)
        elif name not in KNOWN and not hasattr(builtins, name):
            return Refusal("JM302", f"the layer library has no {name} yet")
    if found.wants_key:
        plan.keyed.setdefault(node, "")
    result = whole(found, plan.unit, lambda: plan.keyed.get(node) or "key")
    if isinstance(result, Refusal):
        return result
    respelled = _respell(plan, found, node, result)
    return keep_layout(plan, found, node, respelled)


def _free_names(found: Match) -> frozenset[str]:
    for option in found.row.options:
        if option.template.form(frozenset(h.name for h in found.form.holes)) is found.form:
            return option.template.free_names
    return frozenset(n for o in found.row.options for n in o.template.free_names)


def _respell(plan: Plan, found: Match, node: ast.Call, result: Whole) -> Whole:
    """Library functions keep clear of the file's own names (`nnx_layers.pad` beside a local `pad`)."""
    clash = [n for n in _free_names(found) if n in plan.catalogue and n in plan.own_names]
    if not clash:
        return result
    import re

    pattern = re.compile(rf"(?<![\w.])({'|'.join(map(re.escape, clash))})(?=\()")
    pieces = tuple(pattern.sub(r"nnx_layers.\1", p) if isinstance(p, str) else p for p in found.form.pieces)
    from dataclasses import replace

    again = whole(
        replace(found, form=replace(found.form, pieces=pieces)), plan.unit, lambda: plan.keyed.get(node) or "key"
    )
    return again if isinstance(again, Whole) else result


def _settle(
    plan: Plan,
    row: Row,
    node: ast.expr,
    dotted: str,
    result: Whole | Refusal,
    evidence: str,
    found: Match | None = None,
) -> bool:
    tree = plan.unit.tree
    if isinstance(result, Refusal):
        plan.found(result.code, node, dotted, result.message, rule=row.name, advice=result.advice, evidence=evidence)
        return False
    lost = comments_lost(plan, node, result)
    if lost:
        plan.found("JM204", node, dotted, f"rewriting would lose the comment {lost!r}", rule=row.name)
        return False
    plan.whole[node] = result
    notes = [n for n in (found.notes if found is not None else row.notes) if n.code.startswith("JM1")]
    message = f"{dotted} -> {_target(row, found)}"
    if notes:
        plan.found(notes[0].code, node, dotted, f"{message}: {notes[0].text}", rule=row.name, evidence=evidence)
    elif row.get("pass") == "randomness" or (found is not None and found.wants_key):
        plan.found(
            "JM121", node, dotted, f"{message}: other numbers than torch's generator", rule=row.name, evidence=evidence
        )
    else:
        plan.found("JM001", node, dotted, message, rule=row.name, evidence=evidence)
    _ = tree
    return True


def _target(row: Row, found: Match | None) -> str:
    if found is not None:
        return "".join(p if isinstance(p, str) else "…" for p in found.form.pieces)
    return str(row.get("layer") or row.get("handler") or "")


def comments_lost(plan: Plan, node: ast.AST, result: Whole) -> str:
    """The first comment inside `node` that the replacement would not carry over."""
    tree = plan.unit.tree
    if node in plan.points:
        return ""
    for start, end in tree.comments_in(tree.start(node), tree.end(node)):
        if not any(tree.start(k) <= start and end <= tree.end(k) for k in result.kept):
            return tree.text[start:end]
    return ""


def _foreign_call(plan: Plan, node: ast.Call, dotted: str) -> None:
    """Packages that build on torch."""
    top = dotted.partition(".")[0]
    advice = packages().get(top) or packages().get(dotted.rpartition(".")[0])
    row = plan.unit.book.find(dotted)
    if row is not None:
        plan.taken.add(node.func)
        apply(plan, row, node, dotted, None)
    elif advice and top not in ("einops",) and not plan.project.holds(dotted):
        plan.taken.add(node.func)
        plan.found("JM303", node, dotted, f"{top} is built on torch", advice=str(advice))


def _method_call(plan: Plan, node: ast.Call, func: ast.Attribute) -> None:
    unit = plan.unit
    receiver = unit.kind(func.value)
    if receiver.is_tensor:
        plan.taken.add(func)
        dotted = f"torch.Tensor.{func.attr}"
        row = unit.book.find(dotted)
        if row is None:
            if torch_names().known(dotted):
                plan.found("JM302", node, dotted, f"no rule for {dotted}", evidence=_why(receiver))
            return
        apply(plan, row, node, dotted, func.value, _why(receiver))
        return
    if receiver.tag in RECEIVERS and receiver.name != "plain":
        _object_method(plan, node, func, receiver)
        return
    if receiver.tag == "unknown" and func.attr in unit.book.methods:
        _unknown_receiver(plan, node, func)


def _object_method(plan: Plan, node: ast.Call, func: ast.Attribute, receiver: Kind) -> None:
    from ..read.facts import ClassFacts

    if isinstance(receiver.facts, ClassFacts) and receiver.facts.method(func.attr) is not None:
        return
    if isinstance(receiver.facts, ClassFacts) and receiver.facts.attribute(func.attr) is not None:
        return
    dotted = RECEIVERS[receiver.tag] + func.attr
    row = plan.unit.book.find(dotted)
    if row is None:
        layer = (
            receiver.tag == "Module" and receiver.facts is None and receiver.name and receiver.name not in CONTAINERS
        )
        if torch_names().known(dotted) or layer:
            name = f"{receiver.name}.{func.attr}" if layer else dotted
            plan.found("JM302", node, name, f"no rule for {name}", evidence=_why(receiver))
        return
    plan.taken.add(func)
    apply(plan, row, node, dotted, func.value, _why(receiver))


def _unknown_receiver(plan: Plan, node: ast.Call, func: ast.Attribute) -> None:
    """Nothing proves what the receiver is: leave the call and say so, unless it reads the same in both frameworks."""
    dotted = f"torch.Tensor.{func.attr}"
    row = plan.unit.book.find(dotted)
    if (
        row is not None
        and not row.get("effect")
        and not row.get("structural")
        and _same_spelling(plan, row, node, func)
    ):
        plan.found(
            "JM001",
            node,
            dotted,
            f"{dotted} is spelled the same",
            rule=row.name,
            evidence="receiver unknown, same spelling",
        )
        return
    plan.found(
        "JM201",
        node,
        dotted,
        f"`.{func.attr}()` on `{ast.unparse(func.value)[:60]}`: nothing shows what that is",
        advice="Annotate the value (x: torch.Tensor) or convert the call by hand.",
    )


def _same_spelling(plan: Plan, row: Row, node: ast.Call, func: ast.Attribute) -> bool:
    found = match(row, node, func.value, plan.unit) if row.signature is not None else None
    if not isinstance(found, Match) or found.notes:
        return False
    result = whole(found, plan.unit)
    return isinstance(result, Whole) and result.build(Writer(_empty(plan))) == plan.unit.tree.segment(node)


def _empty(plan: Plan) -> Plan:
    return Plan(plan.unit, plan.project, plan.catalogue, plan.needs)


def _why(kind: Kind) -> str:
    return f"{kind.tag}: {kind.why}" if kind.why else kind.tag


def _attribute(plan: Plan, node: ast.Attribute) -> None:
    unit = plan.unit
    dotted = unit.resolve(node)
    if dotted and dotted.startswith("torch."):
        _value(plan, node, dotted)
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
                evidence=_why(holder),
            )
    elif holder.tag == "Module" and holder.facts is None and holder.name and not called:
        _layer_attribute(plan, node, holder)


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
            evidence=_why(holder),
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
    _settle(plan, row, node, row.name, result, _why(plan.unit.kind(node.value)))


def _name(plan: Plan, node: ast.Name) -> None:
    dotted = plan.unit.resolve(node)
    if dotted and dotted.startswith("torch.") and isinstance(node.ctx, ast.Load):
        _value(plan, node, dotted)
    elif dotted and isinstance(node.ctx, ast.Load):
        _foreign_value(plan, node, dotted)


def _foreign_value(plan: Plan, node: ast.Attribute | ast.Name, dotted: str) -> None:
    """A class or function of a package built on torch, used as a base or handed on."""
    parent = plan.unit.tree.parents.get(node)
    top = dotted.partition(".")[0]
    called = isinstance(parent, ast.Call) and parent.func is node
    if called or isinstance(parent, ast.Attribute) or top == "einops" or plan.project.find(dotted) is not None:
        return
    if "." in dotted and top in packages():
        plan.found("JM303", node, dotted, f"{top} is built on torch", advice=str(packages()[top]))


def _value(plan: Plan, node: ast.Attribute | ast.Name, dotted: str) -> None:
    """A torch name that is not called here: a constant, a type, a class or function handed on."""
    parent = plan.unit.tree.parents.get(node)
    if isinstance(parent, ast.Attribute) and (plan.unit.resolve(parent) or "").startswith("torch"):
        return
    if isinstance(parent, ast.Call) and parent.func is node and node not in plan.taken:
        return
    row = plan.unit.book.find(dotted) or _of_module(plan, dotted)
    if row is None:
        if torch_names().names.get(dotted) is None:
            plan.found("JM302", node, dotted, f"no rule for {dotted}")
        return
    if row.get("unmapped"):
        plan.found("JM301", node, dotted, f"{dotted} has no counterpart", rule=row.name, advice=row.advice)
    elif row.get("layer"):
        plan.replace(node, plan.layer(str(row.get("layer"))))
        plan.found("JM001", node, dotted, f"{dotted} -> {row.get('layer')}", rule=row.name)
    elif (row.get("const") or row.get("property")) and row.options:
        form = row.options[0].template.form(frozenset())
        if not form.holes:
            text = "".join(str(p) for p in form.pieces)
            plan.replace(node, text, form.level)
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


def _function_value(plan: Plan, row: Row, node: ast.expr, dotted: str) -> None:
    """A torch function handed on as a value: the JAX function, or a lambda around the target form."""
    signature = row.signature
    if signature is None or not signature.params or not row.options:
        plan.found("JM302", node, dotted, f"{dotted} is not converted as a value", rule=row.name, advice=row.advice)
        return
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
            plan.replace(node, bare, ATOM)
        else:
            plan.replace(node, f"lambda {arguments}: {text}", LAMBDA)
        plan.found("JM001", node, dotted, f"{dotted} -> {bare}", rule=row.name)
        return
    plan.found("JM203", node, dotted, f"{dotted} is not converted as a value", rule=row.name)


def _plain(name: str) -> str:
    return "x" if name in ("self", "input") else name
