"""IPython's magic and shell lines: hidden behind calls of unknown names while the code is converted, put back after."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

NAME = "jaxmigrate_magic_"
_PLACEHOLDER = re.compile(rf"{NAME}(\d+)_\(\)")
_PYTHON_CELLS = frozenset({"time", "timeit", "capture", "prun", "memit", "mprun", "lprun", "debug"})
_CELL_MAGIC = re.compile(r"\s*%%(\w+)")
_LINE = re.compile(r"^([ \t]*)(%{1,2}[A-Za-z_].*|!.*|\?{1,2}\S.*|[\w.\[\]'\"%]+\?{1,2}[ \t]*|.*\S\?{1,2}[ \t]*)$")
_ASSIGNED = re.compile(r"^([ \t]*[\w.,\[\]'\" \t]+?=[ \t]*)((?:!|%[A-Za-z_]).*)$")
_OPENERS, _CLOSERS = "([{", ")]}"


@dataclass(frozen=True)
class Shielded:
    """A cell as Python: `raw` are the hidden texts by their number."""

    text: str
    raw: tuple[str, ...] = ()


def shield(source: str) -> Shielded | None:
    """The cell as Python with the same lines; None when the cell is in another language (`%%bash`)."""
    head = _CELL_MAGIC.match(source)
    if head and head.group(1) not in _PYTHON_CELLS:
        return None
    if not head and _parses(source):
        return Shielded(source)
    lines = source.split("\n")
    raw: list[str] = []
    state = _State()
    for at, line in enumerate(lines):
        if state.inside:
            state.feed(line)
            continue
        match = _ASSIGNED.match(line) or _LINE.match(line)
        if match and not line.lstrip().startswith("#"):
            lines[at] = f"{match.group(1)}{NAME}{len(raw)}_()"
            raw.append(match.group(2))
        else:
            state.feed(line)
    return Shielded("\n".join(lines), tuple(raw))


def restore(text: str, shielded: Shielded) -> str:
    """The text with the hidden lines as they were."""
    return _PLACEHOLDER.sub(lambda m: shielded.raw[int(m.group(1))], text)


def _parses(source: str) -> bool:
    try:
        ast.parse(source)
    except (SyntaxError, ValueError):
        return False
    return True


@dataclass
class _State:
    """Whether the next line goes on with a bracket, a string or a backslash."""

    depth: int = 0
    quote: str = ""
    continued: bool = False

    @property
    def inside(self) -> bool:
        return bool(self.depth > 0 or self.quote or self.continued)

    def feed(self, line: str) -> None:
        at = 0
        while at < len(line):
            if self.quote:
                at = self._through(line, at)
                continue
            c = line[at]
            if c == "#":
                break
            if c in "'\"":
                self.quote = line[at : at + 3] if line[at : at + 3] in ("'''", '"""') else c
                at += len(self.quote)
                continue
            self.depth += (c in _OPENERS) - (c in _CLOSERS)
            at += 1
        self.continued = line.endswith("\\") and not self.quote
        if len(self.quote) == 1 and not line.endswith("\\"):
            self.quote = ""

    def _through(self, line: str, at: int) -> int:
        if line[at] == "\\":
            return at + 2
        if line.startswith(self.quote, at):
            at += len(self.quote)
            self.quote = ""
            return at
        return at + 1
