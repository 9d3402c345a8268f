"""Names of torch that are looked up at run time: `getattr(nn, name)`, from the names that the project shows."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection

from ...read.chosen import Choices, looked_up, pattern
from ...rulebook.precedence import ATOM
from ..plan import Plan, Whole
from ..values import function_text, plan_value
from ..writer import Writer

OTHERS = "Any other name raises an error: add it where this one is looked up."


def plan_named(plan: Plan) -> None:
    """Decide every `getattr` that looks into a module of torch."""
    for node in plan.unit.tree.all(ast.Call):
        module = looked_up(plan.unit, node)
        if module and node not in plan.taken:
            _lookup(plan, node, module)


def _lookup(plan: Plan, node: ast.Call, module: str) -> None:
    name = node.args[1]
    if isinstance(name, ast.Constant) and isinstance(name.value, str):
        plan.taken.update((node, node.func, node.args[0]))
        if module == "torch.nn.init" and name.value in plan.catalogue:
            spelled = plan.layer(name.value)
            plan.replace(node, spelled)
            plan.found("JM002", node, f"{module}.{name.value}", f"-> {spelled}, which takes rngs")
            return
        plan_value(plan, node, f"{module}.{name.value}")
        return
    names, closed = _names(plan, name, module)
    call = plan.unit.tree.parents.get(node)
    given = {k.arg for k in call.keywords} if isinstance(call, ast.Call) and call.func is node else set()
    if not names or (missing := sorted(n for n in names if not _converts(plan, module, n, given))):
        spelled = "".join(f" with {k}=" if k else " with **" for k in given)
        why = f": {module}.{missing[0]}{spelled} is not in the layer library" if names else ""
        plan.taken.update((node, node.func, node.args[0]))
        message = f"which name of {module} this is shows only at run time{why}"
        advice = "Choose from a dict of the classes or functions that are meant."
        plan.found("JM304", node, module, message, advice=advice)
        return
    plan.taken.update((node, node.func, node.args[0]))
    if module in ("torch.nn", "torch.nn.init"):
        plan.layers.update(names)
        plan.replace(node.args[0], "nnx_layers")
        text = "nnx_layers"
    else:
        _table(plan, node, module, sorted(names))
        text = "a dict"
    shown = ", ".join(sorted(names))
    message = f"getattr({module.removeprefix('torch.')}, …) -> {text}, for {shown}"
    plan.found("JM002" if closed else "JM101", node, module, message, advice="" if closed else OTHERS)


def _names(plan: Plan, name: ast.expr, module: str) -> tuple[set[str], bool]:
    """The names that may be looked up in a module, as far as the project shows, and whether these are all."""
    if written := pattern(name):
        known = (n.rpartition(".") for n in plan.unit.book.rows)
        return {short for head, _, short in known if head == module and re.fullmatch(written, short)}, True
    choices = Choices(plan.project, plan.unit)
    return choices.of(name) or set(), choices.closed


def names_looked_up(plan: Plan, node: ast.expr) -> list[str]:
    """The classes that `getattr(nn, name)` may give; none for any other expression."""
    if looked_up(plan.unit, node) != "torch.nn":
        return []
    assert isinstance(node, ast.Call)
    return sorted(_names(plan, node.args[1], "torch.nn")[0])


def looked_up_take(plan: Plan, given: Collection[str | None]) -> bool:
    """Whether every function that this file looks up in torch.nn.functional takes the keywords, as it is written."""
    module = "torch.nn.functional"
    lookups = [node for node in plan.unit.tree.all(ast.Call) if looked_up(plan.unit, node) == module]
    names = [_names(plan, node.args[1], module)[0] for node in lookups]
    return all(names) and bool(names) and all(_converts(plan, module, n, given) for some in names for n in some)


def _converts(plan: Plan, module: str, name: str, given: Collection[str | None]) -> bool:
    """Whether the layer file, or a dict, can have the thing of that name, called with the keywords that are given."""
    if module == "torch.nn.init":
        return name in plan.catalogue
    row = plan.unit.book.find(f"{module}.{name}")
    if row is None or row.get("unmapped"):
        return False
    if module == "torch.nn":
        return row.get("layer") == name and name in plan.catalogue and name not in plan.native.layers
    found = function_text(plan, row)
    entry = plan.catalogue.get(found[0]) if found is not None else None
    return found is not None and (not given or (entry is not None and {*given} <= {*entry.params}))


def _table(plan: Plan, node: ast.Call, module: str, names: list[str]) -> None:
    """`{"relu": jax.nn.relu, "tanh": jnp.tanh}[name]` for functions, which the layer file need not have."""
    entries = []
    for name in names:
        row = plan.unit.book.find(f"{module}.{name}")
        found = function_text(plan, row) if row is not None else None
        entries.append(f'"{name}": {found[0] if found else name}')

    def build(writer: Writer) -> str:
        return f"{{{', '.join(entries)}}}[{writer.at_level(node.args[1], 1)}]"

    plan.whole[node] = Whole(build, ATOM, (node.args[1],))
