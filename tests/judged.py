"""A verdict from `jaxmigrate.verify`: the original under torch, the converted program without it."""

from __future__ import annotations

import ast
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import measure

from jaxmigrate.verify import CaseReport, VerifyOptions, find_cases, parse_case, verify_pair
from jaxmigrate.verify.record import Recording
from jaxmigrate.verify.run import compare_case, run_converted, run_original

OPTIONS = VerifyOptions(steps=0, precisions=())
TOGETHER = VerifyOptions(steps=0, precisions=(), divergence=False, timeout=300)
COMPILED = replace(TOGETHER, eager=False)
JUDGED = replace(TOGETHER, precisions=("float64",))  # which tells rounding from an error


@dataclass(frozen=True)
class Program:
    """A source file, its conversion, and the example to run."""

    name: str
    source: Path
    converted: measure.Converted
    example: str


def verified(
    name: str,
    source: Path,
    converted: measure.Converted,
    examples: Sequence[str] = (),
    options: VerifyOptions = OPTIONS,
) -> measure.Measured:
    """Verify `converted` against `source`, on `examples` or on those that the source's own comments give."""
    if fault := unreadable(name, converted):
        return fault
    cases = [parse_case(e) for e in examples] or find_cases(source, source.read_text(encoding="utf-8"))
    return judged(name, converted, verify_pair(source, converted.output, cases, options).cases)


def verify_together(programs: Sequence[Program], options: VerifyOptions = TOGETHER) -> list[measure.Measured]:
    """Verify many programs with one process for all originals and one for all conversions.

    A program that ends or stalls its process is run again by itself, and so are those that come after it.
    """
    done: list[measure.Measured] = []
    ready = [p for p in programs if not unreadable(p.name, p.converted)]
    while ready:
        recorded = _record(ready, options)
        broken = next((i for i, pair in enumerate(recorded) if any(r.running for r in pair)), len(ready))
        if broken == 0:
            broken = 1
        for program, (torch, jax) in zip(ready[:broken], recorded, strict=False):
            report = compare_case(parse_case(program.example), torch, jax, options)
            done.append(judged(program.name, program.converted, [report]))
        ready = ready[broken:]
    by_name = {m.name: m for m in done}
    return [by_name.get(p.name) or unreadable(p.name, p.converted) or _missing(p) for p in programs]


def _record(programs: Sequence[Program], options: VerifyOptions) -> list[tuple[Recording, Recording]]:
    with tempfile.TemporaryDirectory(prefix="jaxmigrate-verify-") as name:
        scratch = Path(name)
        cases = [parse_case(p.example) for p in programs]
        torch = run_original([(p.source, c) for p, c in zip(programs, cases, strict=True)], options, scratch / "torch")
        items = [
            (p.converted.output, case, scratch / "torch" / str(i))
            for i, (p, case) in enumerate(zip(programs, cases, strict=True))
        ]
        return list(zip(torch, run_converted(items, options, scratch / "jax"), strict=True))


def _missing(program: Program) -> measure.Measured:
    return measure.Measured(program.name, "crash", "", program.converted.left, "was not run")


def unreadable(name: str, converted: measure.Converted) -> measure.Measured | None:
    """The verdict when there is nothing to run: no output, or output that does not parse."""
    if not converted.output.exists():
        return measure.judge(name, converted, False, False, "", "no output")
    try:
        ast.parse(converted.output.read_bytes())
    except SyntaxError as error:
        return measure.Measured(name, "WRONG", "", converted.left, f"the output does not parse: {error}")
    return None


def judged(name: str, converted: measure.Converted, cases: Sequence[CaseReport]) -> measure.Measured:
    """The verdict from the stages of verification."""
    stages = [s for c in cases for s in c.stages]
    ok = all(c.ok for c in cases)
    ran = any(s.verdict == "different" for s in stages) or ok
    detail = next((f"{s.name} {s.how}: {s.detail or s.worst}" for s in stages if s.verdict == "different"), "")
    detail = detail or next((f"{s.name} {s.how}: {s.detail}" for s in stages if s.verdict == "failed"), "")
    return measure.judge(name, converted, ran, ok, errors(cases), detail)


def errors(cases: Sequence[CaseReport]) -> str:
    """The largest relative error of each kind of stage: "forward 1.2e-07, gradients 3.1e-06"."""
    worst: dict[str, float] = {}
    for stage in (s for c in cases for s in c.stages):
        if stage.max_rel is not None:
            kind = stage.name.split()[0]
            worst[kind] = max(worst.get(kind, 0.0), stage.max_rel)
    return ", ".join(f"{kind} {value:.1e}" for kind, value in worst.items())
