"""Running the two worker processes, and making the report of what they recorded."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from .cases import Case, CaseError
from .compare import Comparison
from .divergence import first_divergence
from .record import Recording, read
from .results import CaseReport, Divergence, Stage, VerifyOptions, VerifyReport
from .worker import Item, settings, write_job

_LAUNCH = Path(__file__).with_name("launch.py")


def verify_pair(
    original: Path, converted: Path, cases: Sequence[Case], options: VerifyOptions | None = None
) -> VerifyReport:
    """Run the cases of `original` under torch and of `converted` under JAX, each in its own process, and compare.

    Raises CaseError when there is no case and FileNotFoundError when a file is missing. Whatever goes wrong in the
    programs (exceptions, crashes, time running out) is a failed stage of the report.
    """
    options = options or VerifyOptions()
    if not cases:
        raise CaseError(f"{original}: nothing says what to run; write `# jaxmigrate: example Net(8)(f32[4, 8])` in it")
    for file in (original, converted):
        if not file.is_file():
            raise FileNotFoundError(f"{file}: no such file")
    with tempfile.TemporaryDirectory(prefix="jaxmigrate-verify-") as name:
        scratch = Path(name)
        torch = run_original([(original, c) for c in cases], options, scratch / "torch")
        weights = [scratch / "torch" / str(i) for i in range(len(cases))]
        jax = run_converted([(converted, c, w) for c, w in zip(cases, weights, strict=True)], options, scratch / "jax")
        reports = [
            compare_case(case, torch[i], jax[i], options, (original, converted, scratch / f"trace{i}"))
            for i, case in enumerate(cases)
        ]
    versions: dict[str, str] = {"python": ".".join(map(str, sys.version_info[:3]))}
    device: str = options.device
    for recording in (torch[0], jax[0]):
        versions.update(recording.get("load").facts.get("versions", {}))
        device = recording.get("load").facts.get("device", device)
    return VerifyReport(original, converted, tuple(reports), device, versions)


def run_original(programs: Sequence[tuple[Path, Case]], options: VerifyOptions, scratch: Path) -> list[Recording]:
    """Record original programs in one process; number i leaves its recording in the folder `scratch/i`."""
    items = [Item(file, case, scratch / str(i)) for i, (file, case) in enumerate(programs)]
    return _run("torch", items, options, scratch)


def run_converted(
    programs: Sequence[tuple[Path, Case, Path]], options: VerifyOptions, scratch: Path
) -> list[Recording]:
    """Record converted programs in one process; each comes with the folder of its original's recording."""
    items = [Item(file, case, scratch / str(i), weights) for i, (file, case, weights) in enumerate(programs)]
    return _run("jax", items, options, scratch)


def compare_case(
    case: Case, torch: Recording, jax: Recording, options: VerifyOptions, files: tuple[Path, Path, Path] | None = None
) -> CaseReport:
    """The report of one case. With `files` (original, converted, scratch folder) a mismatch is traced to its place."""
    comparison = Comparison(torch, jax, case, options)
    stages = comparison.stages()
    divergence, note = None, ""
    wrong = next((s for s in stages if s.name.startswith("forward") and s.verdict == "different"), None)
    if wrong is not None and files is not None and options.divergence and case.build is not None:
        divergence, note = trace(case, wrong, options, *files)
    return CaseReport(case.text, tuple(stages), divergence, (*comparison.notes, *([note] if note else [])))


def trace(
    case: Case, stage: Stage, options: VerifyOptions, original: Path, converted: Path, scratch: Path
) -> tuple[Divergence | None, str]:
    """Run both sides once more, watching every sub-module. Gives the divergence, or a note that says why not."""
    mode = stage.name.removeprefix("forward ")
    [left] = _run("torch", [Item(original, case, scratch / "torch", trace=mode)], options, scratch)
    item = Item(converted, case, scratch / "jax", weights=scratch / "torch", trace=mode)
    [right] = _run("jax", [item], options, scratch)
    steps = [r.get(f"trace {mode}") for r in (left, right)]
    for side, step in zip(("torch", "converted"), steps, strict=True):
        if step.error or "missing" in step.facts:
            return (
                None,
                f"the place of the difference was not found: {side} side: {step.error or step.facts['missing']}",
            )
    found = first_divergence(steps[0], steps[1], mode, settings(case, options).tolerance)
    if found is None:
        return None, "every sub-module that both programs call agrees: the difference arises outside of them"
    return found, ""


def _run(side: Literal["torch", "jax"], items: list[Item], options: VerifyOptions, scratch: Path) -> list[Recording]:
    """Run one worker process to its end or the end of its time, and read what it recorded."""
    scratch.mkdir(parents=True, exist_ok=True)
    job = scratch / f"{side}.json"
    write_job(job, items, options)
    log = scratch / f"{side}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", str(_LAUNCH), side, str(job)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=_environment(side, options),
            start_new_session=True,
        )
        ended = _wait(process, options.timeout * len(items))
    if ended and (last := _last_line(log)) and not ended.startswith("timed"):
        ended += f": {last}"
    return [read(item.out, ended) for item in items]


def _wait(process: subprocess.Popen[bytes], seconds: float) -> str:
    """Wait for a worker; "" when it ended well. One that overruns is killed with all that it started."""
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        return f"timed out after {seconds:g} s"
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if code == 0:
        return ""
    return f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def _environment(side: str, options: VerifyOptions) -> dict[str, str]:
    """The original always runs on the CPU, the reference; the converted program where it was asked to."""
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}
    if side == "torch":
        return {**env, "CUDA_VISIBLE_DEVICES": ""}
    if options.device == "cpu":
        return {**env, "JAX_PLATFORMS": "cpu"}
    env.pop("JAX_PLATFORMS", None)
    return env


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines()]
    return next((line for line in reversed(lines) if line), "")[:300]
