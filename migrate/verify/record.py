"""What a worker process hands back: a folder with one line of facts and one .npz of arrays for each step it took."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_LOG = "steps.jsonl"
_END = "end"
LIMIT = 2 << 30  # bytes of arrays that one step may hand over


class Recorder:
    """Writes steps as they are done, so that what was done survives a crash or a timeout."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _LOG).write_text("", encoding="utf-8")

    def begin(self, step: str) -> None:
        self._line({"begin": step})

    def done(self, step: str, arrays: Mapping[str, Any] | None = None, **facts: Any) -> None:
        """Record the arrays (NumPy) and the facts (plain data) of a step that went well."""
        import numpy as np

        size = sum(int(getattr(a, "nbytes", 0)) for a in (arrays or {}).values())
        if size > LIMIT:
            self.failed(step, f"its results are {size / (1 << 30):.1f} GB of numbers, too large to compare")
            return
        if arrays:
            np.savez(self._arrays(step), **arrays)
        self._line({"step": step, **facts})

    def failed(self, step: str, error: str, **facts: Any) -> None:
        self._line({"step": step, "error": error, **facts})

    def end(self) -> None:
        """Say that nothing follows."""
        self._line({_END: True})

    def _arrays(self, step: str) -> Path:
        return self.folder / f"{step.replace(' ', '-')}.npz"

    def _line(self, facts: dict[str, Any]) -> None:
        with (self.folder / _LOG).open("a", encoding="utf-8") as log:
            log.write(json.dumps(facts) + "\n")


@dataclass(frozen=True)
class Step:
    """One step read back. `error` is empty when it went well."""

    facts: dict[str, Any]
    arrays: dict[str, Any] = field(default_factory=dict)

    @property
    def error(self) -> str:
        return str(self.facts.get("error", ""))


@dataclass(frozen=True)
class Recording:
    """The steps of one side, and how its process ended ("" is well)."""

    steps: dict[str, Step]
    ended: str = ""
    running: str = ""

    def get(self, step: str) -> Step:
        """A step. One that the process ended in, or before anything was done, has the end as its error."""
        if step in self.steps:
            return self.steps[step]
        if self.ended and (step == self.running or not self.steps):
            return Step({"error": self.ended})
        return Step({"missing": f"the process had {self.ended}" if self.ended else "no such step was taken"})


def started(folder: Path) -> bool:
    """Whether a worker has begun with the item that records there."""
    return (folder / _LOG).is_file()


def finished(folder: Path) -> bool:
    """Whether a worker has done all that the item asks for."""
    log = folder / _LOG
    return log.is_file() and log.read_bytes().endswith(json.dumps({_END: True}).encode() + b"\n")


def read(folder: Path, ended: str = "") -> Recording:
    """Read a recording back, with the end of its process as the caller saw it."""
    import numpy as np

    steps: dict[str, Step] = {}
    running = ""
    log = folder / _LOG
    for line in log.read_text(encoding="utf-8").splitlines() if log.is_file() else []:
        try:
            facts = json.loads(line)
        except ValueError:
            continue  # the process ended while it wrote
        if _END in facts:
            continue
        if "begin" in facts:
            running = facts["begin"]
            continue
        running = ""
        name = facts["step"]
        file = folder / f"{name.replace(' ', '-')}.npz"
        arrays = {}
        if file.is_file() and "error" not in facts:
            with np.load(file) as data:
                arrays = {k: data[k] for k in data.files}
        steps[name] = Step(facts, arrays)
    return Recording(steps, ended, running)
