#!/usr/bin/env python
"""Convert whole public packages and check what must hold of any conversion: `python tests/public/whole.py`.

For each file of the packages that corpus/public.toml calls `whole`: the converter did not fail on it, the output
parses, every comment of the source is still there (only TODO comments of the converter are added), and converting the
output again changes nothing. Exit status 1 when any file fails.
"""

from __future__ import annotations

import argparse
import ast
import io
import sys
import tempfile
import time
import tokenize
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import measure


@dataclass(frozen=True)
class Checked:
    """One file; `faults` is empty when all holds."""

    path: str
    changed: bool
    findings: int
    left: int
    faults: tuple[str, ...]


def comments(text: str) -> Counter[str]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return Counter(t.string for t in tokens if t.type == tokenize.COMMENT)


def check(path: str, before: str, out: Path, again: Path, findings: list[dict]) -> Checked:
    codes = [f["code"] for f in findings]
    faults = [f"{f['code']}: {f['message']}" for f in findings if f["code"].startswith("JM9")]
    after = out.read_text(encoding="utf-8") if out.exists() else None
    if after is None:
        faults.append("no output")
    else:
        try:
            ast.parse(after)
            lost = comments(before) - comments(after)
            gained = [c for c in comments(after) - comments(before) if not c.startswith("# TODO(jaxmigrate")]
            faults += [f"comment lost: {c}" for c in lost] + [f"comment added: {c}" for c in gained]
        except SyntaxError as error:
            faults.append(f"does not parse: line {error.lineno}: {error.msg}")
        if again.exists() and again.read_text(encoding="utf-8") != after:
            faults.append("a second run changes it")
    left = sum(c.startswith(measure.LEFT) for c in codes)
    return Checked(path, after is not None and after != before, len(codes), left, tuple(faults))


def whole(name: str, version: str, work: Path) -> list[Checked]:
    """Convert a package twice and check each file."""
    source = measure.package(name, version)
    first = measure.convert(source, work / "once", work / "once.json")
    second = measure.convert(work / "once", work / "twice", work / "twice.json")
    for run in (first, second):
        if run.error:
            print(f"{name}: {run.error}")
    results = []
    for path in sorted(source.rglob("*.py")):
        relative = path.relative_to(source)
        mine = [f for f in first.findings if Path(f["path"]).parts[-len(relative.parts) :] == relative.parts]
        before = path.read_text(encoding="utf-8")
        results.append(check(str(relative), before, work / "once" / relative, work / "twice" / relative, mine))
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="substring of a package's name")
    parser.add_argument("--keep", type=Path, help="leave converted files and reports in this folder")
    args = parser.parse_args()
    listed = measure.public()
    start, bad = time.monotonic(), 0
    for name in (n for n in listed["whole"] if args.only in n):
        with tempfile.TemporaryDirectory() as scratch:
            work = (args.keep / name if args.keep else Path(scratch)).resolve()
            work.mkdir(parents=True, exist_ok=True)
            results = whole(name, listed["packages"][name], work)
        for r in results:
            fault = "; ".join(r.faults)[:110] or "ok"
            print(f"{r.path:70} {'changed' if r.changed else '':8}{r.findings:5} findings {r.left:4} left  {fault}")
        failed = sum(bool(r.faults) for r in results)
        bad += failed
        print(f"{name}: {len(results)} files, {sum(r.changed for r in results)} changed, {failed} with a fault")
    print(f"{time.monotonic() - start:.0f} s")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
