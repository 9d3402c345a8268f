"""Compares a converted training program with the original, from the same weights: losses, returned values, weights."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import numpy as np
from programs import Program

HERE = Path(__file__).resolve().parent
JIT_TOLERANCE = 2e-5  # jit reorders sums; relative to the larger of 1 and the value


@dataclass(frozen=True)
class Comparison:
    """`error`: "" when the numbers agree, else what is wrong. `ran`: both programs ran to their end."""

    ran: bool
    error: str
    history: float = 0.0
    weights: float = 0.0
    jit: float = 0.0


class SideError(Exception):
    """A program did not run to its end; the text is the exception's line."""


def run(framework: str, program: Program, folder: Path, work: Path, weights: Path | None, **how: object) -> Path:
    """Run one side in its own process; returns the npz with its answer. Raises SideError."""
    name = "-".join([framework, *(f"{k}={v}" for k, v in how.items())])
    place = work / name
    place.mkdir(parents=True)
    out = place / "answer.npz"
    job = {"program": program.name, "folder": str(folder), "weights": str(weights or ""), "out": str(out), **how}
    (place / "job.json").write_text(json.dumps(job))
    env = {**os.environ, "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(HERE / "side.py"), framework, str(place / "job.json")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        named = [s for s in done.stderr.splitlines() if re.match(r"[\w.]*(Error|Exception|Interrupt)\b", s)]
        raise SideError((named or [f"status {done.returncode}"])[-1][:300])
    return out


def compare(program: Program, original: Path, converted: Path, work: Path, backend: str = "jax") -> Comparison:
    """Run `prog.py` of both folders and compare. `backend="torch"` runs both under torch, to prove this comparison."""
    torch_out = run("torch", program, original, work, None, draws="queue")
    how = {"draws": "queue", "jit": not program.noise} if backend == "jax" else {"draws": "queue", "second": True}
    try:
        want, got = np.load(torch_out), np.load(run(backend, program, converted, work, torch_out, **how))
    except SideError as error:
        return Comparison(False, str(error))
    problem, history = _history(program, want, got)
    wrong, weights = _weights(program, want, got)
    jit = 0.0
    if not (problem or wrong) and program.noise and backend == "jax":
        try:
            runs = [run("jax", program, converted, work, torch_out, draws="own", jit=j) for j in (False, True)]
        except SideError as error:
            return Comparison(False, f"under jit: {error}", history, weights)
        jit = _jit(*(np.load(r) for r in runs))
        wrong = f"jit and eager differ by {jit:.1e}" if jit > JIT_TOLERANCE else ""
    return Comparison(True, problem or wrong, history, weights, jit)


def _history(program: Program, want: Mapping, got: Mapping) -> tuple[str, float]:
    worst = 0.0
    for run_number in range(program.runs):
        names = [n for n in want if n.startswith(f"h{run_number}.")]
        if names != [n for n in got if n.startswith(f"h{run_number}.")]:
            return "another number of values returned", np.inf
        for name, tolerance in zip(names, cycle(program.history), strict=False):
            w, g = want[name], got[name]
            if w.shape != g.shape:
                return f"{name}: shape {g.shape}, torch has {w.shape}", np.inf
            error = _distance(w, g, program.relative)
            if not error <= (0 if w.dtype.kind in "bi" else tolerance):
                return f"{name}: off by {error:.1e}, {str(g)[:60]} for {str(w)[:60]}", error
            worst = max(worst, error)
    return "", worst


def _weights(program: Program, want: Mapping, got: Mapping) -> tuple[str, float]:
    worst = 0.0
    for name in (n for n in want if n.startswith("a")):
        if name not in got:
            return f"weight {name} is missing", np.inf
        error = np.abs(want[name] - got[name])
        for end, dead in program.dead:
            if name.endswith(end):
                error[dead] = 0
        if not error.max() <= program.weights:
            return f"weight {name} off by {error.max():.1e}", float(error.max())
        worst = max(worst, float(error.max()))
    return "", worst


def _jit(eager: Mapping, jitted: Mapping) -> float:
    names = [n for n in eager if n.startswith("h")]
    return max((_distance(eager[n], jitted[n], False) / max(1.0, np.abs(eager[n]).max()) for n in names), default=0.0)


def _distance(want: np.ndarray, got: np.ndarray, relative: bool) -> float:
    """The largest |want - got|; equal infinities are no distance, and NaN is an infinite one unless in both."""
    if want.size == 0:
        return 0.0
    a, b = np.asarray(want, np.float64), np.asarray(got, np.float64)
    with np.errstate(invalid="ignore"):
        error = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0, np.abs(a - b))
    if relative:
        error = error / np.abs(a)
    return float(np.where(np.isnan(error), np.inf, error).max())
