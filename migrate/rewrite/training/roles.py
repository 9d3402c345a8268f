"""Who is who in a training step: the optimizer and the model, by kind or by use."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ...read.facts import ClassFacts
from ...read.unit import Unit
from ..plan import Plan
from .flow import behind, uses

MODULE = "torch.nn.Module."
SWITCHES = ("train", "eval")


class NotPlain(Exception):
    """A training step has a part that the plain form does not have: the text, which becomes the finding's message."""


def method_call(stmt: ast.AST, name: str) -> ast.Call | None:
    """The call of a statement `x.name(…)`."""
    call = stmt.value if isinstance(stmt, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == name:
        return call
    return None


def function_of(unit: Unit, node: ast.AST) -> ast.AST:
    """The function around a node, or the module."""
    return unit.tree.function(node) or unit.tree.root


def _where(unit: Unit, node: ast.expr) -> ast.AST:
    """Where to look for other uses of `node`: the class for `self.x`, else the function."""
    cls = unit.tree.class_of(node) if ast.unparse(node).startswith("self.") else None
    return cls or function_of(unit, node)


def is_optimizer(unit: Unit, node: ast.expr) -> bool:
    """By kind, or by use: zero_grad is called on it and its kind is not known."""
    kind = unit.kind(node)
    if kind.known:
        return kind.tag == "Optimizer"
    text = ast.unparse(node)
    return any(
        isinstance(n, ast.Attribute) and n.attr == "zero_grad" and ast.unparse(n.value) == text
        for n in ast.walk(_where(unit, node))
    )


def has_parameters(unit: Unit, node: ast.expr) -> bool:
    """Whether a module can hold parameters: torch's losses and activations do not."""
    kind = unit.kind(node)
    row = unit.book.find(kind.name) if kind.facts is None else None
    if row is None or not row.get("layer"):
        return True
    return bool(row.get("params"))


def is_model(unit: Unit, node: ast.AST) -> bool:
    """Whether a name or attribute is a module with parameters, by kind or by use."""
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return False
    kind = unit.kind(node)
    if kind.known:
        return kind.tag == "Module" and kind.name not in ("plain", "super") and has_parameters(unit, node)
    text = ast.unparse(node)
    return any(
        isinstance(n, ast.Attribute) and n.attr in ("train", "eval", "parameters") and ast.unparse(n.value) == text
        for n in ast.walk(_where(unit, node))
    )


def modules_called(plan: Plan, function: ast.AST, losses: Iterable[ast.expr]) -> list[str]:
    """The modules, as source text, that the losses' slices of a function call or hand to a function."""
    unit = plan.unit
    names: set[str] = set()
    parts: list[ast.AST] = list(losses)
    seen: set[ast.AST] = set()
    found: dict[str, None] = {}
    while parts:
        part = parts.pop()
        for node in ast.walk(part):
            if isinstance(node, ast.Name):
                names.add(node.id)
            if isinstance(node, ast.Call):
                found |= dict.fromkeys(_models_of_call(unit, node))
        for stmt in ast.walk(function):
            if isinstance(stmt, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and stmt not in seen:
                if uses(stmt).writes & names:
                    seen.add(stmt)
                    parts.append(stmt)
    return list(found)


def _models_of_call(unit: Unit, node: ast.Call) -> Iterable[str]:
    yield from behind(node)
    owner = node.func.value if isinstance(node.func, ast.Attribute) else None
    called = next((n for n in (node.func, owner) if n is not None and is_model(unit, n)), None)
    given = [a for a in [*node.args, *(k.value for k in node.keywords)] if is_model(unit, a)]
    for found in [*([called] if called is not None else []), *given]:
        if ast.unparse(found) != "self":
            yield ast.unparse(found)


def is_module(plan: Plan, node: ast.expr) -> bool:
    """A module by kind, or by use when its kind is not known."""
    kind = plan.unit.kind(node)
    if kind.known:
        return kind.tag == "Module" and kind.name not in ("plain", "super")
    return is_model(plan.unit, node) and _used_only_so(plan, node)


def _used_only_so(plan: Plan, node: ast.expr) -> bool:
    """Only modules have `parameters()`; `train` and `eval` alone are shared with other libraries' models."""
    text = ast.unparse(node)
    where = function_of(plan.unit, node)
    names = {n.attr for n in ast.walk(where) if isinstance(n, ast.Attribute) and ast.unparse(n.value) == text}
    called = any(isinstance(n, ast.Call) and ast.unparse(n.func) == text for n in ast.walk(where))
    return bool(names & {"parameters", "named_parameters", "state_dict", "zero_grad"}) or (
        called and bool(names & set(SWITCHES))
    )


def has_own(plan: Plan, func: ast.Attribute) -> bool:
    """Whether the project's own class defines the method."""
    facts = plan.unit.kind(func.value).facts
    return isinstance(facts, ClassFacts) and facts.method(func.attr) is not None


def refuse(plan: Plan, node: ast.Call, code: str, dotted: str, why: str) -> None:
    """Leave a method call with its finding."""
    plan.taken |= {node, node.func}
    advice = {
        MODULE + "requires_grad_": "Give nnx.Optimizer and nnx.grad a filter of the parameters to train (wrt=…)."
    }.get(dotted, "Write it as a statement of its own.")
    plan.found(code, node, dotted, why, advice=advice)
