#!/usr/bin/env python
"""Score the converter on the cases of this folder: real-world traps as whole programs, with torch's right values.

    python tests/cases/score.py                    # our converter, all cases; about a minute on two cores
    python tests/cases/score.py --only batchnorm   # a substring of a case's name or area
    python tests/cases/score.py --converter 'cp -rT {src} {dst}' --allow-torch   # unconverted: all must be equal

Each case file is a whole PyTorch program, scaffolding included: it is converted whole, then its main() runs in a
process in which torch cannot be imported, and what it returns is compared with EXPECTED.json (made by torch). FILES
cases are written out as a package and NOTEBOOK cases as a notebook, and converted as that. One verdict a case:

    equal      the values agree, nothing reported as left or unmapped
    stated     the values agree, and the report also leaves or states something
    reported   the report leaves or refuses something (JM2xx, JM3xx), and the values disagree or nothing runs
    crash      nothing reported, no value
    WRONG      nothing reported, another value

`as indexed` says whether that is what INDEX.tsv asks for: 'converts and equal' wants equal or stated; 'must report'
wants a report and no wrong value.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import json
import math
import os
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import warm

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SCAFFOLDING = "# ---- scaffolding"
VERDICTS = ("equal", "stated", "reported", "crash", "WRONG")
LEFT = ("JM2", "JM3")
REL_TOL, ABS_TOL = 2e-5, 2e-6


@dataclass(frozen=True)
class Case:
    """A row of INDEX.tsv with the value torch gives. `asked` is what the index accepts."""

    name: str
    area: str
    asked: frozenset[str]
    want: Any
    path: Path


@dataclass(frozen=True)
class Result:
    """What became of one case; `why` is "" when the value is right."""

    case: str
    area: str
    verdict: str
    as_indexed: bool
    codes: tuple[str, ...]
    why: str
    ran: bool


def read_cases(folder: Path, only: str) -> list[Case]:
    """The cases of `folder` whose name or area holds `only`, in the order of the index."""
    header, *lines = (folder / "INDEX.tsv").read_text(encoding="utf-8").splitlines()
    expected = json.loads((folder / "EXPECTED.json").read_text(encoding="utf-8"))
    cases = []
    for line in lines:
        row = dict(zip(header.split("\t"), line.split("\t"), strict=True))
        name = f"{row['id']}_{row['slug']}"
        asked = frozenset((row["expected"], *row["also_acceptable"].split(";")))
        if only in f"{name} {row['area']}":
            cases.append(Case(name, row["area"], asked, expected[row["id"]], folder / f"{name}.py"))
    return cases


def value_of(name: str, head: str) -> Any:
    """What the head of a case (plain data, written for this project) binds to `name`."""
    scope: dict[str, Any] = {}
    exec(head, scope)
    return scope[name]


def lay_out(case: Path, src: Path) -> str:
    """Write the program to convert into `src`; return how to run it: "module:function", or a notebook's name."""
    data = case.read_bytes()
    text = data.decode("latin-1") if b"coding: latin-1" in data[:60] else data.decode("utf-8-sig")
    head = text.split(SCAFFOLDING)[0]
    if "\nFILES = {" in head:
        files = value_of("FILES", head)
        for name, body in files.items():
            target = src / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(body, encoding="utf-8")
        return next(iter(files)).split("/")[0] + ".app:run"
    if "\nNOTEBOOK = {" in head:
        (src / "case.ipynb").write_text(json.dumps(value_of("NOTEBOOK", head), indent=1), encoding="utf-8")
        return "case.ipynb"
    (src / "case.py").write_bytes(data)
    return "case:main"


def bare(text: str) -> str:
    """A dtype's name without its framework and width, so that torch.int64 and int32 agree; other text unchanged."""
    for old, new in (
        ("torch.", ""),
        ("int64", "int32"),
        ("float64", "float32"),
        ("<class 'jax.numpy.", ""),
        ("'>", ""),
    ):
        text = text.replace(old, new)
    return text


def agree(want: Any, got: Any) -> bool:
    """Whether two JSON values agree; floats to REL_TOL and ABS_TOL, dtype names up to their width."""
    if isinstance(want, dict):
        return isinstance(got, dict) and want.keys() == got.keys() and all(agree(want[k], got[k]) for k in want)
    if isinstance(want, list):
        return isinstance(got, list) and len(want) == len(got) and all(map(agree, want, got))
    if isinstance(want, str):
        return isinstance(got, str) and bare(want) == bare(got)
    if isinstance(want, bool) or want is None:
        return want is got
    if not isinstance(got, (int, float)) or isinstance(got, bool):
        return False
    if math.isnan(want) or math.isnan(got):
        return math.isnan(want) and math.isnan(got)
    return want == got or math.isclose(want, got, rel_tol=REL_TOL, abs_tol=ABS_TOL)


def judge(case: Case, codes: frozenset[str], value: Any, why: str) -> Result:
    """The verdict on one case, from the codes the report holds and the value (None: nothing ran, `why` says why)."""
    left = any(c.startswith(LEFT) for c in codes)
    if value is not None and agree(case.want, value):
        verdict, why = ("stated" if codes else "equal"), ""
    else:
        verdict = "reported" if left else "crash" if value is None else "WRONG"
        why = why or f"got {json.dumps(value)[:200]}"
    converts = verdict in ("equal", "stated") and "converts and equal" in case.asked
    reports = verdict in ("stated", "reported") and "must report" in case.asked
    return Result(case.name, case.area, verdict, converts or reports, tuple(sorted(codes)), why, value is not None)


def score(case: Case, args: argparse.Namespace) -> Result:
    """Convert one case and run what came out."""
    with tempfile.TemporaryDirectory() as scratch:
        src, dst, report = (Path(scratch, n) for n in ("src", "dst", "report.json"))
        src.mkdir()
        entry = lay_out(case.path, src)
        converted = warm.convert(args.converter, src, dst, report, args.timeout)
        found = json.loads(report.read_text(encoding="utf-8"))["findings"] if report.exists() else []
        codes = frozenset(f["code"] for f in found if f["code"].startswith(("JM1", *LEFT, "JM4")))
        failed = "; ".join(f"{f['code']}: {f['message']}" for f in found if f["code"].startswith("JM9"))
        if not dst.exists():
            return judge(case, codes, None, failed or converted or "no output")
        value, why = warm.run(dst, entry, args.allow_torch, args.timeout)
        return judge(case, codes, value, failed or why)


def totals(results: list[Result]) -> str:
    count = collections.Counter(r.verdict for r in results)
    parts = ", ".join(f"{v} {count[v]}" for v in VERDICTS)
    return f"{parts}; as indexed: {sum(r.as_indexed for r in results)} of {len(results)}"


def table(results: list[Result]) -> str:
    lines = []
    for r in results:
        why = r.why.splitlines()[-1][:110] if r.why else ""
        mark = "" if r.as_indexed else "NOT AS INDEXED"
        lines.append(f"{r.verdict:9}{mark:15}{r.case:42}{','.join(r.codes):24} {why}".rstrip())
    return "\n".join(lines)


def page(results: list[Result]) -> str:
    """docs/cases.md: the totals and one line a case."""
    rows = [
        f"| {r.case} | {r.area} | {r.verdict} | {'yes' if r.as_indexed else '**no**'} | {' '.join(r.codes)} |"
        for r in results
    ]
    head = [
        "# Real-world traps",
        "",
        "Written by `python tests/cases/score.py --docs`. Each case is a whole PyTorch program around a trap that",
        "people hit when they port to JAX (sources in `tests/cases/INDEX.tsv`). What its conversion returns, in a",
        "process without torch, is compared with what torch returned. What the verdicts mean: the head of `score.py`.",
        "",
        f"{totals(results)}.",
        "",
        "| case | area | verdict | as indexed | findings |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*head, *rows, ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--converter", default="", help="command with {src} {dst} {report}; default: ours, warm")
    parser.add_argument("--cases", type=Path, default=HERE)
    parser.add_argument("--only", default="", help="substring of a case's name or area")
    parser.add_argument(
        "--allow-torch", action="store_true", help="let the programs import torch (to prove this scorer)"
    )
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--timeout", type=float, default=120, help="seconds a case")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--docs", action="store_true", help="write docs/cases.md")
    args = parser.parse_args()
    cases = read_cases(args.cases, args.only)
    if not cases:
        parser.error("no case matches")
    start = time.monotonic()
    warm.start(args.allow_torch, converter=not args.converter)
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        results = list(pool.map(lambda c: score(c, args), cases))
    print(table(results))
    print(f"{totals(results)}; {time.monotonic() - start:.0f} s")
    if args.json:
        args.json.write_text(json.dumps([asdict(r) for r in results], indent=1), encoding="utf-8")
    if args.docs:
        (ROOT / "docs" / "cases.md").write_text(page(results), encoding="utf-8")
    return int(any(r.verdict == "WRONG" for r in results))


if __name__ == "__main__":
    sys.exit(main())
