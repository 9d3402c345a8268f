"""What is kept as it is, by a comment or because a review refused it, and what must be kept with it.

The unit of keeping is the statement: a part of one that stays torch cannot take what JAX gives. A kept class keeps its
bases and subclasses, a kept method of a module its class; and statements that were converted and read what a kept one
gives are kept too, in all files. What still meets the other framework is reported (JM402).
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from .read.facts import ClassFacts
from .read.project import Project
from .read.unit import Unit
from .report.findings import Finding, Position, fate
from .suppress import Suppression

Region = ast.stmt
Taint = tuple[ast.AST, str]  # the node of a scope or a class, and the name that is tainted in it


@dataclass(eq=False)
class Kept:
    """The statements of one file that stay, each with the reason, and the findings that they had. `excused` are
    constructs that are left in any case: place and code of the finding, and why."""

    reasons: dict[Region, str] = field(default_factory=dict)
    asked: set[Region] = field(default_factory=set)
    excused: dict[tuple[Position, Position, str], str] = field(default_factory=dict)
    findings: dict[Region, list[Finding]] = field(default_factory=dict)


def keys_of(findings: Sequence[Finding]) -> dict[Finding, str]:
    """A key for each finding of a file that survives moved lines: the fingerprint, and which of the equal ones it
    is."""
    count: Counter[str] = Counter()
    keys = {}
    for finding in sorted(findings, key=lambda f: (f.place, f)):
        mark = finding.fingerprint
        count[mark] += 1
        keys[finding] = f"{mark}#{count[mark]}"
    return keys


def find_kept(
    project: Project,
    found: Mapping[str, Sequence[Finding]],
    comments: Mapping[str, Sequence[Suppression]],
    refused: Mapping[str, frozenset[str]],
) -> dict[Unit, Kept]:
    """What to keep in each file. `found` are the findings of a conversion without keeping, by path, with module
    lines."""
    work = _Work(project, found)
    for unit in project.units:
        path = unit.source.path
        findings, keys = found.get(path, ()), refused.get(path, frozenset())
        names = keys_of(findings) if keys else {}
        for finding in findings:
            if names.get(finding) in keys:
                work.ask(unit, finding, "refused in the review")
            for comment in comments.get(path, ()):
                if comment.verb == "keep" and comment.covers(finding):
                    work.ask(unit, finding, comment.why or "a comment says so")
    work.spread()
    return work.kept


class _Work:
    """The search: what is kept so far, and the names that hold what kept statements give."""

    def __init__(self, project: Project, found: Mapping[str, Sequence[Finding]]) -> None:
        self.project = project
        self.kept: dict[Unit, Kept] = {}
        self.tainted: set[Taint] = set()
        self.outside: set[str] = set()  # dotted names that other files may import
        self.regions: dict[Unit, dict[Region, list[Finding]]] = {}
        for unit in project.units:
            regions = self.regions[unit] = {}
            for finding in found.get(unit.source.path, ()):
                if fate(finding.code) is not None:
                    regions.setdefault(_region(unit, finding), []).append(finding)

    def ask(self, unit: Unit, finding: Finding, why: str) -> None:
        """Keep what a finding is about."""
        if fate(finding.code) in ("exact", "stated"):
            region = _region(unit, finding)
            self.keep(unit, region, why)
            self.kept[unit].asked.update(r for r in self.kept[unit].reasons if _within(unit, region, r))
        else:
            self.kept.setdefault(unit, Kept()).excused[finding.start, finding.end, finding.code] = why

    def keep(self, unit: Unit, region: Region, why: str) -> None:
        """Keep a statement, and the class or function that cannot do without it."""
        for part in self._whole(unit, region):
            home = next(u for u in self.project.units if part in u.tree.parents)
            kept = self.kept.setdefault(home, Kept())
            if any(_within(home, part, r) for r in kept.reasons):
                continue
            for inner in [r for r in kept.reasons if _within(home, r, part)]:
                del kept.reasons[inner]
            kept.reasons[part] = why
            inside = (fs for r, fs in self.regions[home].items() if _within(home, r, part))
            kept.findings[part] = [f for fs in inside for f in fs]
            self._taint(home, part)

    def spread(self) -> None:
        """Keep what reads kept values, until nothing new is found."""
        changed = True
        while changed and self.kept:
            size = len(self.tainted), sum(len(k.reasons) for k in self.kept.values())
            for unit in self.project.units:
                self._spread(unit)
            changed = size != (len(self.tainted), sum(len(k.reasons) for k in self.kept.values()))

    def _spread(self, unit: Unit) -> None:
        kept = self.kept.get(unit, Kept())
        for stmt in (n for n in unit.tree.nodes if isinstance(n, ast.stmt)):
            if isinstance(stmt, (ast.Import, ast.ImportFrom)):
                continue
            if any(_within(unit, stmt, r) for r in kept.reasons) or not self._reads(unit, stmt):
                continue
            findings = self.regions[unit].get(stmt, ())
            if any(fate(f.code) in ("exact", "stated") for f in findings):
                self.keep(unit, stmt, "it uses what a kept line gives")
                kept = self.kept[unit]
            else:
                self._taint(unit, stmt)

    def _whole(self, unit: Unit, region: Region) -> list[Region]:
        """The statement, or the classes that it would break."""
        cls: ClassFacts | None = None
        if isinstance(region, ast.ClassDef):
            cls = unit.classes.get(region)
        elif isinstance(region, (ast.FunctionDef, ast.AsyncFunctionDef)) and region in unit.functions:
            owner = unit.functions[region].owner
            cls = owner if owner is not None and owner.is_module else None
        if cls is None:
            return [region]
        family = {cls}
        grown = True
        while grown:
            size = len(family)
            for other in (c for u in self.project.units for c in u.classes.values()):
                if any(c in family for c in other.lineage()):
                    family.update(other.lineage())
            grown = len(family) != size
        return [c.node for c in family]

    def _reads(self, unit: Unit, stmt: ast.stmt) -> bool:
        for node in _head(unit, stmt):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                scope = unit.scope(node).lookup(node.id)
                if scope is None:
                    continue
                if (scope.node, node.id) in self.tainted:
                    return True
                if any(b.target in self.outside for b in scope.bindings[node.id] if b.target):
                    return True
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                cls = unit.tree.class_of(node)
                if cls is not None and (cls, node.attr) in self.tainted and _is_self(node.value):
                    return True
                if self.outside and unit.resolve(node) in self.outside:
                    return True
        return False

    def _taint(self, unit: Unit, region: Region) -> None:
        """The names that a statement binds hold what JAX cannot take."""
        if isinstance(region, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            self._taint_name(unit, region, region.name)
            return
        if isinstance(region, ast.Return):
            function = unit.tree.function(region)
            if function is not None:
                owner = unit.tree.parents.get(function)
                if isinstance(owner, ast.ClassDef):
                    self.tainted.add((owner, function.name))
                else:
                    self._taint_name(unit, function, function.name)
            return
        inside = unit.tree.walk(region) if isinstance(region, ast.stmt) else []
        for node in inside if region in self.kept.get(unit, Kept()).reasons else _head(unit, region):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self._taint_name(unit, node, node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_self(node.value):
                cls = unit.tree.class_of(node)
                if cls is not None:
                    self.tainted.add((cls, node.attr))

    def _taint_name(self, unit: Unit, node: ast.AST, name: str) -> None:
        scope = unit.scope(node).lookup(name)
        if scope is None:
            return
        self.tainted.add((scope.node, name))
        if scope is unit.scopes.module and unit.module:
            self.outside.add(f"{unit.module}.{name}")


def _region(unit: Unit, finding: Finding) -> Region:
    """The statement that a finding is about: the innermost one that holds all of it."""
    tree = unit.tree
    start = tree.line_starts[finding.start[0] - 1] + finding.start[1] - 1
    end = tree.line_starts[finding.end[0] - 1] + finding.end[1] - 1
    held = [n for n in tree.nodes if isinstance(n, ast.stmt) and tree.start(n) <= start and end <= tree.end(n)]
    return held[-1] if held else tree.root.body[0]


def _head(unit: Unit, stmt: ast.stmt) -> Iterator[ast.AST]:
    """The nodes of a statement without those of the statements inside it."""
    todo: list[ast.AST] = list(ast.iter_child_nodes(stmt))
    while todo:
        node = todo.pop()
        if not isinstance(node, (ast.stmt, ast.ExceptHandler)):
            yield node
            todo += ast.iter_child_nodes(node)


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def _within(unit: Unit, inner: ast.AST, outer: ast.AST) -> bool:
    tree = unit.tree
    return inner is outer or (
        outer in tree.parents
        and inner in tree.parents
        and tree.start(outer) <= tree.start(inner)
        and tree.end(inner) <= tree.end(outer)
        and any(up is outer for up in tree.ancestors(inner))
    )
