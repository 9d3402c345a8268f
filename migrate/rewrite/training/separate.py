"""Whether two modules share no parameters, as far as the source shows."""

from __future__ import annotations

import ast
from collections.abc import Collection

from ...read.facts import FunctionFacts
from ...read.unit import Unit
from .flow import root_name, uses
from .roles import function_of

_COPIES = ("copy.deepcopy",)


def separate(unit: Unit, node: ast.AST, one: str, other: str, trained: Collection[str]) -> bool:
    """Whether the modules `one` and `other`, as spelled near `node`, are different ones. `trained` are those that have
    optimizers of their own here."""
    if one in trained and other in trained:
        return True
    first, second = _makers(unit, node, one), _makers(unit, node, other)
    if first is not None and second is None and _given_before(unit, node, other, one):
        return _independent(unit, first, one, other)
    if second is not None and first is None and _given_before(unit, node, one, other):
        return _independent(unit, second, other, one)
    if first is None or second is None:
        return _separate_arguments(unit, node, one, other)
    return _independent(unit, first, one, other) and _independent(unit, second, other, one)


def _given_before(unit: Unit, node: ast.AST, name: str, made: str) -> bool:
    """Whether a name is a parameter that the function neither binds again nor gives an attribute or, by a method or
    setattr, the module `made`: what is made in the function is no part of it."""
    function = function_of(unit, node)
    scope = unit.scopes.of.get(function)
    bindings = scope.bindings.get(name, []) if scope is not None else []
    if not name.isidentifier() or [b.kind for b in bindings] != ["param"]:
        return False
    for part in ast.walk(function):
        if isinstance(part, (ast.Attribute, ast.Subscript)) and isinstance(part.ctx, ast.Store):
            if root_name(part) == name:
                return False
        if isinstance(part, ast.Call) and _receiver(unit, part) == name:
            given = [n for a in (*part.args, *part.keywords) for n in ast.walk(a)]
            called = [n.func for n in given if isinstance(n, ast.Call)]
            if any(ast.unparse(n) == made and n not in called for n in given):
                return False
    return True


def _receiver(unit: Unit, call: ast.Call) -> str | None:
    """The name of what a method, or setattr, may give an attribute."""
    if unit.resolve(call.func) == "builtins.setattr" and call.args:
        return root_name(call.args[0])
    return root_name(call.func) if isinstance(call.func, ast.Attribute) else None


def _makers(unit: Unit, node: ast.AST, text: str) -> list[ast.expr] | None:
    """The expressions that are assigned to a name of this file or an attribute of this class; None: not all known."""
    if text.startswith("self."):
        cls = unit.tree.class_of(node)
        found = [s for s in ast.walk(cls) if isinstance(s, ast.Assign)] if cls is not None else []
        values = [v for s in found for t in s.targets for v in _given(t, s.value, text)]
        return values or None
    scope = unit.scope(node).lookup(text.partition(".")[0])
    bindings = scope.bindings.get(text, []) if scope is not None else []
    values = []
    for binding in bindings:
        stmt = unit.tree.parents.get(binding.node)
        if binding.kind == "assign" and isinstance(stmt, ast.Tuple) and isinstance(stmt.ctx, ast.Store):
            outer = unit.tree.parents[stmt]
            pair = outer.value if isinstance(outer, ast.Assign) else None
            if isinstance(pair, ast.Tuple) and len(pair.elts) == len(stmt.elts):
                values.append(pair.elts[stmt.elts.index(binding.node)])  # type: ignore[arg-type]
                continue
        if not isinstance(stmt, ast.Assign) or binding.node not in stmt.targets:
            return None
        values.append(stmt.value)
    return values or None


def _given(target: ast.expr, value: ast.expr, text: str) -> list[ast.expr]:
    """What an assignment to `target` gives the expression `text`: itself, or the same place of a tuple."""
    if ast.unparse(target) == text:
        return [value]
    if isinstance(target, ast.Tuple) and any(ast.unparse(e) == text for e in target.elts):
        same = isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts)
        pairs = zip(target.elts, value.elts, strict=True) if isinstance(value, ast.Tuple) and same else ()
        return [v for t, v in pairs if ast.unparse(t) == text] or [ast.Constant(None)]
    return []


def _independent(unit: Unit, values: list[ast.expr], own: str, other: str) -> bool:
    """Whether all values of `own` are new modules that do not contain `other`, or itself in another place."""
    for value in values:
        built: ast.expr = value
        while isinstance(built, ast.Call) and isinstance(built.func, ast.Attribute) and _placed(built.func.attr):
            built = built.func.value
        if built is not value and ast.unparse(built) == own and len(values) > 1:
            continue  # `net = net.cuda()`
        if not isinstance(built, ast.Call):
            return False
        if unit.resolve(built.func) in _COPIES:
            continue
        root = other.rpartition(".")[2]
        if root in uses(list(built.args) + [k.value for k in built.keywords]).reads:
            return False
        if isinstance(built.func, ast.Attribute) and root in uses(built.func).reads:
            return False
    return True


def _placed(name: str) -> bool:
    return name in ("to", "cuda", "cpu", "train", "eval", "float", "half", "double")


def _separate_arguments(unit: Unit, node: ast.AST, one: str, other: str) -> bool:
    """Whether two parameters of a function get different, separately made modules at each of its calls."""
    function = function_of(unit, node)
    facts = unit.functions.get(function)
    if not isinstance(facts, FunctionFacts) or facts.owner is not None:
        return False
    names = [a.arg for a in [*facts.node.args.posonlyargs, *facts.node.args.args]]
    if one not in names or other not in names:
        return False
    calls = [c for c in unit.tree.all(ast.Call) if isinstance(c.func, ast.Name) and unit.local(c.func) is facts]
    return bool(calls) and all(_different(unit, c, names.index(one), names.index(other)) for c in calls)


def _different(unit: Unit, call: ast.Call, one: int, other: int) -> bool:
    if max(one, other) >= len(call.args):
        return False
    first, second = call.args[one], call.args[other]
    if not isinstance(first, ast.Name) or not isinstance(second, ast.Name) or first.id == second.id:
        return False
    makers = _makers(unit, first, first.id), _makers(unit, second, second.id)
    if makers[0] is None or makers[1] is None:
        return False
    return _independent(unit, makers[0], first.id, second.id) and _independent(unit, makers[1], second.id, first.id)
