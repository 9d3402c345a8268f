"""What a call does to gradients when it runs a function of the project: `reset_grad()`, `self.reset()`, a lambda.

A helper that only sets gradients to zero counts as that, where it is called. One that does more with gradients is
`acting`: training code that calls it cannot be read by itself.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...read.facts import ClassFacts
from ...read.unit import Unit
from ..plan import Plan
from .callees import Function, called, is_backward, own_nodes
from .steps import Routine, Zeros, backward_calls


@dataclass(frozen=True)
class _Where:
    """The outermost statement, the functions that were entered from it, and what names stand for there."""

    unit: Unit
    outermost: ast.stmt
    given: Mapping[str, str]
    inside: tuple[Function, ...] = ()


def read_zeros(unit: Unit, stmt: ast.stmt) -> Zeros | None:
    """What a statement sets to zero: `x.zero_grad()`, a loop of those over names, a call of a helper that does only
    that. None for every other statement."""
    return _read(stmt, _Where(unit, stmt, {}))


def _read(stmt: ast.stmt, where: _Where) -> Zeros | None:
    unit = where.unit
    if isinstance(stmt, ast.For) and isinstance(stmt.target, ast.Name) and not stmt.orelse:
        return _each(unit, stmt.iter, stmt.target.id, where, lambda inner: _block(stmt.body, inner))
    call = stmt.value if isinstance(stmt, ast.Expr) else None
    if isinstance(call, ast.ListComp) and len(call.generators) == 1 and isinstance(call.elt, ast.Call):
        generator, element = call.generators[0], call.elt
        if generator.ifs or not isinstance(generator.target, ast.Name):
            return None
        return _each(unit, generator.iter, generator.target.id, where, lambda inner: _call(element, inner))
    return _call(call, where) if isinstance(call, ast.Call) else None


def _each(
    unit: Unit, listed: ast.expr, name: str, where: _Where, read: Callable[[_Where], Zeros | None]
) -> Zeros | None:
    """What is set to zero when `name` is each of the names of a list in turn."""
    names = _listed(unit, listed)
    if names is None:
        return None
    owners = [_owner(n, where) for n in names]
    if not all(owners):
        return None
    return _joined([read(replace(where, given={**where.given, name: owner})) for owner in owners])


def _call(call: ast.Call, where: _Where) -> Zeros | None:
    unit, inside = where.unit, where.inside
    if isinstance(call.func, ast.Attribute) and call.func.attr == "zero_grad":
        owner = _owner(call.func.value, where)
        return Zeros((owner,), (call,)) if owner else None
    found = called(unit, call)
    if found is None or found[1] is not unit or found[0] in inside or not acts(unit, found[0]):
        return None
    function = found[0]
    handed = _handed(call, function, where)
    if handed is None:
        return None
    if isinstance(function, ast.Lambda):
        body: list[ast.stmt] = [ast.Expr(function.body)]
    elif isinstance(function, ast.FunctionDef) and not function.decorator_list:
        body = function.body
    else:
        return None
    zeros = _block(body, replace(where, given=handed, inside=(*inside, function)))
    return None if zeros is None else replace(zeros, helpers=(function, *zeros.helpers))


def _block(body: Sequence[ast.stmt], where: _Where) -> Zeros | None:
    return _joined([_read(s, where) for s in body if not _empty(s)])


def _joined(parts: Sequence[Zeros | None]) -> Zeros | None:
    known = [p for p in parts if p is not None]
    if len(known) != len(parts) or not known:
        return None
    return Zeros(
        tuple(dict.fromkeys(o for p in known for o in p.owners)),
        tuple(dict.fromkeys(c for p in known for c in p.calls)),
        tuple(dict.fromkeys(h for p in known for h in p.helpers)),
    )


def _empty(stmt: ast.stmt) -> bool:
    """A docstring, `pass`, `return`."""
    if isinstance(stmt, ast.Return):
        return stmt.value is None or (isinstance(stmt.value, ast.Constant) and stmt.value.value is None)
    return isinstance(stmt, ast.Pass) or (isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Constant))


def _owner(node: ast.expr, where: _Where) -> str:
    """The text of an owner where the outermost statement stands; "" when it is not known there."""
    text = ast.unparse(node)
    root, dot, rest = text.partition(".")
    if not text.replace(".", "").isidentifier():
        return ""
    if root in where.given:
        return where.given[root] and where.given[root] + dot + rest
    unit = where.unit
    name = next(n for n in ast.walk(node) if isinstance(n, ast.Name))
    same = unit.scope(name).lookup(root) is unit.scope(where.outermost).lookup(root)
    return text if same or not where.inside else ""


def _handed(call: ast.Call, function: Function, where: _Where) -> dict[str, str] | None:
    """What the parameters of a function stand for in a call, "" for what is no name there; None when they are not all
    known."""
    spec = function.args
    if spec.vararg or spec.kwarg or any(isinstance(a, ast.Starred) for a in call.args):
        return None
    names = [a.arg for a in (*spec.posonlyargs, *spec.args)]
    values = list(call.args)
    if isinstance(call.func, ast.Attribute) and where.unit.tree.class_of(function) is not None:
        values.insert(0, call.func.value)
    if len(values) > len(names) or any(k.arg is None for k in call.keywords):
        return None
    pairs = dict(zip(names, values, strict=False)) | {k.arg: k.value for k in call.keywords if k.arg is not None}
    every = (*names, *(a.arg for a in spec.kwonlyargs))
    return {n: _owner(pairs[n], where) if n in pairs else "" for n in every}


def _listed(unit: Unit, node: ast.expr) -> list[ast.expr] | None:
    """The elements, all names, of `(a, b)`, or in a list that a name was assigned once."""
    if isinstance(node, ast.Name):
        scope = unit.scope(node).lookup(node.id)
        bindings = scope.bindings.get(node.id, []) if scope is not None else []
        stmt = unit.tree.parents.get(bindings[0].node) if len(bindings) == 1 else None
        if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1 or _changes(unit, node.id):
            return None
        node = stmt.value
    if isinstance(node, (ast.List, ast.Tuple)) and node.elts and all(isinstance(e, ast.Name) for e in node.elts):
        return node.elts
    return None


def _changes(unit: Unit, name: str) -> bool:
    """Whether anything is done with a list other than to read it in a loop."""
    return any(
        n.id == name and isinstance(unit.tree.parents[n], (ast.Attribute, ast.Subscript, ast.AugAssign, ast.Call))
        for n in unit.tree.all(ast.Name)
    )


def acts(unit: Unit, code: ast.AST, seen: set[ast.AST] | None = None) -> bool:
    """Whether code, or a function of the project that it calls, sets, adds to or uses gradients of parameters."""
    seen = set() if seen is None else seen
    if code in seen:
        return False
    seen.add(code)
    backwards = set(backward_calls(unit))
    for node in ast.walk(code):
        if isinstance(node, ast.Attribute) and _touches(unit, node):
            return True
        if not isinstance(node, ast.Call):
            continue
        if is_backward(node) and node in backwards:
            return True
        found = called(unit, node)
        if found is not None and found[0] is not code and acts(found[1], found[0], seen):
            return True
    return False


def _touches(unit: Unit, node: ast.Attribute) -> bool:
    if node.attr == "zero_grad":
        return True
    if node.attr == "step":
        return unit.kind(node.value).tag == "Optimizer"
    if node.attr != "grad" or unit.resolve(node) is not None:
        return False
    up = unit.tree.parents.get(node)
    return isinstance(node.ctx, ast.Store) or (isinstance(up, ast.Attribute) and up.attr in ("zero_", "data"))


def strangers(unit: Unit, function: ast.AST, code: ast.AST) -> Iterator[ast.Call]:
    """The calls in some of a function's own code that run other code which acts on gradients."""
    for node in own_nodes(code):
        if isinstance(node, ast.Call):
            found = called(unit, node)
            if found is not None and found[0] is not function and acts(found[1], found[0]):
                yield node


def stranger_in(unit: Unit, function: ast.AST, known: Collection[ast.stmt]) -> str:
    """A call in the function's own code, outside of `known` statements, that runs other code which acts on gradients,
    or a zero_grad that is no statement; "" when there is none."""
    skipped = {n for s in known for n in ast.walk(s)}
    for node in own_nodes(function):
        if isinstance(node, ast.Attribute) and node.attr == "zero_grad" and node not in skipped:
            return ast.unparse(node)
    found = next((c for c in strangers(unit, function, function) if c not in skipped), None)
    return ast.unparse(found).splitlines()[0][:60] if found is not None else ""


def handed_on(unit: Unit, function: ast.AST, texts: Collection[str]) -> bool:
    """Whether the function gives an optimizer or module to code that is not known, or sets something to zero in another
    function."""
    own_scope = unit.scopes.of.get(function)
    for method in unit.tree.all(ast.Attribute):
        root = next((n for n in ast.walk(method) if isinstance(n, ast.Name)), None)
        if method.attr == "zero_grad" and ast.unparse(method.value) in texts and root is not None:
            if root.id == "self" or unit.scope(root).lookup(root.id) is own_scope:
                return True
    for node in own_nodes(function):
        if isinstance(node, ast.Call) and any(
            ast.unparse(a) in texts for a in (*node.args, *(k.value for k in node.keywords))
        ):
            dotted = unit.resolve(node.func) or ""
            own = called(unit, node) is not None or isinstance(unit.local(node.func), ClassFacts)
            if not own and not dotted.startswith(("torch.", "builtins.")):
                return True
    return False


def plan_helpers(plan: Plan, routines: Sequence[Routine]) -> None:
    """Take out the functions that only set gradients to zero, whose calls have gone. When all training code of the file
    is converted."""
    tree = plan.unit.tree
    cleared = {stmt: zeros for r in routines for stmt, zeros in r.cleared.items()}
    helpers = dict.fromkeys(h for z in cleared.values() for h in z.helpers)
    places = {h: tree.parents[h] if isinstance(h, ast.Lambda) else h for h in helpers}
    gone = {n for part in (*cleared, *helpers) for n in ast.walk(part)}
    for call in dict.fromkeys(c for z in cleared.values() if z.helpers for c in z.calls):
        plan.taken |= {call, call.func}
        text = "gradients are values: nothing to set to zero"
        plan.found("JM002", call, "torch.optim.Optimizer.zero_grad", text)
        stmt = tree.parents[call]
        if isinstance(stmt, ast.Expr):
            plan.lines[stmt] = lambda _: []
    names = {_name(h, place) for h, place in places.items()}
    used = any(n.id in names and isinstance(n.ctx, ast.Load) and n not in gone for n in tree.all(ast.Name))
    for place in () if used else places.values():
        if isinstance(place, ast.stmt) and plan.alone(place) and not isinstance(tree.parents[place], ast.ClassDef):
            plan.lines[place] = lambda _: []


def _name(helper: Function, named: ast.AST) -> str:
    if isinstance(helper, ast.Lambda):
        target = named.targets[0] if isinstance(named, ast.Assign) else None
        return target.id if isinstance(target, ast.Name) else ""
    return helper.name
