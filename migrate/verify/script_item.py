"""One run of a training script, as the parent writes it down and the worker reads it."""

from __future__ import annotations

import json
import random
import runpy
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from .mirror import mirror
from .results import VerifyOptions

Mode = Literal["float", "double", "eager", "jit", "precise"]


class Stop(BaseException):
    """Enough optimizer steps."""


@dataclass(frozen=True)
class ScriptItem:
    """A script and how to run it. `draws` is the recording of the original's first run, None in that run itself."""

    file: Path
    out: Path
    mode: Mode
    arguments: tuple[str, ...] = ()
    draws: Path | None = None

    def plain(self) -> dict[str, Any]:
        """The item as data that JSON takes."""
        return {
            "file": str(self.file.resolve()),
            "out": str(self.out.resolve()),
            "mode": self.mode,
            "arguments": list(self.arguments),
            "draws": None if self.draws is None else str(self.draws.resolve()),
        }


def read_script_job(path: Path) -> tuple[ScriptItem, VerifyOptions]:
    """The one item of a job file, and the options."""
    job = json.loads(path.read_text(encoding="utf-8"))
    [i] = job["items"]
    draws = Path(i["draws"]) if i["draws"] else None
    item = ScriptItem(Path(i["file"]), Path(i["out"]), i["mode"], tuple(i["arguments"]), draws)
    return item, VerifyOptions(**job["options"])


def start(item: ScriptItem, scratch: Path, seed: Callable[[int], Any]) -> None:
    """Run the script as `python SCRIPT ARGUMENTS` would, in a mirror of the current folder. Raises what it raises."""
    import os

    os.chdir(mirror(Path.cwd(), scratch))
    seed(0)
    random.seed(0)
    sys.argv = [str(item.file), *item.arguments]
    sys.path.insert(0, str(item.file.parent))
    runpy.run_path(str(item.file), run_name="__main__")
