"""Fuzz the converter with random tensor programs: `python tests/fuzz/run.py --programs 2000`.

Each program is converted and run under torch and under JAX in one process. It must give equal results, or the report
must leave something in it. Prints how many there were, the share that converted, what was reported by code, and each
failure, minimised, with its source. `--docs` writes the figures into docs/fuzz.md.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")
HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
DOCS = HERE.parent.parent / "docs" / "fuzz.md"


@dataclass
class Totals:
    """What became of the programs of a run."""

    outcomes: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    messages: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, other: Totals) -> None:
        self.outcomes += other.outcomes
        self.codes += other.codes
        self.messages += other.messages
        self.failures += other.failures

    @property
    def run(self) -> int:
        return sum(n for k, n in self.outcomes.items() if k != "refused")

    @property
    def share(self) -> float:
        return (self.outcomes["equal"] + self.outcomes["WRONG"]) / max(self.run, 1)

    def table(self) -> str:
        rows = [f"programs that torch runs  {self.run}", f"converted and equal      {self.outcomes['equal']}"]
        rows.append(f"reported                 {self.outcomes['reported']}")
        rows += [f"    {code}                {n}" for code, n in self.codes.most_common()]
        rows += [
            f"crash                    {self.outcomes['crash']}",
            f"WRONG                    {self.outcomes['WRONG']}",
        ]
        return "\n".join([*rows, f"share converted          {self.share:.1%}"])


def fuzz(seed: int, programs: int, seconds: float, failures: int = 3) -> Totals:
    """Draw programs with one seed until there are enough, the time is over or so many failures were minimised."""
    import re

    import hypothesis
    import programs as drawn
    from judge import judge

    totals, stop = Totals(), time.monotonic() + seconds
    seen: set[str] = set()
    phases = (hypothesis.Phase.generate,)
    silent = list(hypothesis.HealthCheck)

    def settings(count: int, *more: hypothesis.Phase) -> hypothesis.settings:
        return hypothesis.settings(
            max_examples=count, database=None, deadline=None, phases=(*phases, *more), suppress_health_check=silent
        )

    @hypothesis.seed(seed)
    @settings(programs)
    @hypothesis.given(drawn.programs())
    def collect(program: str) -> None:
        if program in seen or time.monotonic() > stop or len(totals.failures) >= failures:
            return
        seen.add(program)
        verdict = judge(program)
        totals.outcomes[verdict.outcome] += 1
        if verdict.outcome == "reported":
            totals.codes.update(verdict.codes)
            totals.messages.update({re.sub(r"`[^`]*`|\d+", "_", m) for m in verdict.detail.split("; ")})
        if verdict.outcome in ("crash", "WRONG"):
            small = shrink(program, verdict.outcome)
            again = judge(small)
            totals.failures.append(f"{again.outcome}: {again.detail}\n{small}\n--- converted\n{again.after}")

    collect()
    return totals


def shrink(program: str, outcome: str) -> str:
    """The program without every line that can go while it still fails in the same way."""
    import ast

    from judge import judge

    def fails(text: str) -> bool:
        try:
            ast.parse(text)
        except SyntaxError:
            return False
        return judge(text).outcome == outcome

    lines = program.split("\n")
    start = lines.index("def main():") + 1
    changed = True
    while changed:
        changed = False
        for at in range(len(lines) - 1, start - 1, -1):
            depth = len(lines[at]) - len(lines[at].lstrip())
            stop = at + 1
            while stop < len(lines) and lines[stop].strip() and len(lines[stop]) - len(lines[stop].lstrip()) > depth:
                stop += 1
            without = lines[:at] + lines[stop:]
            if lines[at].strip() and not lines[at].lstrip().startswith("return") and fails("\n".join(without)):
                lines, changed = without, True
                break
    return "\n".join(lines)


def write_docs(totals: Totals, command: str) -> None:
    """Put the figures between the marks of docs/fuzz.md; the list of bugs below them is kept by hand."""
    head, start, rest = DOCS.read_text(encoding="utf-8").partition("<!-- figures -->\n")
    _, end, tail = rest.partition("<!-- end -->")
    figures = f"`{command}`\n\n```text\n{totals.table()}\n```\n"
    DOCS.write_text(f"{head}{start}{figures}{end}{tail}", encoding="utf-8")


def _work(job: tuple[int, int, float]) -> Totals:
    return fuzz(*job)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--messages", type=int, default=0, help="the commonest reasons of reports")
    parser.add_argument("--docs", action="store_true", help="write the figures into docs/fuzz.md")
    args = parser.parse_args()
    each = -(-args.programs // args.jobs)
    jobs = [(args.seed * 1000 + n, each, args.seconds) for n in range(args.jobs)]
    totals = Totals()
    if args.jobs == 1:
        totals.add(_work(jobs[0]))
    else:
        with multiprocessing.get_context("spawn").Pool(args.jobs) as pool:
            for part in pool.imap_unordered(_work, jobs):
                totals.add(part)
    print("\n\n".join(totals.failures))
    print(totals.table())
    if args.docs:
        write_docs(totals, f"python tests/fuzz/run.py --programs {args.programs} --seed {args.seed} --jobs {args.jobs}")
    for message, count in totals.messages.most_common(args.messages):
        print(f"{count:6} {message[:150]}")
    return 1 if totals.failures else 0


if __name__ == "__main__":
    sys.exit(main())
