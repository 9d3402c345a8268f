"""Time per step: what both worker processes share. They take turns, so that neither runs while the other measures."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ENDED = "ended"  # a file in the folder of a process that takes no further turn
ROUNDS = 5
_CHUNK = 0.1  # seconds for each way and round
_MOST, _LEAST = 50, 2  # steps for each way and round
_WARM_UP = 2
_POLL = 0.002


@dataclass(frozen=True)
class Turns:
    """The order of two processes: `first` has the even turns. Each marks its own folder and reads the other's."""

    own: Path
    other: Path
    name: str
    first: bool

    def take(self, turn: int, work: Callable[[], None]) -> None:
        """Wait until the other process has done what comes before, work, and hand over."""
        number = 2 * turn + (0 if self.first else 1)
        before = self.other / f"turn{self.name}.{number - 1}"
        while number and not before.exists() and not (self.other / ENDED).exists():
            time.sleep(_POLL)
        try:
            work()
        finally:
            (self.own / f"turn{self.name}.{number}").touch()


@dataclass
class Way:
    """One way to run a step; `step` blocks until its results are there."""

    what: str
    way: str
    step: Callable[[], None]
    first: float | None = None
    times: list[float] = field(default_factory=list)
    failed: str = ""
    note: Callable[[], str] = str

    def plain(self) -> dict[str, Any]:
        return {
            "what": self.what, "way": self.way, "first": self.first, "times": self.times,
            "detail": self.failed or self.note(),
        }  # fmt: skip


def measure(
    ways: Sequence[Way], turns: Turns, explain: Callable[[BaseException], str], peak: Callable[[], int] | None = None
) -> dict[str, Any]:
    """Compile and warm up in the first turn, then measure every way in each of the rounds; the facts to record.

    `peak` gives the peak memory of a device in bytes; without it that of the process is taken.
    """
    before = resident()

    def prepare() -> None:
        for way in ways:
            try:
                start = time.perf_counter()
                way.step()
                way.first = time.perf_counter() - start
                for _ in range(_WARM_UP):
                    way.step()
            except Exception as error:
                way.failed = explain(error)

    turns.take(0, prepare)
    for number in range(ROUNDS):
        turns.take(number + 1, lambda: _round([w for w in ways if not w.failed]))
    used = {"before": before, "peak": peak() if peak else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
    return {"rows": [w.plain() for w in ways], "memory": used}


def _round(ways: Iterable[Way]) -> None:
    for way in ways:
        until = time.perf_counter() + _CHUNK
        done = 0
        while done < _LEAST or (done < _MOST and time.perf_counter() < until):
            start = time.perf_counter()
            way.step()
            way.times.append(time.perf_counter() - start)
            done += 1


def resident() -> int:
    """Bytes of memory that this process has now; where the system does not tell, its largest so far."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
