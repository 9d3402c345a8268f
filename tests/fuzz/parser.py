#!/usr/bin/env python
"""Real Python files through the whole tool: `python tests/fuzz/parser.py [--limit N] [--seed N] [FOLDER...]`.

Takes the files of the standard library and of site-packages (or of FOLDERs), gives each a use of torch that converts
(one line at its end), and expects: no crash and no fault of the tool; the file without that line must be left alone
altogether. A file that Python itself does not parse must be JM901. Prints a line for each failure and the figures;
exits with 1 when there is one. A line that changes beside the added one is no failure but printed: code that has
nothing to do with torch was taken for torch's.
"""

from __future__ import annotations

import argparse
import random
import sys
import sysconfig
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from jaxmigrate.config import Settings
from jaxmigrate.engine import Source
from jaxmigrate.files import DecodeError, InputError, decode
from jaxmigrate.project import convert_files
from jaxmigrate.report.findings import Outcome
from jaxmigrate.rulebook import RuleBook, load_rules

LARGEST = 400_000  # characters


def candidates(folders: Iterable[Path]) -> list[Path]:
    """The Python files below folders that do not speak of torch, JAX or of this tool."""
    return sorted(p for folder in folders for p in folder.rglob("*.py") if p.is_file())


def sources(paths: Iterable[Path]) -> Iterator[Source]:
    """Those that can be read, with the line that is to be converted at their end."""
    for path in paths:
        try:
            source = decode(str(path), path.read_bytes())
        except (InputError, DecodeError, OSError):
            continue
        if len(source.text) > LARGEST or any(word in source.text for word in ("torch", "jax", "flax", "optax")):
            continue
        yield source


def with_torch(source: Source) -> Source:
    """The file with a line that uses torch, in the line ends of the file."""
    end = "\r\n" if "\r\n" in source.text else "\r" if "\r" in source.text and "\n" not in source.text else "\n"
    gap = "" if source.text.endswith(("\n", "\r")) or not source.text else end
    text = f"{source.text}{gap}import torch as _th{end}_fuzz = _th.zeros(3){end}"
    return Source("fuzz/" + Path(source.path).name, text, source.encoding, source.bom)


def fault(source: Source, book: RuleBook) -> str:
    """What went wrong with one file, "" when nothing did."""
    (alone,) = convert_files([source], book, Settings()).outcomes
    if alone.status != "skipped" or alone.after != source.text:
        return "it has no torch and was touched"
    given = with_torch(source)
    (outcome,) = convert_files([given], book, Settings(todo=False)).outcomes
    try:
        compile(given.text, given.path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        parses = False
    else:
        parses = True
    codes = {f.code for f in outcome.findings}
    if codes & {"JM902", "JM903"}:
        return next(f"{f.code} {f.message}" for f in outcome.findings if f.code in ("JM902", "JM903"))
    if outcome.status == "failed":
        return "" if not parses else f"JM901, but Python parses it: {outcome.findings[0].message}"
    return ""


def touched(source: Source, book: RuleBook) -> str:
    """A line that changed beside what was added, "" when there is none."""
    (outcome,) = convert_files([with_torch(source)], book, Settings(todo=False)).outcomes
    return _touched(source, outcome) if outcome.status == "changed" else ""


def _touched(source: Source, outcome: Outcome) -> str:
    after = outcome.after.splitlines(keepends=True)
    before = source.text.splitlines(keepends=True)
    if before and not before[-1].endswith(("\n", "\r")):
        before[-1] += "\n" if "\r" not in outcome.after else outcome.after[len(source.text) :][:2].rstrip("_ijf")
    rest = iter(after)
    missing = next((line for line in before if line not in rest), None)
    if missing is not None:
        return repr(missing)
    return "" if len(after) - len(before) <= 5 else f"{len(after) - len(before)} lines more"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--limit", type=int, default=1500, help="files, drawn by chance; 0: all")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    folders = options.folders or [Path(sysconfig.get_path("stdlib")), Path(sysconfig.get_path("purelib"))]
    paths = candidates(folders)
    random.Random(options.seed).shuffle(paths)
    book, count, lines, start = load_rules(), Counter[str](), 0, time.process_time()
    for source in sources(paths):
        problem = fault(source, book)
        count["failed" if problem else "fine"] += 1
        if not problem and (line := touched(source, book)):
            count["touched"] += 1
            print(f"{source.path}: taken for torch: {line}")
        lines += source.text.count("\n")
        if problem:
            print(f"{source.path}: {problem}")
        if options.limit and count["fine"] + count["failed"] >= options.limit:
            break
    files = count["fine"] + count["failed"]
    print(f"{files} files, {lines} lines, {time.process_time() - start:.0f} s: {count['failed']} failed, ", end="")
    print(f"{count['touched']} with a line taken for torch")
    return 1 if count["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
