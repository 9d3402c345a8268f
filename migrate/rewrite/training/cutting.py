"""Functions that detach what they are given: `repackage_hidden(h)` of language models."""

from __future__ import annotations

import ast

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
    inner = {n for f in ast.walk(function) if f is not function and isinstance(f, _FUNCTIONS) for n in ast.walk(f)}
    returns = [n for n in ast.walk(function) if isinstance(n, ast.Return) and n not in inner]
    return bool(returns) and all(r.value is not None and _detached(unit, r.value, function) for r in returns)


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


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
