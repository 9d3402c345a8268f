#!/usr/bin/env python
"""Public training scripts, converted, trained and compared with torch: `python tests/scripts/run.py [NAME...]`.

Both sides start from the same weights and see the same data and noise (draws.py). Verdicts: **equal**: every loss
within 1e-4 relative, or within three times what float32 alone takes torch from its own float64 run (the note says so);
**stated**: equal when Adam's bias is corrected in full precision, which optax does in float32, as the findings say;
**reported**: findings say what was left; **crash**: nothing was reported and it does not run; **WRONG**: anything else.
"""

from __future__ import annotations

import argparse
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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TOLERANCE = 1e-4
LEFT = ("JM2", "JM3", "JM9")


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
    if entry.get("data") == "MNIST":
        write_mnist(data)
    elif entry.get("data") == "CIFAR10":
        write_cifar(data)
    data.mkdir(exist_ok=True)
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


def run(*command: str, work: Path, timeout: int) -> tuple[int, str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu", "MPLBACKEND": "Agg"}
    try:
        done = subprocess.run(
            [sys.executable, *command], cwd=work, env=environment, capture_output=True, text=True, timeout=timeout
        )
    except subprocess.TimeoutExpired:
        return 1, f"no end after {timeout} s"
    lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    return done.returncode, lines[-1] if lines else ""


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
    script, steps = Path(entry["file"]).name, str(entry.get("steps", 50))
    arguments = entry.get("arguments", [])
    for first in entry.get("before", ()):
        run(Path(first).name, work=work, timeout=timeout)
    original = [str(HERE / "under_torch.py"), str(work / script), steps, str(base)]
    code, error = run(*original, "float", *arguments, work=work, timeout=timeout)
    if code:
        return Row(name, "no original", error)
    left, out = convert(work, base)
    torch_run = json.loads((base / "torch.json").read_text())
    for file in work.glob("*"):
        if file.suffix != ".py" and file.is_file() and not (out / file.name).exists():
            shutil.copy(file, out / file.name)
    for folder in ("data", "results", "figures"):
        if not (out / folder).exists():
            (out / folder).mkdir() if folder != "data" else (out / folder).symlink_to(base / "data")
    results = {}
    for mode in ("eager", "jit"):
        code, error = run(
            str(HERE / "under_jax.py"), str(out / script), steps, str(base), mode, *arguments, work=out, timeout=timeout
        )
        if code:
            return Row(name, "reported" if left else "crash", f"{mode}: {error}; {left}"[:300])
        results[mode] = json.loads((base / f"{mode}.json").read_text())
    row = verdict(name, torch_run, results, left)
    if row.verdict == "equal" or row.error <= TOLERANCE:
        return row
    run(*original, "double", *arguments, work=work, timeout=timeout)
    row = by_rounding(row, base / "double.json")
    if row.verdict == "equal":
        return row
    run(
        str(HERE / "under_jax.py"),
        str(out / script),
        steps,
        str(base),
        "precise",
        *arguments,
        work=out,
        timeout=timeout,
    )
    return by_optax(row, base)


def by_optax(row: Row, base: Path) -> Row:
    """The verdict when optax's bias correction, 1 - decay**count in float32, is replaced by the exact one."""
    found = [base / "precise.json", base / "double.json"]
    precise, double = (json.loads(path.read_text())["losses"] if path.exists() else [] for path in found)
    if len(precise) < len(row.torch) or len(double) < len(row.torch):
        return row
    error, own = (distance(row.torch, curve[: len(row.torch)]) for curve in (precise, double))
    if error > max(TOLERANCE, 3 * own):
        return row
    return replace(
        row, verdict="stated", note=f"{row.note}; {error:.1e} when optax corrects Adam's bias in full precision"
    )


def by_rounding(row: Row, path: Path) -> Row:
    """The verdict on a difference when torch's own, between float32 and float64, is known."""
    double = json.loads(path.read_text())["losses"] if path.exists() else []
    if len(double) < len(row.torch) or len(row.jax) < len(row.torch):
        return row
    own = distance(row.torch, double[: len(row.torch)])
    note = f"{row.note}; torch's own float32 is {own:.1e} from its float64"
    return replace(row, verdict="equal" if row.error <= 3 * own else row.verdict, note=note)


def convert(work: Path, base: Path) -> tuple[str, Path]:
    """Convert the folder; what is left, and where the result is."""
    out = base / "one" / "out"
    report = base / "report.json"
    run("-m", "jaxmigrate.cli", "convert", str(work), "-o", str(out), "--report", str(report), work=base, timeout=300)
    codes = Counter(f["code"] for f in json.loads(report.read_text())["findings"] if f["code"].startswith(LEFT))
    return ", ".join(f"{code} x{count}" for code, count in sorted(codes.items())), out


def distance(want: list[float], got: list[float]) -> float:
    """The largest relative difference of two curves, against the size of the loss or a thousandth of the first."""
    a, b = np.array(want), np.array(got)
    scale = np.maximum(np.abs(a), 1e-3 * abs(a[0]))
    return float(np.max(np.abs(a - b) / np.maximum(scale, 1e-12)))


def verdict(name: str, original: dict[str, Any], results: dict[str, Any], left: str) -> Row:
    want, eager, jitted = original["losses"], results["eager"]["losses"], results["jit"]["losses"]
    if len(eager) < len(want):  # losses whose backward calls follow each other are differentiated as one sum
        want = original["sums"]
    bad = "reported" if left else "WRONG"
    if len(eager) < len(want) or len(jitted) < len(want) or not want:
        return Row(
            name, bad, f"{len(want)} losses, {len(eager)} eager, {len(jitted)} jitted; {left}", torch=want, jax=eager
        )
    error = distance(want, eager[: len(want)])
    notes = [f"{len(want)} losses"]
    if results["jit"]["traced"]:
        notes.append("jit not compared: the compiled step draws")
    else:
        error = max(error, distance(want, jitted[: len(want)]))
    if missing := results["eager"]["missing"]:
        notes.append(f"{len(missing)} draws without counterpart: {missing[0]}")
    if left:
        notes.append(left)
    return Row(name, "equal" if error <= TOLERANCE else bad, "; ".join(notes), error, want, eager[: len(want)])


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
    parser.add_argument("--folder", type=Path, default=ROOT / ".cache" / "scripts", help="where the repositories are")
    parser.add_argument("--keep", type=Path, help="keep what was written, one folder a script")
    parser.add_argument("--docs", action="store_true", help="write docs/scripts.md and its picture")
    parser.add_argument("--timeout", type=int, default=600, help="seconds for each run")
    options = parser.parse_args()
    listed = tomllib.loads((ROOT / "corpus" / "scripts.toml").read_text())
    rows = []
    for name in options.names or listed:
        source = options.folder / listed[name]["repo"]
        if not (source / listed[name]["file"]).exists():
            print(f"{name}: not in {source}: fetch github.com/{listed[name]['repo'].replace('+', '/')} there")
            continue
        row = judge(name, listed[name], source, options.keep, options.timeout)
        print(f"{row.name:34} {row.verdict:10} {row.error:8.1e}  {row.note}", flush=True)
        rows.append(row)
    print(Counter(r.verdict for r in rows))
    if options.docs:
        (ROOT / "docs" / "scripts.md").write_text(page(rows))
        draw(rows, ROOT / "docs" / "img" / "scripts.png")
    return any(r.verdict in ("WRONG", "crash") for r in rows)


if __name__ == "__main__":
    sys.exit(main())
