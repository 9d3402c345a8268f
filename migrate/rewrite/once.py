"""Whether a target form evaluates the arguments of a call once each, and in their order."""

from __future__ import annotations

import ast

from ..read.unit import Unit
from ..rulebook.signature import Arguments
from ..rulebook.template import Form

# Calls that only make an array of a size: running one twice changes nothing and costs nothing.
_CREATORS = frozenset(
    """
    empty zeros ones new_empty new_zeros new_ones empty_like zeros_like ones_like size dim numel full tensor
    FloatTensor float half double long to type
    """.split()  # noqa: SIM905
)
_BUILTINS = frozenset(
    f"builtins.{name}"
    for name in "abs bool dict float int len list max min range round set slice str sum tuple".split()  # noqa: SIM905
)


def misplaced(form: Form, arguments: Arguments, unit: Unit) -> str:
    """Why a form would change what evaluating the arguments does, or "": one of them more than a look-up and written
    twice, or two of them with effects and in another order."""
    order = list(dict.fromkeys(h.name.lstrip("*") for h in form.holes))
    count = [h.name.lstrip("*") for h in form.holes].count
    if any(count(n) > 1 and any(_costs(a, unit) for a in _nodes(n, arguments)) for n in order):
        return "its target reads an argument twice, which is a call here"
    acting = [a for n in order for a in _nodes(n, arguments) if any(_acts(sub, unit) for sub in ast.walk(a))]
    if acting != sorted(acting, key=unit.tree.start):
        return "its target evaluates the arguments, which are calls, in another order"
    return ""


def _nodes(name: str, arguments: Arguments) -> list[ast.expr]:
    node = arguments.named.get(name)
    return [node] if node is not None else list(arguments.rest) if name == arguments.rest_name else []


def _costs(argument: ast.expr, unit: Unit) -> bool:
    return any(
        isinstance(sub, (ast.NamedExpr, ast.Await)) or (isinstance(sub, ast.Call) and not _creates(sub, unit))
        for sub in ast.walk(argument)
    )


def _creates(call: ast.Call, unit: Unit) -> bool:
    dotted = unit.resolve(call.func) or ""
    if dotted.startswith("torch.") or _on_tensor(call, unit):
        return _name(call, dotted) in _CREATORS
    return dotted in ("builtins.len", "builtins.int")


def _acts(node: ast.AST, unit: Unit) -> bool:
    """Whether evaluating a node may do more than give a value: a function that is not known, a yield."""
    if isinstance(node, (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)):
        return True
    if not isinstance(node, ast.Call) or unit.kind(node.func).tag == "Module":
        return False
    dotted = unit.resolve(node.func) or ""
    if dotted.startswith("torch.") or _on_tensor(node, unit):
        return _name(node, dotted).endswith("_")
    return dotted not in _BUILTINS and not dotted.startswith(("math.", "numpy.", "einops."))


def _on_tensor(call: ast.Call, unit: Unit) -> bool:
    return isinstance(call.func, ast.Attribute) and unit.kind(call.func.value).is_tensor


def _name(call: ast.Call, dotted: str) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else dotted.rpartition(".")[2]
