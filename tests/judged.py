"""A verdict from `jaxmigrate.verify`: the original under torch, the converted program without it."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path

import measure

from jaxmigrate.verify import VerifyOptions, VerifyReport, find_cases, parse_case, verify_pair

OPTIONS = VerifyOptions(steps=0)


def verified(
    name: str,
    source: Path,
    converted: measure.Converted,
    examples: Sequence[str] = (),
    options: VerifyOptions = OPTIONS,
) -> measure.Measured:
    """Verify `converted` against `source`, on `examples` or on those that the source's own comments give."""
    if not converted.output.exists():
        return measure.judge(name, converted, False, False, "", "no output")
    try:
        ast.parse(converted.output.read_bytes())
    except SyntaxError as error:
        return measure.Measured(name, "WRONG", "", converted.left, f"the output does not parse: {error}")
    cases = [parse_case(e) for e in examples] or find_cases(source, source.read_text(encoding="utf-8"))
    report = verify_pair(source, converted.output, cases, options)
    stages = [s for c in report.cases for s in c.stages]
    ran = any(s.verdict == "different" for s in stages) or report.ok
    detail = next((f"{s.name} {s.how}: {s.detail or s.worst}" for s in stages if s.verdict == "different"), "")
    detail = detail or next((f"{s.name} {s.how}: {s.detail}" for s in stages if s.verdict == "failed"), "")
    return measure.judge(name, converted, ran, report.ok, errors(report), detail)


def errors(report: VerifyReport) -> str:
    """The largest relative error of each kind of stage: "forward 1.2e-07, gradients 3.1e-06"."""
    worst: dict[str, float] = {}
    for stage in (s for c in report.cases for s in c.stages):
        if stage.max_rel is not None:
            kind = stage.name.split()[0]
            worst[kind] = max(worst.get(kind, 0.0), stage.max_rel)
    return ", ".join(f"{kind} {value:.1e}" for kind, value in worst.items())
