"""What functions of the project return of their arguments, as their text says."""

from __future__ import annotations

import ast

from ...read.facts import FunctionFacts
from ...read.unit import Unit
from .writes import first_receiver


def handed_on(unit: Unit, node: ast.expr) -> ast.expr | None:
    """The argument that a call of a project function certainly returns itself; None for all else."""
    facts = unit.kind(node.func).facts if isinstance(node, ast.Call) else None
    if not isinstance(node, ast.Call) or not isinstance(facts, FunctionFacts) or facts.node.decorator_list:
        return None
    if facts.unit.usage(facts.node).yields or isinstance(facts.node, ast.AsyncFunctionDef):
        return None
    returned = {_returned(facts, stmt) for stmt in own_returns(facts)}
    if len(returned) != 1 or reaches_end(facts.node.body):
        return None
    return dict(arguments(facts, node) or []).get(returned.pop())


def _returned(facts: FunctionFacts, stmt: ast.Return) -> str:
    """The parameter that a `return` gives, "" for anything else."""
    if stmt.value is None:
        return ""
    value = first_receiver(facts.unit, stmt.value)
    return value.id if isinstance(value, ast.Name) and value.id in steady(facts) else ""


def hands_back(facts: FunctionFacts, name: str) -> bool:
    """Whether a plain function ends only by returning its parameter `name`, which `+=` alone binds again."""
    node = facts.node
    if node.decorator_list or isinstance(node, ast.AsyncFunctionDef) or facts.unit.usage(node).yields:
        return False
    others = [b.node for b in facts.unit.scopes.of[node].bindings.get(name, []) if b.kind != "param"]
    if reaches_end(node.body) or not all(isinstance(_augmentation(facts.unit, n), ast.AugAssign) for n in others):
        return False
    values = [r.value for r in own_returns(facts)]
    return bool(values) and all(isinstance(v, ast.Name) and v.id == name for v in values)


def own_returns(facts: FunctionFacts) -> list[ast.Return]:
    """The `return`s of a function, not those of functions inside it."""
    return [n for n in facts.unit.tree.own(facts.node) if isinstance(n, ast.Return)]


def steady(facts: FunctionFacts) -> frozenset[str]:
    """Parameters whose name is bound by nothing but the call (and by writes to the tensor)."""
    spec = facts.node.args
    scope = facts.unit.scopes.of[facts.node]
    found = set()
    for arg in [*spec.posonlyargs, *spec.args, *spec.kwonlyargs]:
        others = [b.node for b in scope.bindings.get(arg.arg, []) if b.kind != "param"]
        if all(_augments(facts.unit, n) for n in others):
            found.add(arg.arg)
    if facts.owner is not None and spec.args and not _static(facts):
        found.discard(spec.args[0].arg)
    return frozenset(found)


def _augments(unit: Unit, node: ast.AST) -> bool:
    up = _augmentation(unit, node)
    return isinstance(up, ast.AugAssign) and unit.kind(up.target).is_tensor


def _augmentation(unit: Unit, node: ast.AST) -> ast.AST | None:
    """The statement `x += y` that a binding belongs to, else what is around the binding."""
    return node if isinstance(node, ast.AugAssign) else unit.tree.parents.get(node)


def _static(facts: FunctionFacts) -> bool:
    return any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in facts.node.decorator_list)


def arguments(facts: FunctionFacts, node: ast.Call) -> list[tuple[str, ast.expr]] | None:
    """The arguments of a call by parameter name; None when they are unpacked."""
    spec = facts.node.args
    names = [a.arg for a in [*spec.posonlyargs, *spec.args]]
    if facts.owner is not None and names and not _static(facts):
        names = names[1:]
    if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
        return None
    return [*zip(names, node.args, strict=False), *((k.arg or "", k.value) for k in node.keywords)]


def reaches_end(body: list[ast.stmt]) -> bool:
    """Whether a body can run past its last statement."""
    last = body[-1]
    if isinstance(last, (ast.Return, ast.Raise)):
        return False
    if isinstance(last, ast.If):
        return not last.orelse or reaches_end(last.body) or reaches_end(last.orelse)
    if isinstance(last, (ast.With, ast.AsyncWith)):
        return reaches_end(last.body)
    return True
