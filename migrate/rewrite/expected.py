"""`except TypeError` and `except AttributeError` around what torch refuses and JAX takes.

torch's functions take tensors only, and numbers have none of a tensor's methods: code that catches the error tells
tensors from numbers so. JAX's functions take numbers and NumPy's arrays too, and the handler would be passed by.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..read.facts import FunctionFacts
from ..read.unit import Unit
from .plan import Plan

_ERRORS = frozenset({"builtins.TypeError", "builtins.AttributeError"})
_TAKES = frozenset({"self", "input"})
ADVICE = "Ask isinstance(x, jax.Array) before the call."


def plan_expected(plan: Plan) -> None:
    """Report the handlers of a file that JAX may not reach where torch does."""
    unit = plan.unit
    for node in unit.tree.all(ast.Try):
        handler = next((h for h in node.handlers if _names_error(h, unit)), None)
        if handler is None or handler.type is None:
            continue
        calls = (n for stmt in node.body for n in unit.tree.walk(stmt) if isinstance(n, ast.Call))
        for call in calls:
            if name := _lenient(call, unit):
                line = unit.tree.position(unit.tree.start(call))[0]
                text = f"{name} (line {line}) takes tensors only, JAX numbers and NumPy arrays too: no error then"
                plan.found("JM209", handler.type, name, text, advice=ADVICE)
                break


def _names_error(handler: ast.ExceptHandler, unit: Unit) -> bool:
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(t is not None and unit.resolve(t) in _ERRORS for t in types)


def _lenient(call: ast.Call, unit: Unit) -> str:
    """The function that is given something that may be no tensor where torch takes only one, or ""."""
    facts = unit.kind(call.func).facts
    if isinstance(facts, FunctionFacts):
        wanted = {*facts.unit.usage(facts.node).tensors, *_taken(facts)}
        spec = facts.node.args
        names = [a.arg for a in [*spec.posonlyargs, *spec.args]][facts.owner is not None :]
        given = [*zip(names, call.args, strict=False), *((k.arg or "", k.value) for k in call.keywords)]
        return facts.name if any(n in wanted and _may_be_number(v, unit) for n, v in given) else ""
    dotted = unit.resolve(call.func) or ""
    row = unit.book.find(dotted) if dotted.startswith("torch.") else None
    if row is None or row.signature is None or not call.args or not row.signature.params:
        return ""
    first = row.signature.params[0]
    takes = first.kind == "normal" and first.name in _TAKES and bool(row.options) and not row.get("layer")
    return dotted if takes and _may_be_number(call.args[0], unit) else ""


def _taken(facts: FunctionFacts) -> Iterator[str]:
    """The names on which the function calls methods that were taken as they come."""
    for node in facts.unit.taken:
        value = node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
        if isinstance(value, ast.Name) and facts.unit.tree.function(node) is facts.node:
            yield value.id


def _may_be_number(node: ast.expr, unit: Unit) -> bool:
    kind = unit.kind(node)
    return not kind.known or kind.tag in ("int", "float", "bool", "numpy")
