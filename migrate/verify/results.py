"""The outcome of a verification, and its JSON form (`jaxmigrate-verify/1`)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

SCHEMA = "jaxmigrate-verify/1"

# "equal": numbers of the two programs were compared and agree. "holds": a property of the converted program alone.
Verdict = Literal["equal", "holds", "different", "shapes only", "eager only", "recompiles", "failed", "not run"]

# What a stage's error may be, by the type of the numbers. float16 and bfloat16 carry 11 and 8 bits.
TOLERANCES = {"float64": 1e-10, "float32": 2e-5, "float16": 5e-3, "bfloat16": 4e-2}
BEHAVIOUR_FACTOR = 5.0  # rounding grows over the steps of an optimizer


@dataclass(frozen=True)
class VerifyOptions:
    """How to verify. `tolerance` replaces the table by dtype; `timeout` is seconds for each process and case.

    `memory` is the limit for each process in GB, 0 is none; `precisions` are the further types to run with, each a
    check of its own: "float64" separates rounding from error, "bfloat16" is what training often runs in.
    `map` is a name map as plain data, for a converted program with other names or layouts (see mapping.py).
    """

    device: Literal["cpu", "gpu"] = "cpu"
    tolerance: float | None = None
    steps: int = 3
    lr: float = 0.05
    optimizer: str = "sgd"
    seed: int = 0
    timeout: float = 300.0
    memory: float = 16.0
    precisions: tuple[str, ...] = ("float64",)
    map: dict[str, Any] | None = None
    jit: bool = True
    eager: bool = True
    divergence: bool = True
    bench: bool = False


@dataclass(frozen=True)
class Stage:
    """One row: what was compared, how, and what came of it.

    `max_abs` is the largest |t - j|, `max_rel` the largest |t - j| / max(1, max|t|) over the compared arrays: the
    number that is held against `tolerance`. Both are None where no number was compared. `worst` names the array and
    the position of the largest error, `detail` says why a stage failed or was not run, and what was left out.
    """

    name: str
    how: str
    verdict: Verdict
    compared: str = ""
    max_abs: float | None = None
    max_rel: float | None = None
    tolerance: float | None = None
    worst: str = ""
    detail: str = ""


@dataclass(frozen=True)
class Divergence:
    """The first sub-module (torch's path, "" is the model) whose output differs although its inputs agree."""

    path: str
    kind: str
    call: int
    mode: str
    error: float
    where: str
    text: str


@dataclass(frozen=True)
class Statement:
    """The first statement that gives a name another value than the other program's statement does."""

    function: str
    name: str
    torch: str
    jax: str
    error: float
    where: str
    text: str


@dataclass(frozen=True)
class Heat:
    """One sub-module of the traced run: the relative errors of its inputs and its output, None where unmatched."""

    path: str
    kind: str
    given: float | None
    made: float | None
    tolerance: float


@dataclass(frozen=True)
class Timing:
    """Seconds per step of one way to run: median and quartiles of `steps` steps, and of the first, which compiles.

    They are None where it was not measured; `detail` says why, or what torch.compile could not keep together.
    """

    what: str
    way: str
    median: float | None = None
    low: float | None = None
    high: float | None = None
    first: float | None = None
    steps: int = 0
    detail: str = ""


@dataclass(frozen=True)
class Memory:
    """Bytes of one process: before the first step (on a GPU: 0), and at most."""

    side: str
    device: str
    before: int
    peak: int


@dataclass(frozen=True)
class Bench:
    """The measurement of one case; without rows `note` says why there is none."""

    rows: tuple[Timing, ...] = ()
    memory: tuple[Memory, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class CaseReport:
    """The stages of one case in order, the first divergence when there is one, and what was assumed on the way."""

    case: str
    stages: tuple[Stage, ...]
    divergence: Divergence | None = None
    notes: tuple[str, ...] = ()
    statement: Statement | None = None
    heat: tuple[Heat, ...] = ()
    curves: tuple[tuple[str, tuple[float, ...]], ...] = ()
    bench: Bench | None = None

    @property
    def ok(self) -> bool:
        """True when something was compared by value and nothing differed or failed."""
        verdicts = [s.verdict for s in self.stages]
        compared = any(s.verdict == "equal" and s.name.startswith(("forward", "losses")) for s in self.stages)
        return compared and not {"different", "failed"} & set(verdicts)

    def stage(self, name: str, how: str = "") -> Stage:
        """The row of that name (and way of running). Raises KeyError."""
        for stage in self.stages:
            if stage.name == name and how in ("", stage.how):
                return stage
        raise KeyError(f"{name} {how}".strip())


@dataclass(frozen=True)
class VerifyReport:
    """What `verify_pair` found. `exit_code`: 0 every case is ok, 1 some case differs, failed or compared nothing."""

    original: Path
    converted: Path
    cases: tuple[CaseReport, ...]
    device: str = "cpu"
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return bool(self.cases) and all(c.ok for c in self.cases)

    @property
    def exit_code(self) -> int:
        return 0 if self.ok else 1


def report_json(report: VerifyReport) -> dict[str, Any]:
    """The report as plain data that `json.dumps` takes; errors that are not finite are written as text."""
    return {
        "schema": SCHEMA,
        "ok": report.ok,
        "original": str(report.original),
        "converted": str(report.converted),
        "device": report.device,
        "versions": dict(report.versions),
        "cases": [
            {
                "case": c.case,
                "ok": c.ok,
                "notes": list(c.notes),
                "stages": [{k: _plain(v) for k, v in asdict(s).items()} for s in c.stages],
                "statement": None if c.statement is None else {k: _plain(v) for k, v in asdict(c.statement).items()},
                "curves": {name: [_plain(v) for v in values] for name, values in c.curves},
                "heat": [{k: _plain(v) for k, v in asdict(h).items()} for h in c.heat],
                "bench": None if c.bench is None else asdict(c.bench),
                "divergence": None if c.divergence is None else {k: _plain(v) for k, v in asdict(c.divergence).items()},
            }
            for c in report.cases
        ],
    }


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value - value != 0:  # inf, nan: not JSON
        return str(value)
    return value
