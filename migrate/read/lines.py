"""Where lines start."""

from __future__ import annotations

import re

_LINE_END = re.compile(r"\r\n|\r|\n")


def line_starts(text: str) -> list[int]:
    """Offsets at which lines start, by the line ends that Python's tokenizer knows (not form feeds or U+2028)."""
    return [0, *(end.end() for end in _LINE_END.finditer(text))]
