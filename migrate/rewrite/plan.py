"""The plan for one file: what each pass decides, before anything is written."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..config import Settings
from ..layers import Layer
from ..read.native import Native
from ..read.needs import Needs
from ..read.project import Project
from ..read.unit import Unit
from ..report.findings import Finding
from .imports import of_torch

if TYPE_CHECKING:
    from .writer import Writer

Build = Callable[["Writer"], str]


@dataclass(frozen=True)
class Whole:
    """Replace an expression: `level` says how tightly the new text binds, `kept` which nodes' text it contains."""

    build: Build
    level: int
    kept: tuple[ast.AST, ...] = ()


@dataclass(frozen=True)
class Point:
    """Replace text[start:end] inside a node that otherwise stays."""

    start: int
    end: int
    text: str | Build


@dataclass
class Plan:
    """Decisions by node. Passes only add to it; `Writer` turns it into text.

    whole: expressions to replace.
    points: small edits inside a node.
    lines: statements to replace by lines (by none: remove).
    before, after: lines to put around a statement.
    taken: nodes that some pass has dealt with, so that no other one reports them.
    keyed: calls that draw random numbers, with the key's spelling once it is known.
    rngs_calls, key_calls: calls that an `rngs` or a key must still reach.
    applied: calls that are rewritten with `rngs`, with its spelling once it is known.
    hoisted: statements that move (into a loss function), with the statement before which their key must be split.
    parameters: keyword parameters added to functions.
    splits, spread, rooted: where keys are split, which comprehensions draw from many, who makes a key of its own.
    nodes: the findings with the nodes they are about.
    threaded: calls of functions that get modules as arguments, with the spelling of each module in a loss function.
    settled: constructs whose control flow has been rewritten: nothing of it is left to report.
    reexports: names that the file hands on, with those of the layer library that they are.
    removed: names whose assignment goes, with how to bring it back when the written text still reads the name.
    """

    unit: Unit
    project: Project
    catalogue: Mapping[str, Layer]
    needs: Needs
    hoisted: dict[ast.stmt, ast.stmt] = field(default_factory=dict)
    whole: dict[ast.AST, Whole] = field(default_factory=dict)
    points: dict[ast.AST, list[Point]] = field(default_factory=dict)
    lines: dict[ast.stmt, Callable[[Writer], list[str]]] = field(default_factory=dict)
    before: dict[ast.stmt, list[str]] = field(default_factory=dict)
    after: dict[ast.stmt, list[str]] = field(default_factory=dict)
    taken: set[ast.AST] = field(default_factory=set)
    keyed: dict[ast.AST, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    layers: set[str] = field(default_factory=set)
    rngs_calls: list[ast.Call] = field(default_factory=list)
    key_calls: dict[ast.Call, str] = field(default_factory=dict)
    parameters: list[tuple[ast.AST, str]] = field(default_factory=list)
    applied: dict[ast.Call, str] = field(default_factory=dict)
    splits: dict[ast.stmt, int] = field(default_factory=dict)
    spread: set[ast.AST] = field(default_factory=set)
    rooted: set[object] = field(default_factory=set)
    nodes: list[tuple[ast.AST, Finding]] = field(default_factory=list)
    reexports: dict[str, str] = field(default_factory=dict)
    removed: dict[str, list[Callable[[], None]]] = field(default_factory=dict)
    threaded: dict[ast.Call, dict[str, str]] = field(default_factory=dict)
    settled: set[ast.AST] = field(default_factory=set)
    settings: Settings = field(default_factory=Settings)

    @property
    def native(self) -> Native:
        """Which layers are Flax's own."""
        return self.needs.native

    def found(
        self,
        code: str,
        node: ast.AST,
        name: str,
        message: str,
        *,
        rule: str = "",
        advice: str = "",
        evidence: str = "",
        after: str | None = None,
    ) -> None:
        """Record a finding about `node`."""
        tree = self.unit.tree
        start, end = tree.start(node), tree.end(node)
        finding = Finding(
            path=self.unit.source.path,
            start=tree.position(start),
            end=tree.position(end),
            code=code,
            name=name,
            rule=rule or name,
            message=message,
            advice=advice,
            evidence=evidence,
            before=_short(tree.text[start:end]),
            after=after,
        )
        self.findings.append(finding)
        self.nodes.append((node, finding))

    def restate(self, node: ast.AST, code: str, message: str, advice: str = "") -> None:
        """Say something else about `node`, of which a finding speaks already."""
        for at, (about, finding) in enumerate(self.nodes):
            if about is node:
                self.nodes[at] = (node, replace(finding, code=code, message=message, advice=advice or finding.advice))
                self.findings[self.findings.index(finding)] = self.nodes[at][1]

    def point(self, owner: ast.AST, start: int, end: int, text: str | Build) -> None:
        self.points.setdefault(owner, []).append(Point(start, end, text))

    def replace(self, node: ast.AST, text: str, level: int = 15) -> None:
        """Replace an expression by fixed text."""
        self.whole[node] = Whole(lambda _: text, level)
        self.taken.add(node)

    def layer(self, name: str) -> str:
        """Use a name of the layer library: how to spell it in this file."""
        self.layers.add(name)
        return self.spelling(name)

    def spelling(self, name: str) -> str:
        """`nnx_layers.LayerNorm` where the file has a LayerNorm of its own."""
        return f"nnx_layers.{name}" if name in self.own_names else name

    @property
    def own_names(self) -> frozenset[str]:
        """Names that the file itself binds to something other than a torch import."""
        cached = self.__dict__.get("_own_names")
        if cached is None:
            cached = self.__dict__["_own_names"] = frozenset(
                name
                for scope in self.unit.scopes.of.values()
                if scope.kind != "class"
                for name, bindings in scope.bindings.items()
                if not all(of_torch(b.target) for b in bindings)
            )
        return cached

    def alone(self, stmt: ast.stmt) -> bool:
        """Whether the statement starts its line, so that lines can be put before it."""
        tree = self.unit.tree
        start = tree.start(stmt)
        if isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and stmt.decorator_list:
            return True
        line = tree.line_starts[tree.position(start)[0] - 1]
        return not tree.text[line:start].strip()

    def alone_to_end(self, stmt: ast.stmt) -> bool:
        """Whether nothing follows the statement on its line."""
        tree = self.unit.tree
        end = tree.end(stmt)
        line = tree.position(end)[0]
        stop = tree.line_starts[line] if line < len(tree.line_starts) else len(tree.text)
        return not tree.text[end:stop].strip()


def _short(text: str, limit: int = 400) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
