#!/usr/bin/env python
"""How fast converting is: `python bench/throughput.py`.

Converts the whole packages of corpus/public.toml in this process, on one core, without writing: lines for each second
of processor time, the median of --runs runs after one that warms up. Before that, the time on the clock of the command
line for `--help` and for a file without a hit, each the median of --runs fresh processes; after it, of `check` over all
of it in one process, in two, and from the cache.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import measure  # noqa: E402


def timed(runs: int, work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """The median of `runs` durations, in seconds of `clock`."""
    taken = []
    for _ in range(runs):
        start = clock()
        work()
        taken.append(clock() - start)
    return statistics.median(taken)


def throughput(folders: list[Path], runs: int) -> tuple[int, int, float, float]:
    """(files, lines, seconds to load the rules, seconds to convert all)."""
    from jaxmigrate.engine import Source
    from jaxmigrate.project import convert_files
    from jaxmigrate.rulebook import load_rules

    texts = {p: p.read_text(encoding="utf-8") for folder in folders for p in sorted(folder.rglob("*.py"))}
    sources = [Source(str(p), text) for p, text in texts.items()]
    lines = sum(text.count("\n") for text in texts.values())
    loading = timed(1, load_rules)
    book = load_rules()
    convert_files(sources, book)
    return len(sources), lines, loading, timed(runs, lambda: convert_files(sources, book), time.process_time)


def command(*words: str) -> Callable[[], object]:
    return lambda: subprocess.run([str(measure.JAXMIGRATE), *words], capture_output=True, check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    listed = measure.public()
    folders = [measure.package(name, listed["packages"][name]) for name in listed["whole"]]
    with tempfile.TemporaryDirectory() as scratch:
        plain = Path(scratch, "plain.py")
        plain.write_text("import os\n\nprint(os.name)\n", encoding="utf-8")
        for name, words in (("--help", ["--help"]), ("a file without a hit", ["convert", str(plain)])):
            command(*words)()
            print(f"start-up, {name}: {timed(runs, command(*words)):.2f} s")
    files, lines, loading, seconds = throughput(folders, runs)
    print(f"converting {files} files, {lines} lines: {seconds:.2f} s, {lines / seconds:,.0f} lines/s on one core")
    print(f"loading the rules: {loading:.2f} s")
    for line in whole_runs(folders, runs):
        print(line)
    return 0


def whole_runs(folders: list[Path], runs: int) -> Iterator[str]:
    """The command line over all folders, on the clock and the processor: in one process, in two, and from the cache."""
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["JAXMIGRATE_CACHE_DIR"] = scratch
        words = ["check", *map(str, folders), "--fail-on", "never"]
        command(*words)()
        ways = {
            "one process": ["--no-cache", "-j", "1"],
            "two processes": ["--no-cache", "-j", "2"],
            "a second run": [],
        }
        for name, more in ways.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            taken = timed(runs, command(*words, *more))
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            used = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / runs
            yield f"check, {name}: {taken:.2f} s on the clock, {used:.2f} s of the processor"


if __name__ == "__main__":
    sys.exit(main())
