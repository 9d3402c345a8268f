"""Functions that detach what they are given: `repackage_hidden(h)` of language models."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ...read.unit import Unit
from .callees import Function, called
from .cuts import cuts
from .flow import mark_cut


def mark_cuts(unit: Unit) -> None:
    """Mark the calls of the project's functions that give nothing but detached values."""
    known: dict[ast.AST, bool] = {}
    for call in unit.tree.all(ast.Call):
        found = called(unit, call)
        if found is None or found[1] is not unit:
            continue
        function = found[0]
        if function not in known:
            known[function] = detaches(unit, function)
        if known[function]:
            mark_cut(call)


def detaches(unit: Unit, function: Function) -> bool:
    """Whether all that a function returns is detached: `h.detach()`, a tuple of those, or of calls of itself."""
    if not isinstance(function, ast.FunctionDef) or function.decorator_list:
        return False
    returns = list(_returns(function.body))
    return bool(returns) and all(r.value is not None and _detached(unit, r.value, function) for r in returns)


def _returns(body: Iterable[ast.AST]) -> Iterator[ast.Return]:
    """The return statements of a function, without those of functions inside it."""
    for stmt in body:
        if isinstance(stmt, ast.Return):
            yield stmt
        elif isinstance(stmt, (ast.stmt, ast.ExceptHandler, ast.match_case)) and not isinstance(stmt, _DEFINITIONS):
            yield from _returns(ast.iter_child_nodes(stmt))


_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _detached(unit: Unit, value: ast.expr, function: ast.FunctionDef) -> bool:
    if isinstance(value, ast.IfExp):
        return _detached(unit, value.body, function) and _detached(unit, value.orelse, function)
    if isinstance(value, (ast.Tuple, ast.List)):
        return bool(value.elts) and all(_detached(unit, e, function) for e in value.elts)
    if isinstance(value, (ast.GeneratorExp, ast.ListComp)):
        return _detached(unit, value.elt, function)
    if not isinstance(value, ast.Call):
        return False
    made = unit.resolve(value.func)
    if made in ("builtins.tuple", "builtins.list") and len(value.args) == 1:
        return _detached(unit, value.args[0], function)
    found = called(unit, value)
    if found is not None and found[0] is function:
        return True
    return isinstance(value.func, ast.Attribute) and value.func.attr == "detach" and cuts(value)
