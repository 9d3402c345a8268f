#!/usr/bin/env python
"""Public training scripts, converted, trained and compared with torch: `python tests/scripts/run.py [NAME...]`.

Both sides run under `verify --script`: from the same weights, with the same data and noise. Verdicts: **equal**: every
loss within 1e-4 relative, or within three times what float32 alone takes torch from its own float64 run (the note says
so), without jit and with it; **stated**: equal when Adam's bias is corrected in full precision, which optax does in
float32, as the findings say; **reported**: findings say what was left; **crash**: nothing was reported and it does not
run; **WRONG**: anything else.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from jaxmigrate.verify import CaseReport, VerifyOptions, verify_script

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TOLERANCE = 1e-4
LEFT = ("JM2", "JM3", "JM9")

# The CIFAR10 that is written here has other checksums than the one that torchvision knows.
UNCHECKED = """
import importlib.abc, sys


class Unchecked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "torchvision.datasets.mnist" and "torchvision.datasets.cifar" in sys.modules:
            sys.modules["torchvision.datasets.cifar"].check_integrity = lambda *_: True


sys.meta_path.insert(0, Unchecked())
"""


@dataclass(frozen=True)
class Row:
    """What became of one script."""

    name: str
    verdict: str
    note: str = ""
    error: float = 0.0
    torch: list[float] = field(default_factory=list)
    jax: list[float] = field(default_factory=list)


def write_mnist(folder: Path, count: int = 1000) -> None:
    rng = np.random.default_rng(0)
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for part in ("train", "t10k"):
        images, labels = rng.integers(0, 256, (count, 28, 28), np.uint8), rng.integers(0, 10, count).astype(np.uint8)
        head = b"".join(n.to_bytes(4, "big") for n in (0x803, count, 28, 28))
        (raw / f"{part}-images-idx3-ubyte").write_bytes(head + images.tobytes())
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(
            b"".join(n.to_bytes(4, "big") for n in (0x801, count)) + labels.tobytes()
        )


def write_cifar(folder: Path, count: int = 200) -> None:
    rng = np.random.default_rng(1)
    home = folder / "cifar-10-batches-py"
    home.mkdir(parents=True)
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        batch = {"data": rng.integers(0, 256, (count, 3072), np.uint8), "labels": rng.integers(0, 10, count).tolist()}
        (home / name).write_bytes(pickle.dumps(batch))
    (home / "batches.meta").write_bytes(pickle.dumps({"label_names": list("abcdefghij")}))


def prepare(entry: Mapping[str, Any], source: Path, base: Path) -> Path:
    """The folder in which the script runs, with its data where `../data` and `../../data` lead."""
    work = base / "one" / "two"
    work.mkdir(parents=True)
    data = base / "data"
    below = data / entry.get("below", "")
    below.mkdir(parents=True)
    if entry.get("data") == "MNIST":
        write_mnist(below)
    elif entry.get("data") == "CIFAR10":
        write_cifar(below)
    (base / "one" / "data").symlink_to(data)
    (work / "data").symlink_to(data)
    for folder in ("results", "figures"):
        (work / folder).mkdir()
    if text := entry.get("text"):
        words = (" ".join(f"w{(i * j) % 37}" for j in range(20)) for i in range(400))
        (work / text).write_text("\n".join(words))
    for name in (entry["file"], *entry.get("with", ()), *entry.get("before", ())):
        shutil.copy(source / name, work / Path(name).name)
    return work


def run(*command: str, work: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
    subprocess.run([sys.executable, *command], cwd=work, env=environment, capture_output=True, check=False)


def judge(name: str, entry: Mapping[str, Any], source: Path, keep: Path | None, timeout: int) -> Row:
    base = Path(tempfile.mkdtemp(prefix="script-"))
    try:
        return compare(name, entry, source, base, timeout)
    finally:
        if keep is not None:
            shutil.rmtree(keep / name, ignore_errors=True)
            shutil.copytree(base, keep / name, symlinks=True)
        shutil.rmtree(base)


def compare(name: str, entry: Mapping[str, Any], source: Path, base: Path, timeout: int) -> Row:
    work = prepare(entry, source, base)
    script = Path(entry["file"]).name
    for first in entry.get("before", ()):
        run(Path(first).name, work=work)
    (base / "site").mkdir()
    (base / "site" / "sitecustomize.py").write_text(UNCHECKED)
    os.environ["PYTHONPATH"] = str(base / "site")
    left, out = convert(work, base)
    options = VerifyOptions(steps=entry.get("steps", 50), timeout=timeout)
    with contextlib.chdir(work):
        report = verify_script(work / script, out / script, entry.get("arguments", ()), options)
    return verdict(name, report.cases[0], left)


def convert(work: Path, base: Path) -> tuple[str, Path]:
    """Convert the folder; what is left, and where the result is."""
    out, report = base / "out", base / "report.json"
    run("-m", "jaxmigrate.cli", "convert", str(work), "-o", str(out), "--report", str(report), work=base)
    codes = Counter(f["code"] for f in json.loads(report.read_text())["findings"] if f["code"].startswith(LEFT))
    return ", ".join(f"{code} x{count}" for code, count in sorted(codes.items())), out


def verdict(name: str, case: CaseReport, left: str) -> Row:
    """One word for the stages of a script, and what they say."""
    stages = {stage.how: stage for stage in case.stages if stage.name == "losses"}
    curves = dict(case.curves)
    row = Row(name, "", torch=list(curves.get("torch", ())), jax=list(curves.get("JAX, eager", ())))
    if "" in stages:
        return replace(row, verdict="no original", note=stages[""].detail)
    ways = [stages["eager"], stages["jit"]]
    notes = [ways[0].compared, *(f"{s.how}: {s.detail or s.verdict}" for s in ways if s.verdict != "equal")]
    notes += [s.detail for s in ways if s.verdict == "equal" and s.detail][:1]
    notes += [f"float64: {s.detail}" for s in case.stages if s.name == "float64" and s.verdict != "holds"]
    row = replace(row, error=max(s.max_rel or 0.0 for s in ways))
    if case.ok and all(s.verdict == "equal" for s in ways):
        row = replace(row, verdict="equal")
    elif "exact bias" in stages:
        notes.append(f"{stages['exact bias'].max_rel:.1e} when optax corrects Adam's bias in full precision")
        row = replace(row, verdict="stated")
    elif left:
        row = replace(row, verdict="reported")
    else:
        row = replace(row, verdict="crash" if any(s.verdict == "failed" for s in ways) else "WRONG")
    return replace(row, note="; ".join([*filter(None, notes), *([left] if left else [])])[:300])


def draw(rows: list[Row], path: Path) -> None:
    """The curves side by side, torch's as a line and the conversion's as dots."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shown = [r for r in rows if r.verdict in ("equal", "stated")]
    columns = 4
    figure, axes = plt.subplots(-(-len(shown) // columns), columns, figsize=(12, 2.2 * -(-len(shown) // columns)))
    for axis in np.ravel(axes)[len(shown) :]:
        axis.axis("off")
    for axis, row in zip(np.ravel(axes), shown, strict=False):
        axis.plot(row.torch, color="#ee4c2c", linewidth=1.5, label="torch")
        axis.plot(row.jax, ".", color="#1a73e8", markersize=3, label="converted")
        axis.set_title(row.name, fontsize=8)
        axis.tick_params(labelsize=6)
    np.ravel(axes)[0].legend(fontsize=6)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80)


def page(rows: list[Row]) -> str:
    counts = Counter(r.verdict for r in rows)
    lines = [
        "# Public training scripts",
        "",
        "Written by `make scripts`: each script of [corpus/scripts.toml](../corpus/scripts.toml) is converted and",
        "trained on small random data, from torch's weights, with the data in torch's order and torch's draws in place",
        f"of JAX's. Each loss is compared; equal means within {TOLERANCE:g} relative at every step, or within three",
        "times what float32 takes torch from its own float64 run, which the notes give then.",
        "",
        "Total: " + ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) + f" of {len(rows)}.",
        "",
        "| script | verdict | largest difference | notes |",
        "|---|---|---:|---|",
        *(f"| {r.name} | {r.verdict} | {r.error:.1e} | {r.note} |".replace("| 0.0e+00 |", "| |") for r in rows),
        "",
        "![Losses over the steps: torch as a line, the converted script as dots](img/scripts.png)",
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="scripts of corpus/scripts.toml; all of them when none is named")
    parser.add_argument("--list", type=Path, default=ROOT / "corpus" / "scripts.toml", help="the scripts")
    parser.add_argument("--folder", type=Path, default=ROOT / ".cache" / "scripts", help="where the repositories are")
    parser.add_argument("--keep", type=Path, help="keep what was written, one folder a script")
    parser.add_argument("--docs", action="store_true", help="write docs/scripts.md and its picture")
    parser.add_argument("--rows", type=Path, help="a JSON file of rows: those of earlier runs stand in the page too")
    parser.add_argument("--timeout", type=int, default=600, help="seconds for each run")
    options = parser.parse_args()
    listed = tomllib.loads(options.list.read_text())
    known: dict[str, Row] = {}
    if options.rows is not None and options.rows.exists():
        known = {name: Row(**row) for name, row in json.loads(options.rows.read_text()).items()}
    rows = []
    for name in options.names or listed:
        source = options.folder / listed[name]["repo"]
        if not (source / listed[name]["file"]).exists():
            print(f"{name}: not in {source}: fetch github.com/{listed[name]['repo'].replace('+', '/')} there")
            continue
        row = judge(name, listed[name], source, options.keep, options.timeout)
        print(f"{row.name:34} {row.verdict:10} {row.error:8.1e}  {row.note}", flush=True)
        rows.append(row)
        known[name] = row
        if options.rows is not None:
            options.rows.write_text(json.dumps({n: asdict(r) for n, r in known.items()}))
    print(Counter(r.verdict for r in rows))
    if options.docs:
        shown = [known[name] for name in listed if name in known]
        (ROOT / "docs" / "scripts.md").write_text(page(shown))
        draw(shown, ROOT / "docs" / "img" / "scripts.png")
    return any(r.verdict in ("WRONG", "crash") for r in rows)


if __name__ == "__main__":
    sys.exit(main())
