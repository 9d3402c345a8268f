"""A source file as text and tree: absolute positions of nodes, comments, parents."""

from __future__ import annotations

import ast
import bisect
import io
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from .fstrings import hidden, repair_fstrings
from .lines import line_starts

if TYPE_CHECKING:
    from ..notebook import Notebook

N = TypeVar("N", bound=ast.AST)
M = TypeVar("M", bound=ast.AST)


@dataclass(frozen=True)
class Source:
    """One file: `text` keeps its own line ends. `path` is the file as the user named it.

    `layers` is the module in which the converted file will find the layer library, as its import spells it. `notebook`
    is the notebook whose code cells the text was made of; `package` the topmost package that the file is in on disk,
    "" when it is in none or unknown.
    """

    path: str
    text: str
    encoding: str = "utf-8"
    bom: bool = False
    layers: str = "nnx_layers"
    notebook: Notebook | None = None
    package: str = ""


class Tree:
    """The parsed text of one file.

    `nodes` are all nodes in the order of the text, a node before its parts; contexts and operators, which have no place
    of their own, are left out. `parents` has them in the same order. Raises SyntaxError when the text is not Python for
    the running interpreter. Offsets are character indices into `text`. `placed` is False when nobody will ask for
    positions inside f-strings.
    """

    def __init__(self, text: str, placed: bool = True) -> None:
        self.text = text
        self.root = ast.parse(text)
        self.line_starts = line_starts(text)
        self._number()
        if placed and self.all(ast.JoinedStr):
            repair_fstrings(self)
            self._number()

    def _number(self) -> None:
        self.nodes, self.parents, self._stops = _linked(self.root)
        self._index = {node: at for at, node in enumerate(self.nodes)}
        self._by_type: dict[type, list[Any]] = {}
        for node in self.nodes:
            self._by_type.setdefault(type(node), []).append(node)

    def walk(self, node: ast.AST) -> list[ast.AST]:
        """`node` and all nodes below it, in the order of the text."""
        at = self._index[node]
        return self.nodes[at : self._stops[at]]

    def own(self, node: ast.AST) -> list[ast.AST]:
        """The nodes below `node` that are not in a function or class inside it."""
        at, stop = self._index[node] + 1, self._stops[self._index[node]]
        found: list[ast.AST] = []
        while at < stop:
            below = self.nodes[at]
            if isinstance(below, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                at = self._stops[at]
                continue
            found.append(below)
            at += 1
        return found

    def all(self, kind: type[N]) -> list[N]:
        """The nodes of exactly this type, in the order of the text."""
        return self._by_type.get(kind, [])

    def both(self, kind: type[N], other: type[M]) -> list[N | M]:
        """The nodes of exactly these two types, in the order of the text."""
        return sorted([*self.all(kind), *self.all(other)], key=self._index.__getitem__)

    def rank(self, node: ast.AST) -> int:
        """The place of a node among `nodes`."""
        return self._index[node]

    def offset(self, line: int, column: int) -> int:
        """The character index of a line (from 1) and a column in UTF-8 bytes, which is how `ast` counts."""
        start = self.line_starts[line - 1]
        end = self.line_starts[line] if line < len(self.line_starts) else len(self.text)
        row = self.text[start:end]
        if column <= len(row) and row.isascii():
            return start + column
        return start + len(row.encode()[:column].decode(errors="ignore"))

    def start(self, node: ast.AST) -> int:
        if "_start" in node.__dict__:
            return node._start  # type: ignore[attr-defined, no-any-return]
        at = self.offset(node.lineno, node.col_offset)  # type: ignore[attr-defined]
        node._start = at  # type: ignore[attr-defined]
        return at

    def end(self, node: ast.AST) -> int:
        if "_end" in node.__dict__:
            return node._end  # type: ignore[attr-defined, no-any-return]
        at = self.offset(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
        node._end = at  # type: ignore[attr-defined]
        return at

    def segment(self, node: ast.AST) -> str:
        return self.text[self.start(node) : self.end(node)]

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column from 1, in characters."""
        line = bisect.bisect_right(self.line_starts, offset)
        return line, offset - self.line_starts[line - 1] + 1

    def statement(self, node: ast.AST) -> ast.stmt:
        """The innermost statement that holds `node` (or is it)."""
        while not isinstance(node, ast.stmt):
            node = self.parents[node]
        return node

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        while node in self.parents:
            node = self.parents[node]
            yield node

    def function(self, node: ast.AST) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """The innermost `def` around `node`, not counting lambdas."""
        for up in self.ancestors(node):
            if isinstance(up, (ast.FunctionDef, ast.AsyncFunctionDef)):
                return up
        return None

    def class_of(self, node: ast.AST) -> ast.ClassDef | None:
        """The class whose body directly holds the method around `node` (or that is around it)."""
        for up in self.ancestors(node):
            if isinstance(up, ast.ClassDef):
                return up
        return None

    def indent(self, node: ast.AST) -> str:
        """The blanks before the line on which `node` starts."""
        start = self.line_starts[self.position(self.start(node))[0] - 1]
        end = start
        while end < len(self.text) and self.text[end] in " \t\f":
            end += 1
        return self.text[start:end]

    @cached_property
    def newline(self) -> str:
        first = self.text.find("\n")
        if first < 0 and "\r" in self.text:
            return "\r"
        return "\r\n" if first > 0 and self.text[first - 1] == "\r" else "\n"

    @cached_property
    def comments(self) -> list[tuple[int, int]]:
        """Spans of the comments, in order."""
        if "#" not in self.text:
            return []
        strings = [(self.start(n), self.end(n)) for n in self.both(ast.Constant, ast.JoinedStr) if _is_string(n)]
        strings = [(start, end) for start, end in strings if self.text.find("#", start, end) >= 0]
        if any(self.text.find("\n", start, end) >= 0 for start, end in strings):
            return self._tokenized()  # parts of a string on several lines may have comments between them
        spans, at, next_string = [], self.text.find("#"), 0
        strings.sort()
        while at >= 0:
            while next_string < len(strings) and strings[next_string][1] <= at:
                next_string += 1
            if next_string < len(strings) and strings[next_string][0] < at:
                at = self.text.find("#", strings[next_string][1])
                continue
            line = bisect.bisect_right(self.line_starts, at)
            end = self.line_starts[line] if line < len(self.line_starts) else len(self.text)
            spans.append((at, at + len(self.text[at:end].rstrip("\r\n"))))
            at = self.text.find("#", end)
        return spans

    def _tokenized(self) -> list[tuple[int, int]]:
        spans = []
        try:
            for token in tokenize.generate_tokens(io.StringIO(self.text, newline="").readline):
                if token.type == tokenize.COMMENT:
                    at = self.line_starts[token.start[0] - 1] + token.start[1]
                    spans.append((at, at + len(token.string)))
        except (tokenize.TokenError, IndentationError):
            return []
        return spans

    def comments_in(self, start: int, end: int) -> list[tuple[int, int]]:
        first = bisect.bisect_left(self.comments, (start, 0))
        last = bisect.bisect_left(self.comments, (end, 0))
        return self.comments[first:last]


def _linked(root: ast.AST) -> tuple[list[ast.AST], dict[ast.AST, ast.AST], list[int]]:
    """All nodes in the order of the text, their parents, and for each the index at which its subtree ends."""
    nodes: list[ast.AST] = []
    parents: dict[ast.AST, ast.AST] = {}
    stops: list[int] = []
    todo: list[ast.AST | int] = [root]
    while todo:
        node = todo.pop()
        if isinstance(node, int):
            stops[node] = len(nodes)
            continue
        at = len(nodes)
        nodes.append(node)
        parts = below(node)
        stops.append(at + 1)
        if parts:
            todo.append(at)
            for part in parts:
                parents[part] = node
            parts.reverse()
            todo += parts
    return nodes, {node: parents[node] for node in nodes[1:]}, stops


def _is_string(node: ast.Constant | ast.JoinedStr) -> bool:
    return not hidden(node) and (isinstance(node, ast.JoinedStr) or isinstance(node.value, (str, bytes)))


def below(node: ast.AST) -> list[ast.AST]:
    """The nodes directly below `node` that have a place of their own, in the order of the text."""
    found: list[ast.AST] = []
    held = node.__dict__
    for name in _FIELDS[type(node)]:
        value = held.get(name)
        if value.__class__ is list:
            found += [v for v in value if isinstance(v, ast.AST)]
        elif isinstance(value, ast.AST):
            found.append(value)
    return found


# Fields in the order of the text, where it is not the order that `ast` has.
_FIRST: Mapping[type, tuple[str, ...]] = {
    ast.FunctionDef: ("decorator_list", "type_params", "args", "returns", "body"),
    ast.AsyncFunctionDef: ("decorator_list", "type_params", "args", "returns", "body"),
    ast.ClassDef: ("decorator_list", "type_params", "bases", "keywords", "body"),
    ast.IfExp: ("body", "test", "orelse"),
}
# Fields of names and numbers, and of contexts and operators: one object of those stands in many places.
_NO_NODES = frozenset(
    ("ctx", "op", "ops", "id", "attr", "arg", "lineno", "level", "module", "asname", "kind", "conversion", "simple")
) | {"is_async", "type_comment", "rest"}
_FIELDS: Mapping[type, tuple[str, ...]] = {
    kind: tuple(name for name in _FIRST.get(kind, kind._fields) if name not in _NO_NODES)
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST)
}


__all__ = ["Source", "Tree", "hidden"]
