"""A progress bar for long runs, on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

MANY = 20  # files that take long enough to say so
Step = Callable[[str, int, int], None]


def no_step(_stage: str, _done: int, _of: int) -> None:
    """For runs that nobody watches."""


@contextmanager
def progress(files: int) -> Iterator[Step]:
    """Gives a function that is told the stage, how much of it is done and of how much. It draws on standard error, when
    that is a terminal and there are many files; the bar is gone at the end."""
    if files < MANY or not sys.stderr.isatty():
        yield no_step
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    # Without a thread of its own: processes are forked meanwhile.
    with Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False) as bar:
        task = bar.add_task("reading", total=files)

        def step(stage: str, done: int, of: int) -> None:
            bar.update(task, description=stage, completed=done, total=of, refresh=True)

        yield step
