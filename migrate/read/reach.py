"""What the values of a file can be besides tensors: the types of the libraries and classes within reach of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Set
from typing import TYPE_CHECKING

from .owners import methods_of

if TYPE_CHECKING:
    from .project import Project
    from .unit import Unit

_ANSWERS_ALL = frozenset({"__getattr__", "__getattribute__"})
_MODULES = re.compile(r"\bnn\b(?!\.(?:functional|init)\b)|\btorch\.(?:hub|jit|load)\b|\btorchvision\b")
_HOLDERS = ("SimpleNamespace", "Namespace", "namedtuple", "make_dataclass", "ModuleDict", "dict", "type")


def owned_within_reach(
    project: Project, methods: frozenset[str], tops: Mapping[Unit, Set[str]]
) -> dict[Unit, frozenset[str] | None]:
    """By unit, the attributes that something has which a value of the unit may be: a class of the project, a type of a
    library that the unit imports or any file that imports or is imported by it. None when that cannot be told."""
    own = methods.union(*map(_attributes, project.units))
    answers_all = bool(methods & _ANSWERS_ALL)
    found: dict[Unit, frozenset[str] | None] = {}
    for group in _connected(project):
        imported = {t for u in group for t in tops[u] if not project.owns(t)}
        shared = methods_of(imported, any(_MODULES.search(u.source.text) for u in group))
        owned = None if shared is None or answers_all else shared | own
        found.update(dict.fromkeys(group, owned))
    return found


def _connected(project: Project) -> list[list[Unit]]:
    """The units of a project in groups between which no import leads."""
    beside: dict[Unit, set[Unit]] = {u: set() for u in project.units}
    for unit in project.units:
        for other in project.imported_by(unit):
            beside[unit].add(other)
            beside[other].add(unit)
    groups: list[list[Unit]] = []
    seen: set[Unit] = set()
    for unit in project.units:
        group, todo = [], [unit]
        while todo:
            now = todo.pop()
            if now not in seen:
                seen.add(now)
                group.append(now)
                todo += beside[now]
        if group:
            groups.append(group)
    return groups


def _attributes(unit: Unit) -> set[str]:
    """Names under which something is kept that is not a local variable: attributes that are assigned, names of class
    bodies, keywords and strings of what makes objects of names."""
    tree = unit.tree
    found = {n.attr for n in tree.all(ast.Attribute) if isinstance(n.ctx, ast.Store)}
    for cls in tree.all(ast.ClassDef):
        for stmt in cls.body:
            targets = stmt.targets if isinstance(stmt, ast.Assign) else [getattr(stmt, "target", None)]
            found.update(t.id for t in targets if isinstance(t, ast.Name))
    for call in tree.all(ast.Call):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name in _HOLDERS:
            found.update(k.arg for k in call.keywords if k.arg)
            texts = [n.value for n in ast.walk(call) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
            found.update(word for text in texts for word in re.findall(r"\w+", text))
        elif name in ("setattr", "add_module", "register_module", "register_buffer", "register_parameter"):
            found.update(a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str))
    return found
