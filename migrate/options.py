"""Options that several commands have."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from . import config


class Severity(StrEnum):
    note = "note"
    warning = "warning"
    error = "error"
    never = "never"


class ControlFlow(StrEnum):
    keep = "keep"
    lax = "lax"


class Layers(StrEnum):
    torch = "torch"
    nnx = "nnx"


class X64(StrEnum):
    auto = "auto"
    on = "on"
    off = "off"


Paths = Annotated[list[str], typer.Argument(metavar="PATH...", help="Files and folders; - reads standard input.")]
Rules = Annotated[
    list[Path] | None, typer.Option("--rules", metavar="FILE", help="A rule file of your own. Repeatable.")
]
FailOn = Annotated[
    Severity | None, typer.Option(help="Exit 1 on findings of this severity or above.", show_default="error")
]
ExitZero = Annotated[bool, typer.Option("--exit-zero", help="Exit 0 where the findings would make it 1.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Write nothing, whatever else is said.")]
Report = Annotated[Path | None, typer.Option("--report", metavar="FILE", help="Write the JSON report here.")]
Jobs = Annotated[
    int | None, typer.Option("-j", "--jobs", min=0, help="Processes; 0: as many as help.", show_default="0")
]
Cache = Annotated[
    bool | None,
    typer.Option("--cache/--no-cache", help="Use results of earlier runs over the same text.", show_default="cache"),
]


def level_of(severity: Severity | None) -> config.FailOn | None:
    """The value of --fail-on, None when it was not given."""
    return severity.value if severity else None
