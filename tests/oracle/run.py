#!/usr/bin/env python
"""Score the converter on PyTorch's own test databases: `python tests/oracle/run.py ops [--only 'linalg.*']`.

Generates the cases with torch's answers where the cache lacks them, converts them in one run, runs what came out in
processes that cannot import torch, and prints a table. README.md says what cases and outcomes mean.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import importlib.metadata
import json
import os
import resource
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import tables
from pool import File, HowToRun, execute
from tables import Record

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CACHE = ROOT / ".cache" / "oracle"
GENERATORS = {"ops": "opcases.py", "modules": "modcases.py", "optims": "optcases.py"}
CONVERTER = f"{Path(sys.executable).parent / 'jaxmigrate'} convert {{src}} -o {{dst}} --report {{report}}"


def data_folder(suite: str, seed: int) -> Path:
    """The folder of a suite's cases, which depend on torch, the seed and the generators; made when missing.

    Raises CalledProcessError when the generator fails.
    """
    made_by = ("genlib.py", "modcases.py", "opcases.py", "optcases.py", "scope.toml")
    digest = hashlib.sha256(b"".join((HERE / name).read_bytes() for name in made_by)).hexdigest()[:8]
    folder = CACHE / f"torch-{importlib.metadata.version('torch')}-seed{seed}-{digest}" / suite
    if not (folder / "summary.json").exists():
        print(f"generating {suite} into {folder.relative_to(ROOT)}", file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
        command = [sys.executable, str(HERE / GENERATORS[suite]), "--out", str(folder)]
        env = {**os.environ, "ORACLE_SEED": str(seed), "OMP_NUM_THREADS": "1"}
        subprocess.run(command, env=env, check=True, stdout=sys.stderr)
    return folder


def select(folders: dict[str, Path], only: str, limit: int) -> list[File]:
    """The files of the suites with the cases that match `only`; at most `limit` files, evenly spread."""
    files = []
    for suite, folder in folders.items():
        for path in sorted((folder / "expected").glob("*.json")):
            cases = tuple(
                case
                for case in json.loads(path.read_text())
                if any(fnmatch.fnmatch(s, only) for s in (case["op"], case["entry"], case["id"], path.stem))
            )
            if cases:
                files.append(File(suite, path.stem, folder, cases))
    if 0 < limit < len(files):
        files = [files[i * len(files) // limit] for i in range(limit)]
    return files


def convert(command: str, files: list[File], work: Path) -> tuple[dict[str, Path], dict[str, list], list[str]]:
    """Run the converter once a suite; returns the output folders, the findings, and what went wrong."""
    converted, findings, notes = {}, {}, []
    shutil.rmtree(work, ignore_errors=True)
    for suite in dict.fromkeys(f.suite for f in files):
        src, dst, report = work / suite / "src", work / suite / "out", work / suite / "report.json"
        src.mkdir(parents=True)
        converted[suite] = dst
        for f in files:
            if f.suite == suite:
                shutil.copy(f.source, src)
        words = [w.format(src=src, dst=dst, report=report) for w in shlex.split(command)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            tail = (done.stderr or done.stdout).strip().split("\n")[-1][:200]
            notes.append(f"{suite}: the converter exited with {done.returncode}: {tail}")
        findings[suite] = json.loads(report.read_text())["findings"] if report.exists() else []
    return converted, findings, notes


def parse() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("suites", nargs="+", choices=list(GENERATORS))
    p.add_argument("--only", default="*", help="pattern over op name, entry, case id or file stem")
    p.add_argument("--limit", type=int, default=0, help="at most so many files, evenly spread")
    p.add_argument("--against", type=Path, help="JSON of an earlier run (--out): print what changed")
    p.add_argument("--out", type=Path, help="JSON with every case; default .cache/oracle/last-SUITES.json")
    p.add_argument("--docs", action="store_true", help="write docs/oracle-SUITE.md")
    p.add_argument("--brief", action="store_true", help="no table by op")
    p.add_argument("--bad", type=int, default=0, metavar="N", help="list the first N cases that crash or are WRONG")
    p.add_argument("--seed", type=int, default=0, help="another number draws other inputs")
    p.add_argument("--data", type=Path, help="folder with generated suites, in place of the cache")
    p.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    p.add_argument("--timeout", type=float, default=30, help="processor seconds per case")
    p.add_argument("--x64", action="store_true", help="run JAX with 64-bit types")
    p.add_argument("--converter", default=CONVERTER, help="command with {src} {dst} and, if it has one, {report}")
    p.add_argument("--backend", default="jax", choices=["jax", "torch"], help="torch: prove the kit (README)")
    p.add_argument("--shift", type=float, default=0, help="torch backend: falsify every float by this")
    return p.parse_args()


def show(opt: argparse.Namespace, records: list[Record], notes: list[str], took: tuple[float, float]) -> None:
    for suite in dict.fromkeys(r.suite for r in records):
        mine = [r for r in records if r.suite == suite]
        for key in ("op",) * (not opt.brief) + ("variant", "edge"):
            if suite != "optims" or key == "op":
                print(tables.text(mine, key, f"{suite}: {key}"))
    print(tables.text(records, "suite", "suite"))
    bad = [r for r in records if r.outcome in ("crash", "WRONG")]
    for r in bad[: opt.bad]:
        print(f"{r.outcome:6} {r.stage:6} {r.id:60} {r.detail}")
    for note in notes:
        print("converter:", note)
    cpu = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(tables.total(records))
    print(f"converting {took[0]:.0f} s, all {took[1]:.0f} s, {cpu.ru_utime + cpu.ru_stime:.0f} s of processor time")


def main() -> int:
    opt = parse()
    folders = {s: opt.data / s if opt.data else data_folder(s, opt.seed) for s in opt.suites}
    files = select(folders, opt.only, opt.limit)
    if not files:
        sys.exit("no case matches")
    name = "-".join(opt.suites)
    how = HowToRun(opt.backend, opt.shift, opt.x64, opt.timeout, opt.jobs, str(CACHE / "jax"))
    start = time.time()
    converted, findings, notes = convert(opt.converter, files, CACHE / f"work-{name}")
    converting = time.time() - start
    left = {(s, Path(x["path"]).stem) for s, xs in findings.items() for x in xs if x["code"][:3] in ("JM2", "JM3")}
    results = execute(how, files, converted, left)
    records = tables.classify(files, results, findings)
    show(opt, records, notes, (converting, time.time() - start))
    if opt.against:
        print("\n".join(tables.changes(opt.against, records)))
    (opt.out or CACHE / f"last-{name}.json").write_text(tables.to_json(records, opt.converter, notes))
    if opt.docs:
        for suite in opt.suites:
            page = tables.page(suite, [r for r in records if r.suite == suite])
            (ROOT / "docs" / f"oracle-{suite}.md").write_text(page, encoding="utf-8")
    return int(any(r.outcome == "WRONG" for r in records))


if __name__ == "__main__":
    sys.exit(main())
