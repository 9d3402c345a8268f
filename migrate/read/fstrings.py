"""Expressions inside f-strings: where they stand in the text, which before Python 3.12 `ast` does not say rightly."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from typing import TYPE_CHECKING

from .lines import line_starts

if TYPE_CHECKING:
    from .source import Tree

_PLAIN = re.compile(r"""[fF](["'])(?!\1)[^"'\\\n]*\1""")


def hidden(node: ast.AST) -> bool:
    """Whether the node's text cannot be edited: its place is not known, or the text itself is shown (`{x.sum()=}`)."""
    return "_hidden" in node.__dict__


def repair_fstrings(tree: Tree) -> None:
    """Give the expressions inside f-strings their true positions, and hide those that must not be edited."""
    outermost = [
        n for n in tree.all(ast.JoinedStr) if not any(isinstance(up, ast.JoinedStr) for up in tree.ancestors(n))
    ]
    for node in outermost:
        _repair(tree, node)


def _repair(tree: Tree, node: ast.JoinedStr) -> None:
    values = [v for v in node.values if isinstance(v, ast.FormattedValue)]
    spans = _replacement_fields(tree.text, tree.start(node), tree.end(node)) if values else []
    if spans is None:
        _hide_shown(tree, values)
    elif len(spans) != len(values):
        _hide(values)
    else:
        for value, (start, end) in zip(values, spans, strict=True):
            _place(tree, value, start, end)
            if not hidden(value):
                for inner in _nearest(value.value):
                    _repair(tree, inner)


def _nearest(node: ast.expr) -> list[ast.JoinedStr]:
    """The f-strings inside an expression that are not inside each other."""
    if isinstance(node, ast.JoinedStr):
        return [node]
    return [found for child in ast.iter_child_nodes(node) for found in _nearest(child)]  # type: ignore[arg-type]


def _place(tree: Tree, value: ast.FormattedValue, start: int, end: int) -> None:
    _put(value, start, end)
    text = tree.text[start:end]
    if tree.text[end] == "=":
        _hide([value])
        return
    if value.format_spec is not None:
        _hide([value.format_spec])
    first = start + len(text) - len(text.lstrip())
    last = end - len(text) + len(text.rstrip())
    old = value.value
    if "\n" not in text and tree.offset(old.lineno, old.col_offset) == first:
        if tree.offset(old.end_lineno or 0, old.end_col_offset or 0) == last:
            return
    try:
        fresh = ast.parse(f"({text})", mode="eval").body
    except SyntaxError:
        _hide([value])
        return
    if ast.dump(fresh) != ast.dump(old):
        _hide([value])
        return
    lines = line_starts(f"({text})")
    for sub in ast.walk(fresh):
        if isinstance(sub, (ast.expr, ast.keyword, ast.arg)):
            first = start - 1 + _offset(text, lines, sub.lineno, sub.col_offset)
            _put(sub, first, start - 1 + _offset(text, lines, sub.end_lineno or 0, sub.end_col_offset or 0))
    value.value = fresh


def _put(node: ast.AST, start: int, end: int) -> None:
    node._start, node._end = start, end  # type: ignore[attr-defined]


def _offset(text: str, lines: list[int], line: int, column: int) -> int:
    """The index in `(text)` of a line and a column in UTF-8 bytes."""
    row = f"({text})"[lines[line - 1] :]
    return lines[line - 1] + len(row.encode()[:column].decode(errors="ignore"))


def _hide(nodes: list[ast.FormattedValue] | list[ast.expr]) -> None:
    for node in nodes:
        for sub in ast.walk(node):
            if not isinstance(sub, (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)):
                sub._hidden = True  # type: ignore[attr-defined]


def _hide_shown(tree: Tree, values: list[ast.FormattedValue]) -> None:
    """Python 3.12: positions are right; what shows its own text must stay as it is."""
    for value in values:
        if tree.text[tree.end(value.value) : tree.end(value)].lstrip().startswith("="):
            _hide([value])


def _replacement_fields(text: str, start: int, end: int) -> list[tuple[int, int]] | None:
    """Spans of the expressions in the f-string(s) in text[start:end], outermost ones only. None: nothing to repair."""
    if _FIELDS_HAVE_PLACES:
        return None
    if _PLAIN.fullmatch(text, start, end):
        return _fields(text, start + 2, end - 1)
    spans: list[tuple[int, int]] = []
    source = f"({text[start:end]})"
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(source, newline="").readline))
    except (tokenize.TokenError, IndentationError):
        return []
    starts = line_starts(source)
    for token in tokens:
        if token.type != tokenize.STRING:
            continue
        prefix = token.string[: len(token.string) - len(token.string.lstrip("rRbBfFuU"))]
        if "f" not in prefix.lower():
            continue
        row, column = token.start
        at = start - 1 + starts[row - 1] + column
        quote = 3 if token.string[len(prefix) : len(prefix) + 3] in ('"""', "'''") else 1
        spans += _fields(text, at + len(prefix) + quote, at + len(token.string) - quote)
    return spans


_FIELDS_HAVE_PLACES = hasattr(tokenize, "FSTRING_START")


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
            if text.startswith(quote, at):
                at += len(quote) - 1
                quote = ""
        elif c in "'\"":
            quote = c * 3 if text.startswith(c * 3, at) else c
            at += len(quote) - 1
        elif c in "([{":
            depth += 1
        elif c in ")]}" and depth:
            depth -= 1
        elif not depth:
            if c in "}:":
                return at
            if c == "!" and text[at + 1] != "=":
                return at
            if c == "=" and text[at + 1] != "=" and text[at - 1] not in "=!<>":
                return at
        at += 1
    return at


def _field_end(text: str, at: int, end: int) -> int:
    depth = 1
    while at < end and depth:
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        at += 1
    return at
