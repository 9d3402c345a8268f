"""Which module a call may reach: where objects of a class go, what containers hold, what an unknown call may be."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator

from ...read.chosen import looked_up
from ...read.facts import ClassFacts
from ...read.kinds import CONTAINERS, WRAPPERS, Kind
from ...read.unit import Unit
from ...read.views import Modules

_FLAT = frozenset({"int", "float", "bool", "str", "None", "shape", "dtype", "device", "Class", "Function", "torch"})
# What gives the modules inside a module without naming one.
_WALKS = frozenset({"children", "named_children", "modules", "named_modules", "_modules", "get_submodule", "__dict__"})
# Given a module, these do not call it.
_INERT = re.compile(r"builtins\.(?!map$|filter$)|copy\.|pickle\.|torch\.(?:save|nn\.utils\.|optim\.)|torch\.jit\.save$")
_STORING = frozenset({"append", "insert", "extend", "update", "add_module", "register_module", "setdefault"})


def contents(unit: Unit, node: ast.expr) -> set[ClassFacts] | None:
    """The classes of the project whose objects a container holds, by what it is built from; None when unknown."""
    if unit.kind(node).name not in CONTAINERS:
        return None
    found: set[ClassFacts] = set()
    todo: list[ast.expr] = Modules(unit).constructions(node)
    done: set[ast.expr] = set()
    if not todo:
        return None
    while todo:
        now = todo.pop()
        if now in done:
            continue
        done.add(now)
        kind = unit.kind(now)
        if isinstance(now, ast.Call) and (unit.resolve(now.func) or "") in CONTAINERS:
            todo += [*now.args, *(k.value for k in now.keywords)]
        elif isinstance(now, (ast.List, ast.Tuple)):
            todo += now.elts
        elif isinstance(now, (ast.ListComp, ast.GeneratorExp)):
            todo.append(now.elt)
        elif isinstance(now, ast.Starred):
            todo.append(now.value)
        elif isinstance(now, ast.IfExp):
            todo += [now.body, now.orelse]
        elif isinstance(now, ast.Call) and kind.tag == "Module" and isinstance(kind.facts, ClassFacts):
            if kind.facts.layer_base in CONTAINERS:
                return None
            found.add(kind.facts)
        elif isinstance(now, ast.Call) and kind.tag == "Module" and kind.name.startswith("torch.nn."):
            continue
        elif isinstance(now, ast.Name) and (parts := _gathered(unit, now)) is not None:
            todo += parts
        else:
            return None
    return found


def _gathered(unit: Unit, name: ast.Name) -> list[ast.expr] | None:
    """What a local list is made of: what is assigned to it, appended, inserted; None when it is used in other ways."""
    scope, owner = unit.scope(name).lookup(name.id), unit.tree.function(name)
    if scope is None or owner is None:
        return None
    found: list[ast.expr] = []
    for node in unit.tree.walk(owner):
        if not isinstance(node, ast.Name) or node.id != name.id:
            continue
        up = unit.tree.parents.get(node)
        call = unit.tree.parents.get(up) if isinstance(up, ast.Attribute) else None
        if isinstance(up, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and not isinstance(node.ctx, ast.Load):
            found += [up.value] if up.value is not None else []
        elif isinstance(call, ast.Call) and isinstance(up, ast.Attribute) and call.func is up:
            if up.attr not in ("append", "insert", "extend"):
                return None
            found += call.args[-1:]
        elif not isinstance(up, (ast.Starred, ast.Call)) or not _is_container(unit, up):
            return None
    return found


def _is_container(unit: Unit, node: ast.AST) -> bool:
    call = unit.tree.parents.get(node) if isinstance(node, ast.Starred) else node
    return isinstance(call, ast.Call) and (unit.resolve(call.func) or "") in CONTAINERS


def may_be_tensor(unit: Unit, node: ast.expr) -> bool:
    return unit.kind(node).tag not in _FLAT


def is_store(node: ast.expr) -> bool:
    return isinstance(node, (ast.Name, ast.Attribute)) and not isinstance(node.ctx, ast.Load)


def is_followed(unit: Unit, node: ast.expr, family: set[ClassFacts]) -> bool:
    """Whether what uses a class or an object of the family still shows which class it is."""
    up = unit.tree.parents.get(node)
    kind = unit.kind(node)
    if isinstance(up, ast.Call) and up.func is node:
        return True
    if isinstance(up, (ast.Attribute, ast.ClassDef, ast.arg, ast.Expr)):
        return True
    if kind.tag == "Class":
        return _only_named(unit, node)
    if isinstance(up, ast.Call) and (unit.resolve(up.func) or "") in ("builtins.isinstance", "builtins.print"):
        return True
    while isinstance(up, (ast.List, ast.Tuple, ast.ListComp, ast.GeneratorExp, ast.IfExp)) or _is_list(unit, up):
        assert up is not None
        up = unit.tree.parents.get(up)
    if isinstance(up, (ast.For, ast.comprehension)):
        return _holds(unit.kind(up.target), family)
    if isinstance(up, ast.Assign):
        return all(isinstance(t, (ast.Name, ast.Attribute)) and _holds(unit.kind(t), family) for t in up.targets)
    if isinstance(up, ast.Call) and isinstance(up.func, ast.Attribute) and up.func.attr == "append":
        return _holds(unit.kind(up.func.value), family)
    return False


def _is_list(unit: Unit, node: ast.AST | None) -> bool:
    return isinstance(node, ast.Call) and unit.resolve(node.func) == "torch.nn.ModuleList"


def _holds(kind: Kind, family: set[ClassFacts]) -> bool:
    """Whether a kind says that its value, or each thing it holds, is of the family."""
    return kind.facts in family or (kind.facts is None and kind.element().facts in family)


def _only_named(unit: Unit, node: ast.expr) -> bool:
    """Whether a class is only mentioned: in an annotation, or as what isinstance() asks for."""
    for up in unit.tree.ancestors(node):
        if isinstance(up, ast.Call):
            return (unit.resolve(up.func) or "") in ("builtins.isinstance", "builtins.issubclass", "builtins.super")
        if isinstance(up, (ast.arg, ast.ClassDef)):
            return True
        if isinstance(up, ast.stmt):
            return isinstance(up, (ast.FunctionDef, ast.AnnAssign)) and node in _annotations(up)
    return False


def _annotations(stmt: ast.stmt) -> set[ast.AST]:
    found = stmt.annotation if isinstance(stmt, ast.AnnAssign) else getattr(stmt, "returns", None)
    return set(ast.walk(found)) if found is not None else set()


def may_be_method(unit: Unit, node: ast.Call) -> bool:
    """Whether a call by name, of something unknown, may be a function of the project with that name."""
    kind, func = unit.kind(node.func), node.func
    if kind.known or unit.resolve(func) or isinstance(kind.facts, ClassFacts):
        return False
    return not isinstance(func, ast.Attribute) or unit.kind(func.value).tag in ("unknown", "Module", "other")


def may_be_any(unit: Unit, node: ast.Call, attributes: Collection[str]) -> bool:
    """Whether what is called may be any module of the project. `attributes` are all names that hold modules."""
    kind, func = unit.kind(node.func), node.func
    if kind.facts is not None or unit.resolve(func):
        return False
    if kind.tag == "Module":
        return kind.name in ("", "torch.nn.Module", *CONTAINERS) or not kind.name.startswith("torch.nn.")
    if isinstance(func, ast.Attribute):
        return not kind.known and func.attr in attributes and not unit.kind(func.value).is_tensor
    if isinstance(func, ast.Name):
        scope = unit.scope(func).lookup(func.id)
        if scope is None or any(b.kind in ("import", "from", "def", "class") for b in scope.bindings[func.id]):
            return False
    return not kind.known


def is_looked_up(unit: Unit, func: ast.expr) -> bool:
    """Whether what is called is taken from all modules inside a module, or by a name that is made at run time."""
    if unit.kind(func).facts is not None or unit.resolve(func):
        return False
    sources = [*Modules(unit).constructions(func), *(_bound_to(unit, func) if isinstance(func, ast.Name) else ())]
    return any(_looks_up(unit, n) for source in sources for n in ast.walk(source))


def _looks_up(unit: Unit, node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in _WALKS and not unit.resolve(node)
    return isinstance(node, ast.Call) and unit.resolve(node.func) == "builtins.getattr" and not looked_up(unit, node)


def _bound_to(unit: Unit, name: ast.Name) -> Iterator[ast.expr]:
    """What a name is assigned or walks over."""
    scope = unit.scope(name).lookup(name.id)
    for binding in scope.bindings[name.id] if scope is not None else ():
        up = unit.tree.parents.get(binding.node)
        while isinstance(up, (ast.Tuple, ast.List)):
            up = unit.tree.parents.get(up)
        if isinstance(up, (ast.For, ast.comprehension)):
            yield up.iter
        elif isinstance(up, ast.Assign):
            yield up.value


def run_by(unit: Unit, call: ast.Call) -> Iterator[Kind]:
    """The kinds of the modules that a call gives to code outside the project, which may call them: `map(block, xs)`."""
    kind, dotted = unit.kind(call.func), unit.resolve(call.func) or ""
    if kind.facts is not None or _INERT.match(dotted) or dotted in CONTAINERS or dotted in WRAPPERS:
        return
    if isinstance(call.func, ast.Attribute) and call.func.attr in _STORING:
        return
    for value in [*call.args, *(k.value for k in call.keywords)]:
        if unit.kind(value).tag == "Module":
            yield unit.kind(value)
