"""Worker processes that run converted cases (worker.py), and the loop that feeds them."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RECYCLE = 100  # files per worker process: compiled code piles up in memory
FORBIDDEN = ("torch", "torchax", "torch_xla", "torchvision", "functorch", "jaxmigrate", "migrate")
CaseDict = dict[str, Any]
Said = tuple[str, str, str]  # outcome, stage, detail


@dataclass(frozen=True)
class File:
    """One generated source file of a suite and those of its cases that are wanted."""

    suite: str
    stem: str
    data: Path
    cases: tuple[CaseDict, ...]

    @property
    def source(self) -> Path:
        return self.data / "src" / f"{self.stem}.py"


@dataclass(frozen=True)
class HowToRun:
    """`timeout`: processor seconds a case. `shift`: falsify every float by this (torch backend only)."""

    backend: str = "jax"
    shift: float = 0.0
    x64: bool = False
    timeout: float = 30.0
    jobs: int = 2
    cache: str = ""


class Worker:
    """One worker.py process, and a queue of what it says."""

    def __init__(self, how: HowToRun) -> None:
        config = {"backend": how.backend, "shift": how.shift, "forbid": FORBIDDEN}
        env = {
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "JAX_ENABLE_X64": str(int(how.x64)),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
            "OMP_NUM_THREADS": "1",
        }
        if how.cache:
            env |= {
                "JAX_COMPILATION_CACHE_DIR": how.cache,
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            }
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "worker.py"), json.dumps(config)],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=HERE,
        )
        self.lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.files, self.ready = 0, False
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(json.loads(line))
        self.lines.put(None)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()

    def listen(self, timeout: float) -> tuple[dict[str, Any] | None, str]:
        """The next message, or None and why. Counts processor time, so that a busy machine changes nothing;
        a case that sleeps gets ten times as long."""
        start, used = time.time(), self.used()
        while time.time() - start < 10 * timeout and self.used() - used < timeout:
            try:
                return self.lines.get(timeout=min(1, timeout)), "the process died"
            except queue.Empty:
                pass
        return None, f"ran past {timeout} s"

    def used(self) -> float:
        """Processor seconds of the process so far; 0 when it is gone."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            return 0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def run(
        self, py: Path, npz: Path, cases: tuple[CaseDict, ...], timeout: float, left: bool
    ) -> Generator[tuple[str, Said], None, tuple[CaseDict, ...] | None]:
        """Yields (case id, what was said). A case that hangs or kills the process costs only itself: returns the
        cases not yet run when this worker had to be given up, else None.
        `left`: the converter said that it left something in the file."""
        self.files += 1
        job = {"py": str(py.resolve()), "npz": str(npz.resolve()), "cases": cases, "left": left}
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(job) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # listen() says that the process died
        todo, current = {c["id"]: c for c in cases}, "import"
        while True:
            said, why = self.listen(timeout if self.ready else timeout + 60)  # first it imports jax
            if said is None:
                self.close()
                for i in list(todo) if current == "import" else [current]:
                    yield i, ("crash", "import" if current == "import" else "timeout/died", why)
                    todo.pop(i)
                return tuple(todo.values())
            if "done" in said:
                return None
            if "ready" in said:
                self.ready = True
            elif "begin" in said:
                current = said["begin"]
            else:
                todo.pop(said["id"])
                yield said["id"], (said["outcome"], said["stage"], said["detail"])


def execute(
    how: HowToRun, files: list[File], converted: Mapping[str, Path], left: Set[tuple[str, str]] = frozenset()
) -> dict[tuple[str, str], Said]:
    """{(suite, case id): what running it gave}. `converted`: the folder of converted files by suite; `left`: the files
    (suite, stem) of which the converter said that it left something."""
    todo: queue.Queue[File] = queue.Queue()
    results: dict[tuple[str, str], Said] = {}
    for f in files:
        todo.put(f)

    def serve() -> None:
        worker: Worker | None = None
        while True:
            try:
                f = todo.get_nowait()
            except queue.Empty:
                break
            if todo.qsize() % 100 == 0 and todo.qsize():
                print(f"{todo.qsize()} files to go", file=sys.stderr)
            py, cases = converted[f.suite] / f"{f.stem}.py", f.cases
            if not py.exists():
                results.update({(f.suite, c["id"]): ("crash", "convert", "no output file") for c in cases})
                continue
            while cases:
                if worker is None or worker.files >= RECYCLE:
                    if worker:
                        worker.close()
                    worker = Worker(how)
                npz = f.data / "expected" / f"{f.stem}.npz"
                gone = _collect(results, f.suite, worker.run(py, npz, cases, how.timeout, (f.suite, f.stem) in left))
                cases = gone or ()
                worker = None if gone is not None else worker
        if worker:
            worker.close()

    threads = [threading.Thread(target=serve) for _ in range(how.jobs)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return results


def _collect(
    results: dict[tuple[str, str], Said],
    suite: str,
    said: Generator[tuple[str, Said], None, tuple[CaseDict, ...] | None],
) -> tuple[CaseDict, ...] | None:
    """Put what is said into `results`; return what the generator returns."""
    while True:
        try:
            case_id, outcome = next(said)
        except StopIteration as stop:
            return stop.value
        results[suite, case_id] = outcome
