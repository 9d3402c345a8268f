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


def wrapped(line: str, indent: int, unit: str = "    ", limit: int = 120) -> list[str]:
    """A statement as lines: where it is too long, the arguments of its outermost call or display stand on lines of
    their own. `indent` is how far it will stand from the margin."""
    if len(line) + indent <= limit:
        return [line]
    start = _outermost(line)
    if start < 0:
        return [line]
    parts, end = _parts(line, start)
    if not parts:
        return [line]
    inner = [unit + text for part in parts for text in wrapped(f"{part},", indent + len(unit), unit, limit)]
    return [line[: start + 1], *inner, line[end:]]


def _outermost(line: str) -> int:
    """The place of the last bracket of the outermost level that holds more than one part, or the longest one."""
    best, size, depth = -1, 0, 0
    for at, char in enumerate(line):
        if char in "([{":
            if depth == 0:
                parts, end = _parts(line, at)
                if parts and end - at > size:
                    best, size = at, end - at
            depth += 1
        elif char in ")]}":
            depth -= 1
    return best


def _parts(line: str, start: int) -> tuple[list[str], int]:
    """The parts between commas of a bracket's content and the place where it closes; no parts in a lambda's head."""
    parts: list[str] = []
    depth, at, quote = 0, start + 1, ""
    for index in range(start, len(line)):
        char = line[index]
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
            if depth == 0:
                last = line[at:index].strip()
                return [*parts, *([last] if last else [])], index
        elif char == "," and depth == 1:
            parts.append(line[at:index].strip())
            at = index + 1
    return [], start
