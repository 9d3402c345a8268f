"""What a call runs, when that is the project's own."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from ...read.facts import ClassFacts, FunctionFacts
from ...read.unit import Unit

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def called(unit: Unit, call: ast.Call) -> tuple[Function, Unit] | None:
    """The project's own function, method or lambda that a call runs, and its file."""
    func = call.func
    if isinstance(func, ast.Lambda):
        return func, unit
    facts: object = unit.local(func) or unit.kind(func).facts
    if isinstance(func, ast.Attribute) and not isinstance(facts, FunctionFacts):
        facts = _method(unit, func)
    if isinstance(facts, ClassFacts):
        facts = facts.method("__call__")
    if isinstance(facts, FunctionFacts):
        return facts.node, facts.unit
    if isinstance(func, ast.Name):
        scope = unit.scope(func).lookup(func.id)
        for binding in scope.bindings.get(func.id, []) if scope is not None else []:
            stmt = unit.tree.parents.get(binding.node)
            if isinstance(stmt, ast.Assign) and isinstance(stmt.value, ast.Lambda):
                return stmt.value, unit
    return None


def _method(unit: Unit, func: ast.Attribute) -> FunctionFacts | None:
    owner = unit.kind(func.value).facts
    if ast.unparse(func.value) == "self":
        owner = unit.classes.get(unit.tree.class_of(func))  # type: ignore[arg-type]
    return owner.method(func.attr) if isinstance(owner, ClassFacts) else None


def arguments_at(unit: Unit, function: ast.AST) -> list[tuple[ast.Call, Mapping[str, ast.expr]]] | None:
    """The calls of a plain function, each with what it gives the parameters; None when not all of them are seen and
    understood."""
    facts = unit.functions.get(function)
    if not isinstance(facts, FunctionFacts) or facts.owner is not None or not set(facts.seen) <= {unit}:
        return None
    spec = facts.node.args
    if spec.vararg or spec.kwarg or facts.node.decorator_list:
        return None
    names = [a.arg for a in (*spec.posonlyargs, *spec.args)]
    found: list[tuple[ast.Call, Mapping[str, ast.expr]]] = []
    for use in unit.tree.all(ast.Name):
        if use.id != facts.name or not isinstance(use.ctx, ast.Load) or unit.local(use) is not facts:
            continue
        call = unit.tree.parents[use]
        if not isinstance(call, ast.Call) or call.func is not use or len(call.args) > len(names):
            return None
        if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
            return None
        given = dict(zip(names, call.args, strict=False))
        found.append((call, given | {k.arg: k.value for k in call.keywords if k.arg is not None}))
    return found


def is_backward(node: ast.AST) -> bool:
    """A call of a method named `backward`."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "backward"


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function or module, without those of functions and classes in it."""
    todo = list(ast.iter_child_nodes(function))
    while todo:
        node = todo.pop()
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            yield node
            todo += ast.iter_child_nodes(node)
