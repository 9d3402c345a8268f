"""The files of one run, as one project: which dotted name is which class or function."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath

from ..rulebook.load import RuleBook
from .facts import ClassFacts, FunctionFacts
from .reach import owned_within_reach
from .reexports import find_reexports, find_starred, follow, follow_siblings
from .shared_names import Surroundings, with_arrays, without_such_types
from .source import Source
from .unit import STANDARD_LIBRARY, Unit, open_unit
from .wide import Wide, has_layers, is_script, wide_uses


@dataclass(frozen=True)
class Project:
    """All units of a run. Imports between them are followed."""

    units: tuple[Unit, ...]

    @cached_property
    def by_module(self) -> dict[str, Unit]:
        return {u.module: u for u in self.units if u.module}

    @cached_property
    def calls(self) -> dict[str, list[tuple[Unit, ast.Call]]]:
        """All calls of the project, by the bare name that is called."""
        found: dict[str, list[tuple[Unit, ast.Call]]] = {}
        for unit in self.units:
            for node in unit.tree.all(ast.Call):
                func = node.func
                name = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
                found.setdefault(name, []).append((unit, node))
        return found

    @cached_property
    def wide(self) -> dict[Unit, list[Wide]]:
        """The uses of 64-bit types, by unit."""
        return {unit: wide_uses(unit) for unit in self.units}

    @cached_property
    def wide_programs(self) -> set[Unit]:
        """The programs that need 64-bit types switched on."""
        return {unit for unit in self.units if is_script(unit) and self.needs_wide(unit) is not None}

    def needs_wide(self, unit: Unit) -> Wide | None:
        """The first use of 64-bit types, in a program or what it imports, that needs them switched on."""
        found: set[Unit] = set()
        todo = [unit]
        while todo:
            now = todo.pop()
            if now not in found:
                found.add(now)
                todo += self.imported_by(now)
        layers = any(map(has_layers, found))
        for now in sorted(found, key=lambda u: (u is not unit, u.source.path)):
            for use in self.wide.get(now, []):
                if use.what == "int" or (use.what in ("float64", "numpy") and not layers):
                    return use
        return None

    @cached_property
    def mixins(self) -> frozenset[ClassFacts]:
        """Classes that are no modules themselves and of which modules are made: `class Net(Mixin, nn.Module)`."""
        classes = (cls for unit in self.units for cls in unit.classes.values() if not cls.is_module)
        return frozenset(cls for cls in classes if any(heir.is_module for heir in cls.heirs))

    def imported_by(self, unit: Unit) -> set[Unit]:
        """The units that `unit` imports from, star imports included."""
        targets = {b.target for s in unit.scopes.of.values() for bs in s.bindings.values() for b in bs if b.target}
        found: set[Unit] = set()
        for dotted in targets | {star for s in unit.scopes.of.values() for star in s.stars}:
            while dotted:
                if dotted in self.by_module:
                    found.add(self.by_module[dotted])
                dotted = dotted.rpartition(".")[0]
        return found - {unit}

    def holds(self, dotted: str) -> bool:
        """Whether a dotted name leads into a module of the run."""
        while dotted:
            if dotted in self.by_module:
                return True
            dotted = dotted.rpartition(".")[0]
        return False

    def owns(self, top: str) -> bool:
        """Whether a top-level module name is a module or package of the run."""
        return top == "." or any(m.partition(".")[0] == top for m in self.by_module)

    def find(self, dotted: str | None, depth: int = 0) -> ClassFacts | FunctionFacts | None:
        """The project's own class or function of that dotted name, re-exports followed."""
        if not dotted or depth > 8 or dotted.startswith(("torch.", "builtins.", "numpy.")):
            return None
        module, _, name = dotted.rpartition(".")
        unit = self.by_module.get(module)
        if unit is None:
            return None
        for binding in reversed(unit.scopes.module.bindings.get(name, [])):
            if binding.node in unit.classes:
                return unit.classes[binding.node]
            if binding.node in unit.functions:
                return unit.functions[binding.node]
            if binding.kind == "from" and binding.target != dotted:
                return self.find(binding.target, depth + 1)
        for star in unit.scopes.module.stars:
            found = self.find(f"{star}.{name}", depth + 1)
            if found is not None:
                return found
        return None


def open_project(sources: Sequence[Source], book: RuleBook) -> tuple[Project, dict[str, SyntaxError]]:
    """Parse all sources. Those that do not parse are left out and returned with their errors, by path."""
    units, errors = [], {}
    names = module_names([s.path for s in sources])
    for source in sources:
        module = names[source.path]
        is_package = PurePath(source.path).name == "__init__.py"
        try:
            units.append(open_unit(source, book, module, is_package))
        except (SyntaxError, RecursionError, ValueError) as error:
            errors[source.path] = error if isinstance(error, SyntaxError) else SyntaxError(str(error))
    sets_default = any("set_default_dtype" in s.text or "set_default_tensor_type" in s.text for s in sources)
    for unit in units:
        unit.sets_default = sets_default
    follow_siblings(units)
    reexports = find_reexports(units)
    for unit in units if reexports else ():
        unit.reexports = reexports
        follow(unit.scopes, reexports)
    for unit, names in find_starred(units).items():
        unit.starred = names
    project = Project(tuple(units))
    _look_around(project)
    return project, errors


def _look_around(project: Project) -> None:
    """Tell every unit which methods the project's classes have and whether its imports bring in further types."""
    methods = frozenset(
        child.name
        for unit in project.units
        for cls in unit.tree.all(ast.ClassDef)
        for child in cls.body
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
    )
    tops = {unit: imported(unit) for unit in project.units}
    closed = {
        unit
        for unit in project.units
        if all(without_such_types(t, STANDARD_LIBRARY) or project.owns(t) for t in tops[unit])
    }
    while left := {unit for unit in closed if not project.imported_by(unit) <= closed}:
        closed -= left
    arrays = any(with_arrays(t) for found in tops.values() for t in found)
    named_axes = any("xarray" in found for found in tops.values())
    within = owned_within_reach(project, methods, tops)
    for unit in project.units:
        unit.around = Surroundings(methods, unit in closed, arrays, named_axes, within[unit])


def imported(unit: Unit) -> set[str]:
    """The top-level names of all modules that a unit imports; "." for relative imports, which stay in the project."""
    found: set[str] = set()
    for node in unit.tree.all(ast.Import):
        found.update(a.name.partition(".")[0] for a in node.names)
    for start in unit.tree.all(ast.ImportFrom):
        found.add((start.module or "").partition(".")[0] if not start.level else ".")
    return found


def module_names(paths: Sequence[str]) -> dict[str, str]:
    """Dotted module names for the paths of a run.

    A folder that holds `__init__.py` (in this run) is a package; the topmost such folder starts the name. Files outside
    any package are named from the deepest folder that all files share. Notebooks have no name: nothing imports them.
    """
    pure = {p: PurePath(p) for p in paths}
    packages = {p.parent for p in pure.values() if p.name == "__init__.py"}
    names = {}
    for path, p in pure.items():
        root = p.parent
        while root in packages:
            root = root.parent
        parts = list(p.relative_to(root).with_suffix("").parts)
        if root == p.parent:
            shared = _shared_root(list(pure.values()))
            if shared in p.parents:
                parts = list(p.relative_to(shared).with_suffix("").parts)
        if parts[-1] == "__init__":
            parts.pop()
        names[path] = ".".join(parts) if p.suffix != ".ipynb" else ""
    return names


def _shared_root(paths: list[PurePath]) -> PurePath:
    shared = paths[0].parent
    for path in paths[1:]:
        while shared not in path.parents and shared != shared.parent:
            shared = shared.parent
    return shared
