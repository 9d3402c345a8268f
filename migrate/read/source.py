"""A source file as text and tree: absolute positions of nodes, comments, parents."""

from __future__ import annotations

import ast
import bisect
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Source:
    """One file: `text` keeps its own line ends. `path` is the file as the user named it."""

    path: str
    text: str
    encoding: str = "utf-8"
    bom: bool = False


class Tree:
    """The parsed text of one file.

    Raises SyntaxError when the text is not Python for the running interpreter. Offsets are character indices into `text`.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.root = ast.parse(text)
        self.line_starts = _line_starts(text)
        self.parents: dict[ast.AST, ast.AST] = {}
        self._link(self.root)
        if any(isinstance(n, ast.JoinedStr) for n in self.parents):
            self._repair_fstrings()

    def _link(self, root: ast.AST) -> None:
        todo = [root]
        while todo:
            node = todo.pop()
            for child in ast.iter_child_nodes(node):
                self.parents[child] = node
                todo.append(child)

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
        return "\r\n" if first > 0 and self.text[first - 1] == "\r" else "\n"

    @cached_property
    def comments(self) -> list[tuple[int, int]]:
        """Spans of the comments, in order."""
        if "#" not in self.text:
            return []
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

    def _repair_fstrings(self) -> None:
        """Give expressions inside f-strings their true positions: before Python 3.12 `ast` counts them wrongly."""
        for node in [n for n in self.parents if isinstance(n, ast.JoinedStr)]:
            if any(isinstance(up, ast.JoinedStr) for up in self.ancestors(node)):
                continue
            values = [v for v in node.values if isinstance(v, ast.FormattedValue)]
            spans = _replacement_fields(self.text, self.start(node), self.end(node))
            if len(spans) != len(values):
                self._hide(values)
                continue
            for value, (start, end) in zip(values, spans, strict=True):
                self._reparse(value, start, end)

    def _reparse(self, value: ast.FormattedValue, start: int, end: int) -> None:
        value._start, value._end = start, end  # type: ignore[attr-defined]
        try:
            fresh = ast.parse(f"({self.text[start:end]})", mode="eval").body
        except SyntaxError:
            self._hide([value])
            return
        if ast.dump(fresh) != ast.dump(value.value):
            self._hide([value])
            return
        inner = _line_starts(f"({self.text[start:end]})")
        for sub in ast.walk(fresh):
            if hasattr(sub, "lineno"):
                sub._start = start - 1 + inner[sub.lineno - 1] + sub.col_offset  # type: ignore[attr-defined]
                sub._end = start - 1 + inner[sub.end_lineno - 1] + sub.end_col_offset  # type: ignore[attr-defined]
        for old in ast.walk(value.value):
            self.parents.pop(old, None)
        value.value = fresh
        self.parents[fresh] = value
        self._link(fresh)
        if value.format_spec is not None:
            self._hide([value.format_spec])

    def _hide(self, nodes: list[ast.FormattedValue] | list[ast.expr]) -> None:
        """Mark expressions whose place in the text is not known: they can be read but not rewritten."""
        for node in nodes:
            for sub in ast.walk(node):
                sub._hidden = True  # type: ignore[attr-defined]


def hidden(node: ast.AST) -> bool:
    return "_hidden" in node.__dict__


def _line_starts(text: str) -> list[int]:
    """Offsets at which lines start, by the line ends that Python's tokenizer knows (not form feeds or U+2028)."""
    starts, at = [0], 0
    while True:
        newline, carriage = text.find("\n", at), text.find("\r", at)
        if newline < 0 and carriage < 0:
            return starts
        if carriage >= 0 and (newline < 0 or carriage < newline):
            at = carriage + (2 if carriage + 1 == newline else 1)
        else:
            at = newline + 1
        starts.append(at)


def _replacement_fields(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Spans of the expressions in the f-string(s) in text[start:end], outermost ones only."""
    spans: list[tuple[int, int]] = []
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(f"({text[start:end]})").readline))
    except (tokenize.TokenError, IndentationError):
        return []
    if any(tokenize.tok_name[t.type].startswith("FSTRING") for t in tokens):
        return []  # Python 3.12: positions from `ast` are right, nothing to repair
    starts = _line_starts(text[start:end])
    for token in tokens:
        if token.type != tokenize.STRING:
            continue
        prefix = token.string[: len(token.string) - len(token.string.lstrip("rRbBfFuU"))]
        if "f" not in prefix.lower():
            continue
        row, column = token.start
        at = start + starts[row - 1] + column - (1 if row == 1 else 0)
        quote = 3 if token.string[len(prefix) : len(prefix) + 3] in ('"""', "'''") else 1
        spans += _fields(text, at + len(prefix) + quote, at + len(token.string) - quote)
    return spans


def _fields(text: str, at: int, end: int) -> list[tuple[int, int]]:
    spans = []
    while at < end:
        if text[at : at + 2] in ("{{", "}}"):
            at += 2
        elif text[at] == "{":
            stop = _expression_end(text, at + 1, end)
            spans.append((at + 1, stop))
            at = _field_end(text, stop, end)
        else:
            at += 1
    return spans


def _expression_end(text: str, at: int, end: int) -> int:
    """Where the expression of a replacement field ends: at `}`, `:`, `=` or `!r` on the outer level."""
    depth, quote = 0, ""
    while at < end:
        c = text[at]
        if quote:
            quote = "" if c == quote else quote
        elif c in "'\"":
            quote = c
        elif c in "([{":
            depth += 1
        elif c in ")]}" and depth:
            depth -= 1
        elif not depth:
            if c in "}:":
                return at
            if c == "!" and text[at + 1] != "=":
                return at
            if c == "=" and text[at + 1] not in "=" and text[at - 1] not in "=!<>":
                return at
        at += 1
    return at


def _field_end(text: str, at: int, end: int) -> int:
    depth = 1
    while at < end and depth:
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        at += 1
    return at
