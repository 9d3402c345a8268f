"""The values that local names take, statement by statement, while a user's functions run; the same on both sides."""

from __future__ import annotations

import linecache
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from .leaves import flatten
from .worker import Result

LIMIT = 4000  # values that are kept
BYTES = 256 << 20
_SAME = {"forward": "__call__"}  # torch's name of what is called


class Statements:
    """While it is entered, notes each array that a statement of a file in `folder` gives a name, or returns.

    `version` tells a changed array from an unchanged one of the same identity; `array` is a copy as NumPy, or None
    for what is no array (or not yet one, as inside of a transformation).
    """

    def __init__(self, folder: Path, array: Callable[[Any], Any], version: Callable[[Any], int]) -> None:
        self.root, self.array, self.version = str(folder.resolve()), array, version
        self.arrays: dict[str, Any] = {}
        self.events: list[dict[str, Any]] = []
        self.bytes = 0
        self._calls: Counter[str] = Counter()
        self._own: dict[CodeType, str] = {}

    def __enter__(self) -> Statements:
        sys.settrace(self._begin)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    @property
    def result(self) -> Result:
        return self.arrays, {"statements": self.events}

    def _begin(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        code = frame.f_code
        if code not in self._own:
            own = code.co_filename.startswith(self.root) and not code.co_name.startswith("<")
            owner, _, name = code.co_qualname.replace(".<locals>", "").rpartition(".")
            self._own[code] = f"{owner}.{_SAME.get(name, name)}".lstrip(".") if own else ""
        function = self._own[code]
        if not function:
            return None
        call = f"{function}#{self._calls[function]}"
        self._calls[function] += 1
        known: dict[str, Any] = {}
        line = frame.f_lineno
        self._note(frame, call, line, known)

        def step(frame: FrameType, event: str, value: Any) -> Any:
            nonlocal line
            self._note(frame, call, line, known)
            if event == "return":
                self._keep(frame, call, line, "return", value)
            line = frame.f_lineno
            return step

        return step

    def _note(self, frame: FrameType, call: str, line: int, known: dict[str, Any]) -> None:
        if len(self.events) >= LIMIT or self.bytes > BYTES:
            return
        for name, value in frame.f_locals.items():
            if name == "self" or (not isinstance(value, (tuple, list, dict)) and not hasattr(value, "dtype")):
                continue
            leaves = [leaf for _, leaf in flatten(value) if hasattr(leaf, "dtype")]
            state = [(leaf, self.version(leaf)) for leaf in leaves]  # holding them keeps their identity from reuse
            before = known.get(name, [])
            same = len(before) == len(state) and all(
                a is b and v == w for (a, v), (b, w) in zip(before, state, strict=True)
            )
            if leaves and not same:
                known[name] = state
                self._keep(frame, call, line, name, value)

    def _keep(self, frame: FrameType, call: str, line: int, name: str, value: Any) -> None:
        for path, leaf in flatten(value):
            array = self.array(leaf) if hasattr(leaf, "dtype") else None
            if array is None:
                continue
            key = f"line.{len(self.events)}"
            shown = f"{name}.{path}" if path else name
            file = Path(frame.f_code.co_filename).name
            source = linecache.getline(frame.f_code.co_filename, line).strip()[:80]
            self.events.append({"call": call, "name": shown, "file": file, "line": line, "key": key, "source": source})
            self.arrays[key] = array
            self.bytes += array.nbytes
