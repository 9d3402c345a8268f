"""Random draws of a training script, written down in one process and given to its conversion in another.

A draw is kept by kind and shape, in standard form: uniform in [0, 1), normal with mean 0 and deviation 1. The
conversion takes the first one of its kind and shape that is left, so both start from the same weights, see the data in
the same order and add the same noise.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Any

import numpy as np


class Draws:
    """The draws of a script, in order. `missing` lists kind and shape of what was asked for and not drawn before."""

    def __init__(self, arrays: Mapping[str, np.ndarray] | None = None) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self.missing: list[str] = []
        self.taken = 0
        self._left: dict[tuple[str, tuple[int, ...]], deque[np.ndarray]] = defaultdict(deque)
        for name, value in (arrays or {}).items():
            self._left[name.partition(" ")[2], _bare(value.shape)].append(value)

    def note(self, kind: str, value: Any) -> None:
        """Write a draw down."""
        self.arrays[f"{len(self.arrays)} {kind}"] = np.array(value)

    def take(self, kind: str, shape: tuple[int, ...]) -> np.ndarray | None:
        """The next draw of this kind and shape, or None, which is noted as missing."""
        waiting = self._left[kind, _bare(shape)]
        if waiting:
            self.taken += 1
            return waiting.popleft().reshape(shape)
        self.missing.append(f"{kind} {tuple(shape)}")
        return None


def _bare(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape without ones at its end: a mask of channels is (N, C) in one program and (N, C, 1, 1) in another."""
    end = max((i + 1 for i, n in enumerate(shape) if n != 1), default=0)
    return tuple(shape[:end])
