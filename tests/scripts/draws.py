"""Random draws of a torch script, written down in one process and given to its conversion in another.

A draw is kept by kind and shape, in standard form: uniform in [0, 1), normal with mean 0 and deviation 1. The
conversion takes the first one of its kind and shape that is left, so both start from the same weights, see the data in
the same order and add the same noise.
"""

from __future__ import annotations

import pickle
from collections import defaultdict, deque
from pathlib import Path
from typing import Any

import numpy as np

Event = tuple[str, tuple[int, ...], np.ndarray]


class Draws:
    """The draws of a script, in order."""

    def __init__(self, events: list[Event] | None = None) -> None:
        self.events: list[Event] = events or []
        self.left: dict[tuple[str, tuple[int, ...]], deque[np.ndarray]] = defaultdict(deque)
        self.missing: list[tuple[str, tuple[int, ...]]] = []
        for kind, shape, value in self.events:
            self.left[kind, shape].append(value)

    def note(self, kind: str, value: Any) -> None:
        array = np.array(value)
        self.events.append((kind, array.shape, array))

    def take(self, kind: str, shape: tuple[int, ...]) -> np.ndarray | None:
        """The next draw of this kind and shape, or None, which is noted as missing."""
        waiting = self.left[kind, tuple(shape)]
        if waiting:
            return waiting.popleft()
        self.missing.append((kind, tuple(shape)))
        return None

    def write(self, path: Path) -> None:
        path.write_bytes(pickle.dumps(self.events))


def read(path: Path) -> Draws:
    return Draws(pickle.loads(path.read_bytes()))
