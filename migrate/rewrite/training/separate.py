"""Whether two modules share no parameters, as far as the source shows."""

from __future__ import annotations

import ast
from collections.abc import Collection

from ...read.unit import Unit
from .callees import arguments_at
from .flow import uses
from .roles import function_of

_COPIES = ("copy.deepcopy",)


def separate(
    unit: Unit, node: ast.AST, one: str, other: str, trained: Collection[str], inside: tuple[ast.AST, ...] = ()
) -> bool:
    """Whether the modules `one` and `other`, as spelled near `node`, are different ones. `trained` are those that have
    optimizers of their own here, `inside` the functions whose calls led here."""
    if one in trained and other in trained:
        return True
    first, second = _makers(unit, node, one), _makers(unit, node, other)
    if first is not None and second is None and _given_before(unit, node, other, one):
        return _independent(unit, first, one, other)
    if second is not None and first is None and _given_before(unit, node, one, other):
        return _independent(unit, second, other, one)
    if _made_beside(unit, node, first, one, other) or _made_beside(unit, node, second, other, one):
        return True
    if first is None or second is None:
        return _separate_arguments(unit, node, one, other, inside)
    return _independent(unit, first, one, other) and _independent(unit, second, other, one)


def _given_before(unit: Unit, node: ast.AST, name: str, made: str) -> bool:
    """Whether a name is a parameter that the function neither binds again nor gives an attribute or, by a method or
    setattr, the module `made`: what is made in the function is no part of it."""
    function = function_of(unit, node)
    scope = unit.scopes.of.get(function)
    bindings = scope.bindings.get(name, []) if scope is not None else []
    if not name.isidentifier() or [b.kind for b in bindings] != ["param"]:
        return False
    return not _attached(unit, function, name, made)


def _made_beside(unit: Unit, node: ast.AST, values: list[ast.expr] | None, made: str, given: str) -> bool:
    """Whether the method that is given `self.net` makes the module `made`, which then gets no part of it, or the other
    way round: `def __init__(self, net): self.net = net; self.loss = Loss()`."""
    cls = unit.tree.class_of(node)
    held = _makers(unit, node, given) if given.startswith("self.") else None
    name = held[0] if held is not None and len(held) == 1 else None
    if not isinstance(name, ast.Name) or not values or cls is None or not made.startswith("self."):
        return False
    method = function_of(unit, name)
    scope = unit.scopes.of.get(method)
    if scope is None or [b.kind for b in scope.bindings.get(name.id, [])] != ["param"]:
        return False
    return (
        all(function_of(unit, v) is method for v in values)
        and all(_independent(unit, values, made, text) for text in (given, name.id))
        and not _attached(unit, cls, given, made)
        and not _attached(unit, method, name.id, made)
    )


def _attached(unit: Unit, code: ast.AST, name: str, made: str) -> bool:
    """Whether code gives a module an attribute or, by a method or setattr, the module `made`."""
    inside = (f"{name}.", f"{name}[")
    for part in ast.walk(code):
        if isinstance(part, (ast.Attribute, ast.Subscript)) and isinstance(part.ctx, ast.Store):
            if ast.unparse(part).startswith(inside):
                return True
        if isinstance(part, ast.Call) and f"{_receiver(unit, part)}.".startswith(inside):
            given = [n for a in (*part.args, *part.keywords) for n in ast.walk(a)]
            called = [n.func for n in given if isinstance(n, ast.Call)]
            if any(ast.unparse(n) == made and n not in called for n in given):
                return True
    return False


def _receiver(unit: Unit, call: ast.Call) -> str:
    """What a method, or setattr, may give an attribute; "" where it is neither."""
    if unit.resolve(call.func) == "builtins.setattr" and call.args:
        return ast.unparse(call.args[0])
    return ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""


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
        parts = [*built.args, *(k.value for k in built.keywords), built.func]
        if other.rpartition(".")[2] in uses(parts).reads or any(_mentions(unit, part, other) for part in parts):
            return False
    return True


def _mentions(unit: Unit, code: ast.AST, text: str) -> bool:
    """Whether code reads a module by its text, or the object whose attribute it is."""
    owner = text.partition(".")[0] if "." in text else ""
    return any(
        ast.unparse(n) == text
        or (isinstance(n, ast.Name) and n.id == owner and not isinstance(unit.tree.parents[n], ast.Attribute))
        for n in ast.walk(code)
        if isinstance(n, (ast.Name, ast.Attribute))
    )


def _placed(name: str) -> bool:
    return name in ("to", "cuda", "cpu", "train", "eval", "float", "half", "double")


def _separate_arguments(unit: Unit, node: ast.AST, one: str, other: str, inside: tuple[ast.AST, ...]) -> bool:
    """Whether two parameters of a function get different modules at each of its calls."""
    function = function_of(unit, node)
    calls = arguments_at(unit, function) if function not in inside else None
    return bool(calls) and all(
        _different(unit, call, given.get(one), given.get(other), (*inside, function)) for call, given in calls or ()
    )


def _different(
    unit: Unit, call: ast.Call, first: ast.expr | None, second: ast.expr | None, inside: tuple[ast.AST, ...]
) -> bool:
    """Whether two arguments are different modules. One that is made right there, `Loss(…)`, is part of nothing else."""
    if first is None or second is None:
        return False
    one, other = ast.unparse(first), ast.unparse(second)
    if isinstance(first, ast.Call):
        return _independent(unit, [first], "", other)
    if isinstance(second, ast.Call):
        return _independent(unit, [second], "", one)
    return one != other and separate(unit, call, one, other, (), inside)
