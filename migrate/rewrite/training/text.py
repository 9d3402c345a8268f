"""Indenting and dedenting written statements without touching what stands inside strings."""

from __future__ import annotations

import io
import tokenize


def indented(text: str, unit: str) -> str:
    """`text`, whole lines, with `unit` before each line that is code or a comment."""
    fixed = _inside_strings(text)
    lines = text.splitlines(keepends=True)
    return "".join(line if i in fixed or not line.strip() else unit + line for i, line in enumerate(lines))


def dedented(text: str, unit: str) -> str:
    """`text`, whole lines, with `unit` taken from the start of each line that has it."""
    fixed = _inside_strings(text)
    lines = text.splitlines(keepends=True)
    return "".join(line if i in fixed else line.removeprefix(unit) for i, line in enumerate(lines))


def _inside_strings(text: str) -> set[int]:
    """Indices of lines that start inside a string."""
    inside: set[int] = set()
    start = None
    try:
        for token in tokenize.generate_tokens(io.StringIO("if 1:\n" + text, newline="").readline):
            kind = tokenize.tok_name[token.type]
            if kind == "STRING":
                inside.update(range(token.start[0] - 1, token.end[0] - 1))
            elif kind in ("FSTRING_START", "TSTRING_START") and start is None:
                start = token.start[0]
            elif kind in ("FSTRING_END", "TSTRING_END") and start is not None:
                inside.update(range(start - 1, token.end[0] - 1))
                start = None
    except (tokenize.TokenError, IndentationError):
        pass
    return inside
