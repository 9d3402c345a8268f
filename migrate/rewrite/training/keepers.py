"""What keeps a trained module, and is read on the way to the loss: an object that was given it, a closure, a list in an
attribute. The loss function gets the module as an argument, and through these no gradient would pass."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from ...read.facts import ClassFacts, FunctionFacts
from ...read.kinds import NUMBERS
from ...read.unit import Unit
from ..plan import Plan
from .callees import arguments_at
from .cuts import cuts_all, joined, under_no_grad
from .flow import uses
from .held import ADDING
from .roles import NotPlain, function_of
from .sources import Source

_INERT = (*NUMBERS, "str", "None", "dtype", "device", "shape", "numpy", "Optimizer", "Scheduler", "Loader", "Generator")
_TAINTED = ("Tensor", "Variable", "unknown", "tuple", "list", "dict")  # in the function itself, slices.py follows these


@dataclass(frozen=True)
class _Made:
    """A value that something read in a loss was given, and the function that gives it."""

    value: ast.expr
    function: ast.AST
    model: str


def check_keepers(plan: Plan, function: ast.AST, stmts: Sequence[ast.stmt], loss: ast.expr, source: Source) -> None:
    """Raise NotPlain where code that becomes a loss function reads one of the modules by something that keeps it."""
    unit, own = plan.unit, uses(stmts).writes
    for node in (n for part in [*stmts, loss] for n in joined(part)):
        if not _is_whole(node) or ast.unparse(node).partition(".")[0] in own:
            continue
        text, kind = ast.unparse(node), unit.kind(node)
        if kind.tag in _INERT or (kind.tag == "Module" and kind.name not in ("plain", "super")):
            continue  # of modules, separate.py knows
        for model in source.models:
            if text != model and not model.startswith(f"{text}.") and not text.startswith(f"{model}."):
                for made in _makers(unit, function, node, model, ()):
                    if not _harmless(unit, made, node):
                        raise NotPlain(f"`{text}` keeps {model}: pass the module to what reads it")


def _is_whole(node: ast.AST) -> bool:
    """A name, or an attribute of `self`, that is read."""
    if isinstance(node, ast.Attribute):
        return isinstance(node.value, ast.Name) and node.value.id == "self" and isinstance(node.ctx, ast.Load)
    return isinstance(node, ast.Name) and node.id != "self" and isinstance(node.ctx, ast.Load)


def _makers(unit: Unit, function: ast.AST, node: ast.AST, model: str, inside: tuple[ast.AST, ...]) -> Iterator[_Made]:
    """The values with the module in them that a name or attribute is given."""
    if isinstance(node, ast.Attribute):
        cls = unit.tree.class_of(node)
        for part in ast.walk(cls) if cls is not None else ():
            value = _put(part, ast.unparse(node)) if isinstance(part, ast.stmt) else None
            where = function_of(unit, part)
            if isinstance(part, ast.stmt) and value is not None and where is not function:
                yield from _given(unit, part, value, where, model)
        return
    name, root = node.id if isinstance(node, ast.Name) else "", model.partition(".")[0]
    scope = unit.scope(node).lookup(name)
    for binding in scope.bindings.get(name, []) if scope is not None else ():
        stmt = unit.tree.parents.get(binding.node)
        if binding.kind == "assign" and isinstance(stmt, (ast.Assign, ast.AnnAssign)):
            where = function_of(unit, stmt)
            same = unit.scope(stmt).lookup(root) is unit.scope(node).lookup(root)
            if same and not (where is function and unit.kind(node).tag in _TAINTED):
                yield from _given(unit, stmt, stmt.value, where, model)
        elif binding.kind == "param" and function not in inside:
            for call, given in arguments_at(unit, function) or ():
                value, theirs = given.get(name), given.get(model)
                if value is None or theirs is None:
                    continue
                caller, text = unit.tree.function(call) or unit.tree.root, ast.unparse(theirs)
                if isinstance(value, ast.Name) or _is_whole(value):
                    yield from _makers(unit, caller, value, text, (*inside, function))
                elif _mentions(unit, value, text, frozenset()):
                    yield _Made(value, caller, text)


def _put(stmt: ast.stmt, text: str) -> ast.expr | None:
    """What a statement assigns to an attribute, or puts into it: `self.x = v`, `self.x[k] = v`, `self.x.append(v)`."""
    if isinstance(stmt, (ast.Assign, ast.AnnAssign)):
        targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
        found = any(ast.unparse(t.value if isinstance(t, ast.Subscript) else t) == text for t in targets)
        return stmt.value if found else None
    call = stmt.value if isinstance(stmt, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in ADDING and call.args:
        return call.args[-1] if ast.unparse(call.func.value) == text else None
    return None


def _given(unit: Unit, stmt: ast.stmt, value: ast.expr | None, where: ast.AST, model: str) -> Iterator[_Made]:
    if value is None or cuts_all(value) or under_no_grad(unit, stmt) or unit.kind(value).tag in _INERT:
        return
    names = set(_aliases(where, model))
    for loop in (n for n in unit.tree.ancestors(stmt) if isinstance(n, (ast.For, ast.AsyncFor))):
        if _mentions(unit, loop.iter, model, names):
            names |= uses(loop.target).writes
    if _mentions(unit, value, model, names):
        yield _Made(value, where, model)


def _aliases(function: ast.AST, model: str) -> frozenset[str]:
    """`net` where `self.net = net`."""
    return frozenset(
        s.value.id
        for s in ast.walk(function)
        if isinstance(s, ast.Assign)
        and isinstance(s.value, ast.Name)
        and any(ast.unparse(t) == model for t in s.targets)
    )


def _mentions(unit: Unit, value: ast.expr, model: str, aliases: Collection[str]) -> bool:
    """Whether a value may have the module in it, or the object whose attribute it is."""
    owner = "self" if model.startswith("self.") else ""
    for node in joined(value):
        if not isinstance(node, (ast.Name, ast.Attribute)):
            continue
        text, up = ast.unparse(node), unit.tree.parents.get(node)
        if text == owner and not isinstance(up, ast.Attribute):
            return True
        if text == model or text in aliases:
            if not isinstance(up, ast.Attribute) or unit.kind(up).tag not in _INERT:
                return True
    return False


def _harmless(unit: Unit, made: _Made, node: ast.AST) -> bool:
    """Whether an object of a class of the project is only used by methods that do not read what it keeps."""
    value = made.value
    facts = unit.local(value.func) if isinstance(value, ast.Call) else None
    if not isinstance(value, ast.Call) or not isinstance(facts, ClassFacts) or facts.is_module:
        return False
    kept = _kept(unit, facts, value, made)
    if kept is None:
        return False
    up = unit.tree.parents[node]
    if isinstance(up, ast.Attribute):
        method = facts.method(up.attr)
        return up.attr not in kept if method is None else not _reads(method, facts, kept, set())
    method = facts.method("__call__") if isinstance(up, ast.Call) and up.func is node else None
    return method is not None and not _reads(method, facts, kept, set())


def _kept(unit: Unit, facts: ClassFacts, call: ast.Call, made: _Made) -> set[str] | None:
    """The attributes of a new object that may hold the module; None when that is not understood."""
    init = facts.method("__init__")
    if init is None or any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
        return None
    aliases = _aliases(made.function, made.model)
    names = [a.arg for a in (*init.node.args.posonlyargs, *init.node.args.args)][1:]
    pairs = [*zip(names, call.args, strict=False), *((k.arg or "", k.value) for k in call.keywords)]
    carrying = {n for n, value in pairs if _mentions(unit, value, made.model, aliases)}
    if len(call.args) > len(names) or not carrying <= {*names, *(a.arg for a in init.node.args.kwonlyargs)}:
        return None
    tainted, kept = {init: carrying}, set[str]()
    while True:
        before = (sum(map(len, tainted.values())), len(kept))
        for cls in facts.lineage():
            for method in cls.methods.values():
                _spread(method, tainted.setdefault(method, set()), kept)
        if (sum(map(len, tainted.values())), len(kept)) == before:
            return kept


def _spread(method: FunctionFacts, names: set[str], kept: set[str]) -> None:
    """One round: what a method assigns or adds from a tainted name or attribute is tainted."""
    for stmt in ast.walk(method.node):
        if isinstance(stmt, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.For, ast.Expr)):
            value = stmt.iter if isinstance(stmt, ast.For) else stmt.value
            if value is None or (not isinstance(stmt, ast.For) and cuts_all(value)) or not _carries(value, names, kept):
                continue
            names |= uses(stmt.target if isinstance(stmt, ast.For) else stmt).writes
            targets = stmt.targets if isinstance(stmt, ast.Assign) else [getattr(stmt, "target", stmt)]
            kept |= {a for t in targets for n in ast.walk(t) if (a := _attribute(n))}


def _carries(value: ast.AST, names: Collection[str], kept: Collection[str]) -> bool:
    return any((isinstance(n, ast.Name) and n.id in names) or _attribute(n) in kept for n in joined(value))


def _attribute(node: ast.AST) -> str:
    """`a` of `self.a`."""
    of_self = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    return node.attr if of_self and isinstance(node, ast.Attribute) else ""


def _reads(method: FunctionFacts, facts: ClassFacts, kept: Collection[str], seen: set[FunctionFacts]) -> bool:
    """Whether a method, or one that it calls, reads one of the attributes, or hands the object on."""
    seen.add(method)
    parents = method.unit.tree.parents
    for node in ast.walk(method.node):
        if name := _attribute(node):
            inner = facts.method(name)
            if name in kept or (inner is not None and inner not in seen and _reads(inner, facts, kept, seen)):
                return True
        elif isinstance(node, ast.Name) and node.id == "self" and not isinstance(parents[node], ast.Attribute):
            return True
    return False
