"""Converting the files of a project in several processes: each is a fork that knows the whole project already."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Sequence
from typing import BinaryIO

from .progress import Step
from .read.unit import Unit
from .report.findings import Outcome

WORTH = 300_000  # characters of source from which a second process pays
MOST = 8
Convert = Callable[[Unit], Outcome]


def useful_jobs(characters: int) -> int:
    """How many processes help with so much source on this machine."""
    if not hasattr(os, "fork") or sys.platform == "darwin" or characters < WORTH:
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MOST)


def convert_each(units: Sequence[Unit], convert: Convert, jobs: int, step: Step) -> list[Outcome]:
    """The outcome of each unit, in their order, whatever the number of processes. Without `fork` there is one."""
    jobs = min(jobs, len(units)) if hasattr(os, "fork") else 1
    found: dict[int, Outcome] = {}
    groups = _groups(units, max(1, jobs))
    others = [(group, _start(group, units, convert)) for group in groups[1:]]
    try:
        for at in groups[0]:
            found[at] = convert(units[at])
            step("converting", len(found), len(units))
        for group, (process, pipe) in others:
            found.update(_finish(process, pipe) or {at: convert(units[at]) for at in group})
            step("converting", len(found), len(units))
    finally:
        for _, (_, pipe) in others:
            pipe.close()
    return [found[at] for at in range(len(units))]


def _groups(units: Sequence[Unit], jobs: int) -> list[list[int]]:
    """Indices in groups of about equal size: the largest first, each to the smallest group."""
    groups: list[list[int]] = [[] for _ in range(jobs)]
    sizes = [0] * jobs
    for at in sorted(range(len(units)), key=lambda i: -len(units[i].source.text)):
        least = sizes.index(min(sizes))
        groups[least].append(at)
        sizes[least] += len(units[at].source.text)
    return groups


def _start(group: Sequence[int], units: Sequence[Unit], convert: Convert) -> tuple[int, BinaryIO]:
    """Convert a group in a process of its own: its id, and where its outcomes come from."""
    source, sink = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    process = os.fork()
    if process:
        os.close(sink)
        return process, os.fdopen(source, "rb")
    code = 1
    try:
        os.close(source)
        with os.fdopen(sink, "wb") as stream:
            pickle.dump({at: convert(units[at]) for at in group}, stream, pickle.HIGHEST_PROTOCOL)
        code = 0
    finally:
        os._exit(code)


def _finish(process: int, pipe: BinaryIO) -> dict[int, Outcome] | None:
    """The outcomes of a process, None when it died."""
    data = pipe.read()
    _, status = os.waitpid(process, 0)
    return pickle.loads(data) if status == 0 else None
