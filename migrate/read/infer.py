"""Find the kinds of values in a project: abstract interpretation, statement by statement, a few rounds over all files.

Rounds let knowledge travel: what a constructor stores is known in `forward`, what a call passes is known in the callee.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from .facts import ClassFacts, FunctionFacts
from .flow import Flow
from .frame import FunctionDef
from .project import Project
from .unit import Unit

ROUNDS = 6


def infer(project: Project) -> None:
    """Fill `kinds` of every unit, and the attributes and returns of every class and function."""
    for unit in project.units:
        _collect(unit, project)
    for unit in project.units:
        _link_bases(unit, project)
    for cls in (c for unit in project.units for c in unit.classes.values()):
        for base in cls.lineage()[1:]:
            base.heirs.append(cls)
    imports = {unit: project.imported_by(unit) for unit in project.units}
    known: dict[Unit, object] = {}
    stale = set(project.units)
    for _ in range(ROUNDS):
        for unit in project.units:
            for function in unit.functions.values():
                function.next_round(stale)
            for cls in unit.classes.values():
                cls.next_round(unit in stale)
        for unit in project.units:
            if unit in stale:
                _run(unit, project)
        now = {unit: _knowledge(unit) for unit in project.units}
        changed = {unit for unit in project.units if unit not in known or now[unit] != known[unit]}
        known = now
        stale = _affected(project, changed, imports)
        if not stale:
            break


def _run(unit: Unit, project: Project) -> None:
    """One round over one file. A fault of it is the file's own: the others are understood without it."""
    try:
        Flow(unit, project, unit.tree.root).run_module()
    except RecursionError:
        unit.fault = "the file is nested too deeply for this tool"
    except Exception as error:
        unit.fault = f"{type(error).__name__}: {error}"


def _knowledge(unit: Unit) -> object:
    """What travels from a unit's functions and classes to others, and to them."""
    functions = [(dict(f.seen), f.returns) for f in unit.functions.values()]
    return functions, [c.attributes for c in unit.classes.values()]


def _affected(project: Project, changed: set[Unit], imports: Mapping[Unit, set[Unit]]) -> set[Unit]:
    """The units that can know more now: those that changed, and those that import or are handed one, or have a class
    with heirs in one."""
    leads: dict[Unit, set[Unit]] = {}
    for unit in project.units:
        passed = {u for f in unit.functions.values() for u in f.units_passed()}
        heirs = {cls.unit for c in unit.classes.values() for cls in c.family}
        for other in imports[unit] | passed | heirs:
            leads.setdefault(other, set()).add(unit)
    found: set[Unit] = set()
    todo = list(changed)
    while todo:
        unit = todo.pop()
        if unit not in found:
            found.add(unit)
            todo += leads.get(unit, ())
    return found


def _collect(unit: Unit, project: Project) -> None:
    for function in unit.tree.both(ast.FunctionDef, ast.AsyncFunctionDef):
        unit.functions[function] = FunctionFacts(function, unit)
    for cls in unit.tree.all(ast.ClassDef):
        unit.classes[cls] = ClassFacts(cls, unit)
    for node, facts in unit.classes.items():
        for sub in _methods(node.body):
            method = unit.functions[sub]
            method.owner = facts
            facts.methods[sub.name] = method


def _methods(body: list[ast.stmt]) -> Iterable[FunctionDef]:
    for sub in body:
        if isinstance(sub, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield sub
        elif isinstance(sub, (ast.If, ast.Try)):
            yield from _methods([*sub.body, *sub.orelse])


def _link_bases(unit: Unit, project: Project) -> None:
    for node, facts in unit.classes.items():
        for base in node.bases:
            own = unit.local(base)
            dotted = unit.resolve(base)
            found = project.find(dotted) if dotted else None
            if isinstance(own, ClassFacts):
                facts.bases.append(own)
            elif isinstance(found, ClassFacts):
                facts.bases.append(found)
            else:
                facts.bases.append(dotted or "")
