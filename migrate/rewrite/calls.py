"""Rows applied to calls: functions, methods, what packages built on torch offer."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from ..read.kinds import CONTAINERS, Kind
from ..read.needs import draws
from ..read.shared_names import same_for_arrays, swaps_two
from ..read.source import hidden
from ..read.tensor_only import unpacked
from ..rulebook.load import packages, torch_names
from ..rulebook.rows import Row
from .byname import plan_asked
from .holes import whole
from .imports import KNOWN
from .layercalls import layer_call
from .layout import keep_layout
from .match import Match, Refusal, match
from .plan import Plan, Whole
from .settle import of_module, settle, why
from .spread import spread
from .values import plan_attribute, plan_name
from .writer import Writer

RECEIVERS = {
    "Module": "torch.nn.Module.",
    "Optimizer": "torch.optim.Optimizer.",
    "Generator": "torch.Generator.",
    "Distribution": "torch.distributions.Distribution.",
    "Scheduler": "torch.optim.lr_scheduler.LRScheduler.",
}


def plan_calls(plan: Plan) -> None:
    """Decide every expression that leads to torch and that no structural pass has taken."""
    for node in _expressions(plan):
        if isinstance(node, ast.Call):
            _call(plan, node)
        elif isinstance(node, ast.Attribute):
            plan_attribute(plan, node)
        elif isinstance(node, ast.Name):
            plan_name(plan, node)


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
    elif dotted in ("builtins.hasattr", "builtins.getattr"):
        plan_asked(plan, node, dotted)


def _torch_call(plan: Plan, node: ast.Call, dotted: str) -> None:
    row = plan.unit.book.find_called(dotted) or of_module(plan, dotted)
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
            return settle(plan, row, node, dotted, result, evidence)
        plan.found("JM302", node, dotted, f"{dotted} is not converted yet", rule=row.name, advice=row.advice)
        return False
    if row.get("stars") and _starred(node):
        _pass_on(plan, row, node, dotted)
        return True
    found = match(row, node, receiver, plan.unit)
    if isinstance(found, Refusal) and found.code == "JM207" and (stars := spread(plan, node)) is not None:
        found = match(row, stars.spelled_out(node), receiver, plan.unit)
    if isinstance(found, Refusal):
        return settle(plan, row, node, dotted, found, evidence)
    return settle(plan, row, node, dotted, _replacement(plan, found, node), evidence, found)


def _starred(node: ast.Call) -> bool:
    return any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords)


def _pass_on(plan: Plan, row: Row, node: ast.Call, dotted: str) -> None:
    """`DataLoader(dataset, **options)`: the library's class takes torch's own arguments, or says which it lacks."""
    name = row.options[0].template.text.partition("(")[0]
    plan.replace(node.func, plan.layer(name))
    if draws(row, plan.catalogue, node):
        plan.key_calls[node] = "key"
    for note in row.notes:
        plan.found(note.code, node, dotted, f"{dotted} -> {name}: {note.text}", rule=row.name)
        return
    plan.found("JM001", node, dotted, f"{dotted} -> {name}", rule=row.name)


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


def _foreign_call(plan: Plan, node: ast.Call, dotted: str) -> None:
    """Packages that build on torch."""
    top = dotted.partition(".")[0]
    advice = packages().get(top) or packages().get(dotted.rpartition(".")[0])
    row = plan.unit.book.find(dotted) if not plan.project.holds(dotted) else None
    if row is not None and not _part_of_network(plan, node, dotted):
        plan.taken.add(node.func)
        apply(plan, row, node, dotted, None)
    elif advice and top not in ("einops",) and not plan.project.holds(dotted):
        plan.taken.add(node.func)
        plan.found("JM303", node, dotted, f"{top} is built on torch", advice=str(advice))


def _part_of_network(plan: Plan, node: ast.Call, dotted: str) -> bool:
    """Whether a transform of images is a layer here: those of the library work on one image, on the host."""
    if not dotted.startswith("torchvision.transforms."):
        return False
    owner = plan.unit.tree.class_of(node)
    if owner is not None and plan.unit.classes[owner].is_module:
        return True
    above = (up for up in plan.unit.tree.ancestors(node) if isinstance(up, ast.Call))
    return any(plan.unit.resolve(up.func) in ("torch.nn.Sequential", "torch.nn.ModuleList") for up in above)


def _method_call(plan: Plan, node: ast.Call, func: ast.Attribute) -> None:
    unit = plan.unit
    receiver = unit.kind(func.value)
    if receiver.is_tensor:
        plan.taken.add(func)
        dotted = f"torch.Tensor.{func.attr}"
        row = unit.book.find(dotted)
        if row is None:
            if torch_names().known(dotted):
                plan.found("JM302", node, dotted, f"no rule for {dotted}", evidence=why(receiver))
            return
        strict = row.strict if node in unit.taken else None
        apply(plan, strict or row, node, dotted, func.value, why(receiver))
        return
    if receiver.tag in RECEIVERS and receiver.name != "plain":
        _object_method(plan, node, func, receiver)
        return
    if receiver.tag == "unknown" and func.attr in unit.book.methods and not _fits_no_torch(plan, node, func):
        _unknown_receiver(plan, node, func)


def _fits_no_torch(plan: Plan, node: ast.Call, func: ast.Attribute) -> bool:
    """Whether the form of a call is none of torch's: `.split(",")` is of a str, `.sort(key=…)` of a list,
    `.resize(…, Image.BICUBIC)` of an image, and no optimizer's step gives several values."""
    given = [*node.args, *(k.value for k in node.keywords)]
    if func.attr == "split":
        text = not given or plan.unit.kind(given[0]).tag == "str"
        return text or any(k.arg in ("sep", "maxsplit") for k in node.keywords)
    if func.attr == "sort":
        return any(k.arg in ("key", "reverse") for k in node.keywords)
    if func.attr == "resize":
        return any((plan.unit.resolve(a) or "").startswith("PIL.") for a in given)
    return func.attr == "step" and unpacked(node, plan.unit) > 1


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
            receiver.tag == "Module"
            and receiver.facts is None
            and receiver.name not in ("", "torch.nn.Module", *CONTAINERS)
        )
        if torch_names().known(dotted) or layer:
            name = f"{receiver.name}.{func.attr}" if layer else dotted
            plan.found("JM302", node, name, f"no rule for {name}", evidence=why(receiver))
        return
    plan.taken.add(func)
    apply(plan, row, node, dotted, func.value, why(receiver))


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
    if row is not None and same_for_arrays(node):
        plan.found("JM001", node, dotted, f"JAX arrays have `.{func.attr}()` too", rule=row.name,
                   evidence="receiver unknown, the same method of any array")  # fmt: skip
        return
    owned = plan.unit.around.owned
    if (
        row is not None
        and func.attr == "transpose"
        and swaps_two(node)
        and owned is not None
        and func.attr not in owned
    ):
        apply(plan, row, node, dotted, func.value, "receiver unknown, NumPy's arrays of two axes swap them too")
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
