#!/usr/bin/env python
"""Convert public PyTorch programs unmodified and verify each against torch: `python tests/public/run.py [--only vit]`.

The programs are listed in corpus/public.toml and downloaded from PyPI into .cache/public. Each is converted by the
command line together with what it imports from its own package, then both programs run with the same weights and
inputs: train and eval mode, outputs, gradients and buffers. What the verdicts mean is in tests/measure.py. Results are
kept in .cache/wild.json with the commit of the converter; `--docs` writes the page from all of them, so that the run
can be made in parts. Exit status 1 when any is WRONG.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import measure
from closure import lay_out
from judged import COMPILED, JUDGED, Program, verify_together
from quick import compile_cheaply
from wild import commit, keep, kept, page

# What takes the place of a package that no example needs: any name of it can be imported, called and subclassed.
STAND_IN = """
class Anything:
    def __init__(self, *args, **kwargs):
        pass

    def __call__(self, *args, **kwargs):
        return args[0] if len(args) == 1 and callable(args[0]) else Anything()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __mro_entries__(self, bases):
        return (object,)


class Package(types.ModuleType):
    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()


class Finder:
    def find_spec(self, name, path=None, target=None):
        stands_in = any(f"{name}.".startswith(f"{known}.") for known in NAMES)
        return importlib.util.spec_from_loader(name, self) if stands_in else None

    def create_module(self, spec):
        return Package(spec.name)

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, Finder())
"""


def support(listed: dict[str, Any]) -> Path:
    """A folder with the packages without torch that programs import, installed when it lacks them."""
    pins = [f"{name}=={version}" for name, version in sorted(listed["support"].items())]
    folder = measure.DOWNLOADS / ("support-" + "-".join(pins).replace("==", "-"))
    if not folder.exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder)]
        subprocess.run([*pip, *pins], check=True)
    return folder


def stand_ins(package: str, listed: dict[str, Any]) -> tuple[str, ...]:
    """The modules that no example of a package needs, whose places stand-ins take."""
    return tuple(listed["stand_ins"].get(package, ()))


def prepare(package: str, programs: list[dict[str, Any]], listed: dict[str, Any], folder: Path) -> list[Program]:
    """Lay the programs of a package out in `folder/src` and convert them into `folder/out`, all in one run."""
    names = (package, *listed["together"].get(package, ()))
    roots = [folder / "entries", *(measure.package(name, listed["packages"][name]) for name in names)]
    shutil.rmtree(folder, ignore_errors=True)
    source, output = folder / "src", folder / "out"
    for path in (source, folder / "entries"):
        path.mkdir(parents=True, exist_ok=True)
    files, needs = [], []
    for program in programs:
        file = program.get("file") or f"use_{program['name'].rpartition('/')[2]}.py"
        if "entry" in program:
            (folder / "entries" / file).write_text(program["entry"], encoding="utf-8")
        files.append(file)
        needs.append({str(source / path) for path in lay_out(roots, file, source, stand_ins(package, listed))})
    done = measure.convert(source, output, folder / "report.json")
    made = []
    for program, file, paths in zip(programs, files, needs, strict=True):
        findings = tuple(f for f in done.findings if f["path"] in paths)
        error = next((f"{f['code']} {Path(f['path']).name}: {f['message']}" for f in findings if f["code"] > "JM9"), "")
        converted = measure.Converted(output / file, findings, error)
        made.append(Program(program["name"], source / file, converted, program["example"]))
    return made


def start_with(names: tuple[str, ...], setup: str, folder: Path) -> None:
    """Let Python start with stand-ins for the named packages, then `setup`: a `sitecustomize` in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    text = f"import importlib.util, sys, types\n\nNAMES = {set(names) or '()'}\n{STAND_IN}\n{setup}\n"
    (folder / "sitecustomize.py").write_text(text, encoding="utf-8")


def score(
    package: str,
    programs: list[dict[str, Any]],
    listed: dict[str, Any],
    folder: Path | None,
    together: int,
    by: str,
    *,
    compiled: bool = False,
) -> list[measure.Measured]:
    """Convert and verify programs of a package; with `folder` everything stays in it. Results are printed and kept as
    they come, as those of the converter `by`: a run that is broken off loses little."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = (folder or Path(scratch)).resolve() / package
        prepared = prepare(package, programs, listed, folder)
        start_with(stand_ins(package, listed), listed["setup"].get(package, ""), folder / "site")
        os.environ["PYTHONPATH"] = os.pathsep.join([str(folder / "site"), str(support(listed))])
        results: list[measure.Measured] = []
        for part in (prepared[i : i + together] for i in range(0, len(prepared), together)):
            some = verify_compiled(part) if compiled else verify_together(part)
            for result in some:
                print(measure.row(result), flush=True)
            keep(some, by)
            results += some
        return results


def verify_compiled(programs: list[Program]) -> list[measure.Measured]:
    """The verdicts under jit alone, which say so; what is not equal there is run again in full, and in float64."""
    some = verify_together(programs, COMPILED)
    again = [p for p, r in zip(programs, some, strict=True) if r.verdict != "equal"]
    full = {r.name: r for r in verify_together(again, JUDGED)} if again else {}
    return [full.get(r.name) or replace(r, errors=f"{r.errors} (compiled only)") for r in some]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], help="substring of a program's name; may be repeated")
    parser.add_argument("--limit", type=int, default=0, help="the first so many")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--together", type=int, default=4, help="programs that one pair of processes runs")
    parser.add_argument("--keep", type=Path, help="leave sources, converted files and reports in this folder")
    parser.add_argument(
        "--compiled-only", action="store_true", help="run under jit only, in half the time; rows say so"
    )
    parser.add_argument("--docs", action="store_true", help="write docs/wild.md, from these results and those kept")
    args = parser.parse_args()
    compile_cheaply()
    listed = measure.public()
    programs = [p for p in listed["program"] if not args.only or any(only in p["name"] for only in args.only)]
    programs = sorted(programs, key=lambda p: p["package"])[: args.limit or None]
    if not programs:
        parser.error("no program matches")
    start, converter = time.monotonic(), commit()
    jobs = [(package, list(mine)) for package, mine in itertools.groupby(programs, key=lambda p: p["package"])]
    results = []
    with concurrent.futures.ProcessPoolExecutor(args.jobs) as pool:
        settings = (itertools.repeat(setting) for setting in (listed, args.keep, args.together, converter))
        for some in pool.map(partial(score, compiled=args.compiled_only), *zip(*jobs, strict=True), *settings):
            results += some
    print(f"{measure.totals(results)}; {time.monotonic() - start:.0f} s")
    if args.docs:
        (measure.ROOT / "docs" / "wild.md").write_text(page(listed, kept()), encoding="utf-8")
    return int(any(r.verdict == "WRONG" for r in results))


if __name__ == "__main__":
    sys.exit(main())
