"""What both worker processes share: reading the job, and taking its steps one by one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from .cases import Case, parse_case
from .loading import explain
from .record import Recorder
from .results import VerifyOptions

Result = tuple[dict[str, Any], dict[str, Any]]  # arrays, facts
FATAL = ("load", "build")  # without these nothing else can be run


class Job(Protocol):
    """What a worker process is given to do: where to record it, and the whole as plain data."""

    @property
    def out(self) -> Path: ...

    def plain(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Item:
    """One file and case to run. `weights` is the recording of the original, for the converted side.

    `trace` is "eval" or "train": then nothing but the trace of that mode is recorded; or "bench".
    """

    file: Path
    case: Case
    out: Path
    weights: Path | None = None
    trace: str = ""

    def plain(self) -> dict[str, Any]:
        return {
            "file": str(self.file.resolve()),
            "case": self.case.text,
            "overrides": self.case.overrides,
            "out": str(self.out.resolve()),
            "weights": None if self.weights is None else str(self.weights.resolve()),
            "trace": self.trace,
        }


def write_job(path: Path, items: Iterable[Job], options: VerifyOptions) -> None:
    """Write the job that `read_job` reads."""
    job = {"items": [i.plain() for i in items], "options": vars(options)}
    path.write_text(json.dumps(job), encoding="utf-8")


def read_job(path: Path) -> tuple[list[Item], VerifyOptions]:
    """The items and options of a job file."""
    job = json.loads(path.read_text(encoding="utf-8"))
    items = [
        Item(
            Path(i["file"]),
            parse_case(i["case"], i["overrides"]),
            Path(i["out"]),
            Path(i["weights"]) if i["weights"] else None,
            i["trace"],
        )
        for i in job["items"]
    ]
    return items, VerifyOptions(**job["options"])


def settings(case: Case, options: VerifyOptions) -> VerifyOptions:
    """The options with the case's own overrides."""
    from dataclasses import replace

    return replace(options, **{k: v for k, v in case.overrides.items() if k != "loss"})


def perform(item: Item, steps: Iterable[tuple[str, Callable[[], Result]]]) -> None:
    """Take the steps in order and record each; an exception is recorded and ends that step only (see FATAL)."""
    recorder = Recorder(item.out)
    for name, step in steps:
        recorder.begin(name)
        try:
            arrays, facts = step()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a user's module may also raise SystemExit
            recorder.failed(name, explain(error, item.file.parent), kind=type(error).__name__)
            if name in FATAL:
                break
        else:
            recorder.done(name, arrays, **facts)
    recorder.end()


def drop_rates(module: Any) -> list[str]:
    """Names of a module's own attributes that are drop probabilities above zero: `drop_prob`, `Dropout.p`, ..."""
    dropper = "drop" in type(module).__name__.lower()
    return [
        name
        for name, value in vars(module).items()
        if ("drop" in name.lower() or (dropper and name in ("p", "rate", "prob")))
        and type(value) is float
        and 0.0 < value <= 1.0
    ]


def rates_by_path(modules: Iterable[tuple[str, Any]]) -> dict[str, list[float]]:
    """The drop probabilities above zero that modules hold, by path."""
    return {path: rates for path, m in modules if (rates := [float(getattr(m, n)) for n in drop_rates(m)])}


def attempts(modules: Iterable[object]) -> int:
    """How often to run a program before saying that it draws nothing: a path dropped once in ten is often kept."""
    return 8 if any(drop_rates(m) for m in modules) else 1
