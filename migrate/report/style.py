"""Colour on a terminal, none anywhere else."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import IO, Literal

Colour = Literal["bold", "dim", "red", "green", "yellow", "cyan"]

_SGR: dict[Colour, str] = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


@dataclass(frozen=True)
class Style:
    """Paints text when `on`."""

    on: bool = False

    def __call__(self, colour: Colour, text: str) -> str:
        return f"\x1b[{_SGR[colour]}m{text}\x1b[0m" if self.on and text else text


PLAIN = Style()


def style_for(stream: IO[str]) -> Style:
    """Colour if `stream` is a terminal that shows it and NO_COLOR (no-color.org) is not set."""
    return Style(stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb")
