"""The table of seeded faults: each slip put into a golden conversion, what noticed it first, and the place named.

Run as a script it writes docs/seeded-faults.md. The place is right when the statement that verify names is the one that
was changed, or when what verify says holds the name that the slip expects (a sub-module, a parameter, a buffer).
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jaxmigrate.verify import CaseReport, VerifyOptions, parse_case
from jaxmigrate.verify.divergence import first_divergence, first_statement
from jaxmigrate.verify.processes import run_items
from jaxmigrate.verify.results import Stage
from jaxmigrate.verify.run import compare_case, run_converted, run_original
from jaxmigrate.verify.worker import Item

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from verify.slips import EXAMPLES, MODULES, PLACES, SLIPS, Slip, write_slip

TARGET = Path(__file__).parents[2] / "docs" / "seeded-faults.md"
OPTIONS = VerifyOptions(jit=False, steps=0, precisions=())


@dataclass(frozen=True)
class Outcome:
    """What verify said of one slip."""

    slip: Slip
    report: CaseReport
    said: str
    line: int
    detected: bool
    located: bool

    @property
    def stage(self) -> Stage | None:
        return next((s for s in self.report.stages if s.verdict in ("different", "failed")), None)


def outcomes(slips: Sequence[Slip], root: Path) -> list[Outcome]:
    """Run the slips: one process for each side, and one more for each side to trace what differs."""
    cases = {name: parse_case(text) for name, text in EXAMPLES.items()}
    modules = list(dict.fromkeys(s.module for s in slips))
    originals = [MODULES / m / "torch_in.py" for m in modules]
    torch = run_original([(f, cases[m]) for f, m in zip(originals, modules, strict=True)], OPTIONS, root / "torch")
    folders = {m: root / "torch" / str(i) for i, m in enumerate(modules)}
    files = [write_slip(s, root / str(i)) for i, s in enumerate(slips)]
    programs = [(f, cases[s.module], folders[s.module]) for f, s in zip(files, slips, strict=True)]
    jax = run_converted(programs, OPTIONS, root / "jax")
    by_module = dict(zip(modules, torch, strict=True))
    reports = [compare_case(cases[s.module], by_module[s.module], r, OPTIONS) for s, r in zip(slips, jax, strict=True)]
    modes = [_mode(r) for r in reports]
    wanted = sorted({(s.module, m) for s, m in zip(slips, modes, strict=True) if m})
    items = [Item(MODULES / n / "torch_in.py", cases[n], root / "torch" / f"{n}-{m}", trace=m) for n, m in wanted]
    left = dict(zip(wanted, run_items("torch", items, OPTIONS, root / "torch"), strict=True)) if items else {}
    traced = [i for i, m in enumerate(modes) if m]
    items = [
        Item(
            files[i],
            cases[slips[i].module],
            root / "jax" / f"trace{i}",
            root / "torch" / f"{slips[i].module}-{modes[i]}",
            modes[i],
        )
        for i in traced
    ]
    right = dict(zip(traced, run_items("jax", items, OPTIONS, root / "jax"), strict=True)) if items else {}
    found = []
    for i, (slip, report) in enumerate(zip(slips, reports, strict=True)):
        if i in right:
            steps = [r.get(f"trace {modes[i]}") for r in (left[slip.module, modes[i]], right[i])]
            said = [s.error or s.facts.get("missing") for s in steps]
            if any(said):
                raise RuntimeError(f"{slip.name}: the trace failed: {said}")
            else:
                place = first_divergence(steps[0], steps[1], modes[i], None)
                report = replace(report, divergence=place, statement=first_statement(steps[0], steps[1], None))
        found.append(_outcome(slip, report, files[i]))
    return found


def _mode(report: CaseReport) -> str:
    wrong = next((s for s in report.stages if s.name.startswith("forward") and s.verdict == "different"), None)
    return "" if wrong is None else wrong.name.split()[1]


def _outcome(slip: Slip, report: CaseReport, converted: Path) -> Outcome:
    changed = (converted.parent / slip.file).read_text(encoding="utf-8").splitlines()
    before = (MODULES / slip.module / slip.file).read_text(encoding="utf-8").splitlines()
    line = next(n for n, (a, b) in enumerate(zip(before, changed, strict=False), 1) if a != b)
    stage = next((s for s in report.stages if s.verdict in ("different", "failed")), None)
    parts = [i.text for i in (report.statement, report.divergence) if i is not None]
    if not parts and stage is not None:
        parts = [stage.worst, stage.detail]
    said = "; ".join(p for p in parts if p)
    detected = stage is not None and stage.name == slip.stage and not report.ok
    hit = report.statement is not None and report.statement.jax == f"{slip.file}:{line}"
    return Outcome(slip, report, said, line, detected, hit or bool((place := PLACES.get(slip.name)) and place in said))


def render(found: Sequence[Outcome]) -> str:
    """The page."""
    detected, located = sum(o.detected for o in found), sum(o.located for o in found)
    lines = [
        "# Seeded faults",
        "",
        "Made by `make mutations`. Each row is one wrong default or slip that is put into a golden conversion.",
        "`verify` must not call the pair equal, and must name the place: the changed statement, or the sub-module,",
        "parameter or buffer that the change belongs to.",
        "",
        f"**{detected} of {len(found)} detected, the place of {located} named ({100 * located / len(found):.0f} %).**",
        "",
        "| fault | program | changed line | noticed by | place | what `verify` said |",
        "|---|---|---|---|---|---|",
    ]
    for o in found:
        stage = f"{o.stage.name}" if o.stage is not None else "**not noticed**"
        said = o.said.replace("|", "\\|").replace("\n", " ")
        said = said if len(said) <= 220 else said[:217] + "..."
        named = "named" if o.located else "**not named**"
        lines.append(f"| {o.slip.name} | {o.slip.module} | {o.slip.file}:{o.line} | {stage} | {named} | {said} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="jaxmigrate-faults-") as folder:
        found = outcomes(SLIPS, Path(folder))
    TARGET.write_text(render(found), encoding="utf-8")
    print(
        f"{sum(o.detected for o in found)} of {len(found)} detected, {sum(o.located for o in found)} located: {TARGET}"
    )
    return 0 if all(o.detected for o in found) else 1


if __name__ == "__main__":
    sys.exit(main())
