"""Run the converter and converted programs in processes forked from one in which the imports are already done.

Importing jax, flax and optax takes longer than most cases run. The server of `multiprocessing` imports them once,
before any JAX backend starts (a started backend has threads, which a fork would lose), and forks a child per job.
"""

from __future__ import annotations

import importlib
import importlib.abc
import json
import multiprocessing
import os
import shlex
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

CONVERTER = "jaxmigrate"
BLOCKED = ("torch", "torchvision", "jaxmigrate", "migrate")
FRAMEWORK = ("jax", "jax.numpy", "flax.nnx", "optax", "numpy", "einops")
context = multiprocessing.get_context("forkserver")


class Block(importlib.abc.MetaPathFinder):
    """Makes the import of some packages fail, as in an environment that lacks them."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        if fullname.split(".")[0] in self.names:
            raise ModuleNotFoundError(f"{fullname} is blocked here", name=fullname)


def start(allow_torch: bool, converter: bool) -> None:
    """Say what the server imports; it starts with the first job."""
    os.environ.update(JAX_PLATFORMS="cpu", OMP_NUM_THREADS="1", TF_CPP_MIN_LOG_LEVEL="3")
    modules = ["torch"] if allow_torch else [*FRAMEWORK]
    context.set_forkserver_preload(modules + [f"{CONVERTER}.cli", f"{CONVERTER}.project"] * converter)


def convert(command: str, src: Path, dst: Path, report: Path, timeout: float) -> str:
    """Convert folder `src` to `dst` with `command`, or with our own command line when it is "". Returns what went
    wrong: the exit status and the end of stderr, "" after status 0."""
    if not command:
        argv = [CONVERTER, "convert", str(src), "-o", str(dst), "--report", str(report)]
        return _job(_convert, (argv,), timeout)[1]
    words = [w.format(src=src, dst=dst, report=report) for w in shlex.split(command)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return "the converter timed out"
    return f"exit {done.returncode}: {done.stderr.strip()[-300:]}" if done.returncode else ""


def run(folder: Path, entry: str, allow_torch: bool, timeout: float) -> tuple[Any, str]:
    """The value of `entry` ("module:function" or a notebook) in `folder` as JSON, and why there is none."""
    return _job(_run, (str(folder), entry, allow_torch), timeout)


def _job(target: Callable[..., Any], args: tuple[Any, ...], timeout: float) -> tuple[Any, str]:
    """(what `target(*args)` returns, "") or (None, what went wrong), from a forked process."""
    with tempfile.TemporaryDirectory() as scratch:
        result = Path(scratch, "result.json")
        process = context.Process(target=_child, args=(target, args, str(result)))
        process.start()
        process.join(timeout)
        if process.is_alive():
            process.kill()
            process.join()
            return None, "timed out"
        if not result.exists():
            return None, f"the process died with status {process.exitcode}"
        value, why = json.loads(result.read_text(encoding="utf-8"))
        return value, why


def _child(target: Callable[..., Any], args: tuple[Any, ...], result: str) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    try:
        answer = [target(*args), ""]
    except BaseException:
        answer = [None, traceback.format_exc().strip()[-300:]]
    Path(result).write_text(json.dumps(answer), encoding="utf-8")


def _convert(argv: list[str]) -> None:
    """The converter's command line. An exit status that only says "there are findings" (1) is not a fault."""
    sys.argv = argv
    try:
        importlib.import_module(f"{CONVERTER}.cli").main()
    except SystemExit as stop:
        if stop.code not in (None, 0, 1):
            raise RuntimeError(f"the converter exited with {stop.code}") from stop


def _run(folder: str, entry: str, allow_torch: bool) -> Any:
    if not allow_torch:
        for name in [m for m in sys.modules if m.split(".")[0] in BLOCKED]:
            del sys.modules[name]
        sys.meta_path.insert(0, Block(BLOCKED))
    sys.path.insert(0, folder)
    os.chdir(folder)
    if entry.endswith(".ipynb"):
        return _plain({"result": _notebook(Path(folder, entry))["result"]})
    module, function = entry.split(":")
    return _plain(getattr(importlib.import_module(module), function)())


def _notebook(path: Path) -> dict[str, Any]:
    """The names bound by a notebook's code cells, run without what only IPython understands."""
    scope: dict[str, Any] = {}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] != "code" or text.startswith("%%bash"):
            continue
        lines = [
            s for s in text.splitlines() if not s.startswith(("!", "%")) and not s.endswith("?") and "= !" not in s
        ]
        exec("\n".join(lines), scope)
    return scope


def _plain(value: Any) -> Any:
    """A program's answer as JSON: arrays as lists, what JSON does not know as text."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return value if isinstance(value, (int, float, str, bool, type(None))) else str(value)
