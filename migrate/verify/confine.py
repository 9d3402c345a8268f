"""Limits that a worker process puts on itself before it imports anything of the user's.

Writing is possible in the scratch folder only: by Landlock (Linux 6.2 and newer; holds for native code and child
processes too), elsewhere by an audit hook (holds for Python code). Memory and the size of a file have hard limits.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

FILE_LIMIT = 4 << 30
HEADROOM = 4 << 30  # address space of torch or JAX and of thread stacks, which is mostly never touched
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/shm")
_LINKS = 1000  # entries of the program's folder that are made visible in its working folder

# Landlock's bits (linux/landlock.h): everything that writes. Files take only the first and the last of _FILE.
_WRITES = sum(1 << bit for bit in (1, 4, 5, 6, 7, 8, 9, 10, 11, 12))
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_FILE = (1 << 1) | _TRUNCATE
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_NO_NEW_PRIVILEGES = 38


def confine(scratch: Path, memory: int, gpu: bool) -> str:
    """Limit this process; returns how writing is limited: "landlock" or "audit hook". `memory` in bytes, 0 is none."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_LIMIT, FILE_LIMIT))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory and not gpu:
        resource.setrlimit(resource.RLIMIT_DATA, (memory + HEADROOM, memory + HEADROOM))
    scratch = scratch.resolve()
    writable = [scratch, *(Path(d) for d in _DEVICES)]
    if gpu:
        writable += [*Path("/dev").glob("nvidia*"), Path("/dev/dri"), Path("/dev/kfd")]
    if _landlock([p for p in writable if p.exists()]):
        return "landlock"
    _audit(scratch)
    return "audit hook"


def settle(scratch: Path, source: Path) -> None:
    """Make a fresh working folder in `scratch` the current one; what lies beside `source` can be read from there."""
    number = sum(1 for _ in scratch.glob("work*"))
    work = scratch / f"work{number}"
    work.mkdir(parents=True)
    try:
        entries = sorted(source.resolve().iterdir())[:_LINKS]
    except OSError:
        entries = []
    for entry in entries:
        (work / entry.name).symlink_to(entry)
    os.chdir(work)


def _landlock(writable: Iterable[Path]) -> bool:
    """Whether the kernel took the rule that only these folders and files may be written."""
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    if version < 3:  # truncation cannot be denied before
        return False
    handled = _WRITES | _REFER | _TRUNCATE
    ruleset = libc.syscall(
        _CREATE_RULESET, ctypes.byref(ctypes.c_uint64(handled)), ctypes.c_size_t(8), ctypes.c_uint32(0)
    )
    if ruleset < 0:
        return False
    try:
        for path in writable:
            handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
            rule = _PathBeneath(handled if path.is_dir() else _FILE, handle)
            failed = libc.syscall(_ADD_RULE, ruleset, 1, ctypes.byref(rule), ctypes.c_uint32(0))
            os.close(handle)
            if failed:
                return False
        libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        return bool(libc.syscall(_RESTRICT_SELF, ruleset, ctypes.c_uint32(0)) == 0)
    finally:
        os.close(ruleset)


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def _audit(scratch: Path) -> None:
    allowed = (str(scratch), *_DEVICES)
    changing = {"os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.truncate", "os.link", "os.symlink", "os.chmod"}

    def inside(path: Any) -> bool:
        if isinstance(path, int):
            return True
        real = os.path.realpath(os.fsdecode(path))
        return any(real == a or real.startswith(a + os.sep) for a in allowed)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            if writes and isinstance(path, (str, bytes, os.PathLike)) and not inside(path):
                raise PermissionError(f"{path!r}: outside of the scratch folder")
        elif event in changing and isinstance(arguments[0], (str, bytes, os.PathLike)) and not inside(arguments[0]):
            raise PermissionError(f"{arguments[0]!r}: outside of the scratch folder")

    sys.addaudithook(hook)
