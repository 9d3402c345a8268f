#!/usr/bin/env python
"""Convert public PyTorch programs unmodified and verify each against torch: `python tests/public/run.py [--only vit]`.

The programs are listed in corpus/public.toml and downloaded from PyPI into .cache/public. Each file is converted by
the command line, then both programs run with the same weights and inputs: train and eval mode, outputs and gradients.
What the verdicts mean is in tests/measure.py. Exit status 1 when any is WRONG.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import measure
from judged import verified


def score(program: dict[str, Any], packages: dict[str, str], keep: Path | None) -> measure.Measured:
    """Convert and verify one program; with `keep` the output stays in that folder."""
    source = measure.package(program["package"], packages[program["package"]]) / program["file"]
    with tempfile.TemporaryDirectory() as scratch:
        folder = keep / program["name"].replace("/", "__") if keep else Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        converted = measure.convert(source, folder / source.name, folder / "report.json")
        return verified(program["name"], source, converted, [program["example"]])


def page(results: list[measure.Measured], packages: dict[str, str]) -> str:
    """docs/public.md."""
    pins = ", ".join(f"{name} {version}" for name, version in sorted(packages.items()))
    head = [
        "# Public programs",
        "",
        "Written by `python tests/public/run.py --docs`. Files of public packages, converted unmodified and run in",
        "both frameworks with the same weights: outputs and gradients, in train and in eval mode. `equal`: each number",
        "agrees; `reported`: the report says what was left, and the program does not run to equal numbers without it;",
        "`crash`: nothing was reported and it does not run; `WRONG`: nothing was reported and a number differs. Errors",
        "are relative to the largest value compared, at least 1.",
        "",
        f"Packages: {pins}.",
        "",
        f"{measure.totals(results)}.",
        "",
    ]
    return "\n".join([*head, *measure.markdown(results), ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="substring of a program's name")
    parser.add_argument("--limit", type=int, default=0, help="the first so many")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="leave converted files and reports in this folder")
    parser.add_argument("--docs", action="store_true", help="write docs/public.md")
    args = parser.parse_args()
    listed = measure.public()
    programs = [p for p in listed["program"] if args.only in p["name"]]
    programs = programs[: args.limit] if args.limit else programs
    if not programs:
        parser.error("no program matches")
    start = time.monotonic()
    results = []
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for result in pool.map(lambda p: score(p, listed["packages"], args.keep), programs):
            print(measure.row(result), flush=True)
            results.append(result)
    print(f"{measure.totals(results)}; {time.monotonic() - start:.0f} s")
    if args.docs:
        used = {p["package"]: listed["packages"][p["package"]] for p in programs}
        (measure.ROOT / "docs" / "public.md").write_text(page(results, used), encoding="utf-8")
    return int(any(r.verdict == "WRONG" for r in results))


if __name__ == "__main__":
    sys.exit(main())
