"""Running the two worker processes, and making the report of what they recorded."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .benching import bench_case
from .cases import Case, CaseError
from .compare import Comparison
from .divergence import first_divergence, first_statement, heat_of
from .processes import run_items
from .record import Recording
from .results import CaseReport, Divergence, Heat, Stage, Statement, VerifyOptions, VerifyReport
from .worker import Item, settings


def verify_pair(
    original: Path, converted: Path, cases: Sequence[Case], options: VerifyOptions | None = None
) -> VerifyReport:
    """Run the cases of `original` under torch and of `converted` under JAX, each in its own process, and compare.

    Raises CaseError when there is no case and FileNotFoundError when a file is missing. Whatever goes wrong in the
    programs (exceptions, crashes, time running out) is a failed stage of the report.
    """
    options = options or VerifyOptions()
    if not cases:
        raise CaseError(f"{original}: nothing says what to run; write `# jaxmigrate: example Net(8)(f32[4, 8])` in it")
    for file in (original, converted):
        if not file.is_file():
            raise FileNotFoundError(f"{file}: no such file")
    with tempfile.TemporaryDirectory(prefix="jaxmigrate-verify-") as name:
        scratch = Path(name)
        torch = run_original([(original, c) for c in cases], options, scratch / "torch")
        weights = [scratch / "torch" / str(i) for i in range(len(cases))]
        jax = run_converted([(converted, c, w) for c, w in zip(cases, weights, strict=True)], options, scratch / "jax")
        reports = [
            compare_case(case, torch[i], jax[i], options, (original, converted, scratch / f"trace{i}"))
            for i, case in enumerate(cases)
        ]
        if options.bench:
            reports = [
                replace(
                    report,
                    bench=bench_case(report, case, (original, converted), weights[i], options, scratch / f"bench{i}"),
                )
                for i, (report, case) in enumerate(zip(reports, cases, strict=True))
            ]
    versions: dict[str, str] = {"python": ".".join(map(str, sys.version_info[:3]))}
    device: str = options.device
    for recording in (torch[0], jax[0]):
        versions.update(recording.get("load").facts.get("versions", {}))
        device = recording.get("load").facts.get("device", device)
    return VerifyReport(original, converted, tuple(reports), device, versions)


def run_original(programs: Sequence[tuple[Path, Case]], options: VerifyOptions, scratch: Path) -> list[Recording]:
    """Record original programs in one process; number i leaves its recording in the folder `scratch/i`."""
    items = [Item(file, case, scratch / str(i)) for i, (file, case) in enumerate(programs)]
    return run_items("torch", items, options, scratch)


def run_converted(
    programs: Sequence[tuple[Path, Case, Path]], options: VerifyOptions, scratch: Path
) -> list[Recording]:
    """Record converted programs in one process; each comes with the folder of its original's recording."""
    items = [Item(file, case, scratch / str(i), weights) for i, (file, case, weights) in enumerate(programs)]
    return run_items("jax", items, options, scratch)


def compare_case(
    case: Case, torch: Recording, jax: Recording, options: VerifyOptions, files: tuple[Path, Path, Path] | None = None
) -> CaseReport:
    """The report of one case. With `files` (original, converted, scratch folder) a mismatch is traced to its place."""
    comparison = Comparison(torch, jax, case, options)
    stages = comparison.stages()
    found = Found()
    kinds = ("forward", "float64")
    wrong = next((s for s in stages if s.name.split()[0] in kinds and s.verdict == "different"), None)
    if wrong is not None and files is not None and options.divergence:
        found = trace(case, wrong, options, *files)
    notes = (*comparison.notes, *([found.note] if found.note else []))
    return CaseReport(
        case.text, tuple(stages), found.divergence, notes, found.statement, found.heat, comparison.curves()
    )


@dataclass(frozen=True)
class Found:
    """What the traced runs showed; `note` says why they showed nothing."""

    divergence: Divergence | None = None
    statement: Statement | None = None
    heat: tuple[Heat, ...] = ()
    note: str = ""


def trace(case: Case, stage: Stage, options: VerifyOptions, original: Path, converted: Path, scratch: Path) -> Found:
    """Run both sides once more, watching every sub-module and every statement."""
    kind, _, mode = stage.name.partition(" ")
    wanted = mode if kind == "forward" else f"{mode} {kind}"
    [left] = run_items("torch", [Item(original, case, scratch / "torch", trace=wanted)], options, scratch)
    item = Item(converted, case, scratch / "jax", weights=scratch / "torch", trace=wanted)
    [right] = run_items("jax", [item], options, scratch)
    steps = [r.get(f"trace {wanted}") for r in (left, right)]
    for side, step in zip(("torch", "converted"), steps, strict=True):
        if step.error or "missing" in step.facts:
            why = step.error or step.facts["missing"]
            return Found(note=f"the place of the difference was not found: {side} side: {why}")
    override = settings(case, options).tolerance
    divergence = first_divergence(steps[0], steps[1], mode, override)
    statement = first_statement(steps[0], steps[1], override)
    note = ""
    if divergence is None and case.build is not None:
        note = "every sub-module that both programs call agrees: the difference arises outside of them"
    return Found(divergence, statement, heat_of(steps[0], steps[1], override), note)
