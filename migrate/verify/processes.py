"""Worker processes as the parent sees them: started, watched, ended when they use too much, and read back."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal

from .record import Recording, finished, read, started
from .results import VerifyOptions
from .worker import Job, write_job

Side = Literal["torch", "jax", "propose", "torch_script", "jax_script"]

_LAUNCH = Path(__file__).with_name("launch.py")
_PRINTED = 64 << 20  # bytes of printed text after which a program is ended
_TICK = 0.05
_START = 120.0  # seconds that a process may take to start
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def run_items(side: Side, items: Sequence[Job], options: VerifyOptions, scratch: Path) -> list[Recording]:
    """Run every item and read what was recorded. One that kills its process does not take those after it along."""
    scratch.mkdir(parents=True, exist_ok=True)
    ends = [""] * len(items)
    first, attempt = 0, 0
    while first < len(items):
        rest = items[first:]
        ended = _run(side, rest, options, scratch, attempt)
        done = sum(finished(item.out) for item in rest)
        if done == len(rest):
            break  # what happens when everything is recorded is the end of the process only
        ends[first + done] = ended or "ended before its time"
        if not started(rest[done].out):
            ends[first:] = [ends[first + done]] * len(rest)  # it did not get as far as the user's program
            break
        first, attempt = first + done + 1, attempt + 1
    return [read(item.out, ended) for item, ended in zip(items, ends, strict=True)]


def _run(side: Side, items: Sequence[Job], options: VerifyOptions, scratch: Path, attempt: int) -> str:
    """One process for these items; how it ended, "" when well."""
    job = scratch / f"{side}{attempt or ''}.json"
    write_job(job, items, options)
    process = subprocess.Popen(
        [sys.executable, "-P", str(_LAUNCH), side, str(job)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=_environment(side, options, scratch),
        start_new_session=True,
    )
    assert process.stdout is not None
    printed = Printed(process.stdout)
    reader = threading.Thread(target=printed.read, daemon=True)
    reader.start()
    try:
        ended = _watch(process, printed, items, options)
    finally:
        with contextlib.suppress(ProcessLookupError):  # its children too, also when it has ended itself
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        reader.join(1.0)
    return ended


def _watch(process: subprocess.Popen[bytes], printed: Printed, items: Sequence[Job], options: VerifyOptions) -> str:
    since, at, began = time.monotonic(), 0, False
    memory = int(options.memory * (1 << 30))
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(_TICK)
            last = f": {printed.last}" if printed.last else ""
            if code == 0:
                return ""
            return (f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}") + last
        while at < len(items) - 1 and finished(items[at].out):
            since, at = time.monotonic(), at + 1
        if not began and started(items[0].out):  # before that it imports torch or JAX
            since, began = time.monotonic(), True
        if time.monotonic() - since > options.timeout + (0 if began else _START):
            return f"timed out after {options.timeout:g} s"
        if printed.size > _PRINTED:
            return f"printed more than {_PRINTED >> 20} MB and was ended"
        if memory and (used := _resident(process.pid)) > memory:
            return f"used {used / (1 << 30):.1f} GB of memory, more than the limit of {options.memory:g} GB"


@dataclass
class Printed:
    """What a process prints: counted, and the end of it kept."""

    stream: IO[bytes]
    size: int = 0
    tail: deque[bytes] = field(default_factory=lambda: deque(maxlen=4))

    def read(self) -> None:
        """Read to the end of the stream; meant for a thread."""
        while chunk := os.read(self.stream.fileno(), 1 << 16):
            self.size += len(chunk)
            self.tail.append(chunk)

    @property
    def last(self) -> str:
        """The last line that is not empty."""
        lines = b"".join(self.tail).decode("utf-8", "replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "")[:300]


def _resident(pid: int) -> int:
    """Bytes of memory of a process and its descendants; 0 where the system does not tell."""
    total, todo = 0, [pid]
    while todo:
        folder = Path("/proc") / str(todo.pop())
        try:
            total += int((folder / "statm").read_text().split()[1]) * _PAGE
            for task in (folder / "task").iterdir():
                todo += map(int, (task / "children").read_text().split())
        except (OSError, ValueError, IndexError):
            continue  # it has ended meanwhile
    return total


def _environment(side: Side, options: VerifyOptions, scratch: Path) -> dict[str, str]:
    """The original always runs on the CPU, the reference, unless both were asked to run on the GPU."""
    temporary = scratch / "tmp"
    temporary.mkdir(exist_ok=True)
    env = {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "TMPDIR": str(temporary),
        "MPLCONFIGDIR": str(temporary),
        "MPLBACKEND": "agg",
    }
    if not side.startswith("jax"):
        return {**env, "CUDA_VISIBLE_DEVICES": ""}
    if options.device == "cpu":
        return {**env, "JAX_PLATFORMS": "cpu"}
    env.pop("JAX_PLATFORMS", None)
    return env
