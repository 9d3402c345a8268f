"""Names of torch that one file of a project imports from another: `from . import nn` where `__init__.py` imports it."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ..rulebook.load import torch_names
from .scopes import Scopes

if TYPE_CHECKING:
    from .unit import Unit

DEEPEST = 8  # files that a name is handed through


def find_reexports(units: Iterable[Unit]) -> dict[str, str]:
    """The dotted names of the project that are names of torch, with those names."""
    by_module = {u.module: u for u in units if u.module}
    found: dict[str, str] = {}
    for module in by_module:
        for name in _names(module, by_module, 0):
            if target := _lead(module, name, by_module, 0):
                found[f"{module}.{name}"] = target
    return found


def follow_siblings(units: Iterable[Unit]) -> None:
    """Let imports lead to the file beside a script: what Python finds when it runs the script from its own folder.

    In a package, where that is not how files are run, only those do that lead nowhere else.
    """
    by_module = {u.module: u for u in units if u.module}
    tops = {module.partition(".")[0] for module in by_module}
    for module, unit in by_module.items():
        folder = module.rpartition(".")[0]
        if not folder:
            continue
        known = tops if folder in by_module else set()

        def beside(target: str, folder: str = folder, known: Collection[str] = known) -> str:
            top = target.partition(".")[0]
            return f"{folder}.{target}" if top not in known and f"{folder}.{top}" in by_module else target

        for scope in unit.scopes.of.values():
            scope.stars = [beside(star) for star in scope.stars]
            for name, bindings in scope.bindings.items():
                if any(b.target != beside(b.target) for b in bindings):
                    scope.bindings[name] = [replace(b, target=beside(b.target)) for b in bindings]


def find_starred(units: Iterable[Unit]) -> dict[Unit, dict[str, str]]:
    """For each file with `from module import *` of the project: the names that it gets so, with their dotted names."""
    by_module = {u.module: u for u in units if u.module}
    found = {}
    for unit in by_module.values():
        names: dict[str, str] = {}
        for star in unit.scopes.module.stars:
            names |= {name: f"{star}.{name}" for name in _public(star, by_module, 0)}
        if names:
            found[unit] = names
    return found


def _public(module: str, by_module: Mapping[str, Unit], depth: int) -> set[str]:
    """The names that a star import of a module of the project brings."""
    unit = by_module.get(module)
    if unit is None or depth > DEEPEST:
        return set()
    public = exported(unit.tree.root)
    if public is not None:
        return public
    found = {name for name in unit.scopes.module.bindings if not name.startswith("_")}
    return found.union(*(_public(star, by_module, depth + 1) for star in unit.scopes.module.stars))


def follow(scopes: Scopes, reexports: Mapping[str, str]) -> None:
    """Let imports of such names lead to torch."""
    for scope in scopes.of.values():
        for name, bindings in scope.bindings.items():
            if any(b.target in reexports for b in bindings):
                scope.bindings[name] = [
                    replace(b, target=reexports[b.target]) if b.target in reexports else b for b in bindings
                ]


def exported(root: ast.Module) -> set[str] | None:
    """The names in a literal `__all__`, None when there is none."""
    for stmt in root.body:
        targets = stmt.targets if isinstance(stmt, ast.Assign) else []
        if any(isinstance(t, ast.Name) and t.id == "__all__" for t in targets):
            value = stmt.value  # type: ignore[attr-defined]
            if isinstance(value, (ast.List, ast.Tuple)):
                return {e.value for e in value.elts if isinstance(e, ast.Constant) and isinstance(e.value, str)}
    return None


def _names(module: str, by_module: Mapping[str, Unit], depth: int) -> set[str]:
    """The names that a module imports, also by stars from other modules of the project and from torch."""
    unit = by_module.get(module)
    if unit is None:
        return set(torch_names().exports.get(module, ()))
    top = unit.scopes.module
    found = {name for name, bs in top.bindings.items() if any(b.kind in ("import", "from") for b in bs)}
    if depth < DEEPEST:
        for star in top.stars:
            public = exported(by_module[star].tree.root) if star in by_module else None
            names = _names(star, by_module, depth + 1)
            found |= names & public if public is not None else {n for n in names if not n.startswith("_")}
    return found


def _lead(module: str, name: str, by_module: Mapping[str, Unit], depth: int) -> str:
    """The name of torch that `module.name` is, "" when it is none."""
    unit = by_module.get(module)
    if unit is None or depth > DEEPEST:
        return f"{module}.{name}" if module == "torch" or module.startswith("torch.") else ""
    bindings = unit.scopes.module.bindings.get(name)
    if bindings:
        if not all(b.kind in ("import", "from") for b in bindings):
            return ""
        target = bindings[-1].target
        if target == "torch" or target.startswith("torch."):
            return target
        head, _, tail = target.rpartition(".")
        return _lead(head, tail, by_module, depth + 1) if head in by_module and target != f"{module}.{name}" else ""
    for star in unit.scopes.module.stars:
        if name in _names(star, by_module, DEEPEST - 1) and (found := _lead(star, name, by_module, depth + 1)):
            return found
    return ""
