"""`verify --bench`: both programs measured in turns, each in its own process, and the figures of it."""

from __future__ import annotations

import statistics
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from .bench import ENDED
from .cases import Case
from .processes import Side, run_items
from .record import Step
from .results import Bench, CaseReport, Memory, Timing, VerifyOptions
from .worker import Item


def bench_case(
    report: CaseReport, case: Case, files: tuple[Path, Path], weights: Path, options: VerifyOptions, scratch: Path
) -> Bench:
    """Time per step of one case that is equal; `weights` is the recording of the original."""
    if not report.ok:
        return Bench(note="the programs are not equal, so their times say nothing")
    sides: tuple[Side, Side] = ("torch", "jax")

    def run(side: Side) -> Step:
        given = weights if side == "jax" else None
        item = Item(files[sides.index(side)], case, scratch / side / "0", weights=given, trace="bench")
        try:
            [recording] = run_items(side, [item], options, scratch / side)
        finally:
            (scratch / side / ENDED).touch()  # the other one waits for it no more
        return next((s for n in ("load", "build", "bench") if (s := recording.get(n)).error), recording.get("bench"))

    for side in sides:
        (scratch / side).mkdir(parents=True)
    with ThreadPoolExecutor(2) as pool:
        steps = list(pool.map(run, sides))
    rows: list[Timing] = []
    memory: list[Memory] = []
    for side, step in zip(sides, steps, strict=True):
        if step.error:
            rows.append(Timing("every step", "torch" if side == "torch" else "JAX", detail=step.error))
            continue
        rows += [_timing(row) for row in step.facts["rows"]]
        device = str(step.facts["device"])
        used = step.facts["memory"]
        memory.append(Memory("torch" if side == "torch" else "JAX", device, used["before"], used["peak"]))
    return Bench(tuple(rows), tuple(memory))


def _timing(row: dict[str, Any]) -> Timing:
    times = row["times"]
    if len(times) < 2:
        return Timing(row["what"], row["way"], detail=row["detail"] or "it was not run")
    low, median, high = statistics.quantiles(times, n=4)
    return Timing(row["what"], row["way"], median, low, high, row["first"], len(times), row["detail"])
