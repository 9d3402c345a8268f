"""The options of `jaxmigrate review`; what they do is in reviewing.py, imported late."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from .options import Cache, DryRun, Jobs, Paths, Rules


class SplitBy(StrEnum):
    rule = "rule"
    file = "file"


def review(
    paths: Paths,
    html: Annotated[Path | None, typer.Option(metavar="PAGE", help="Write a side-by-side page instead.")] = None,
    split_by: Annotated[SplitBy | None, typer.Option(help="Write patches into the folder of --output instead.")] = None,
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="PATH", help="When all is decided, write there.")
    ] = None,
    write: Annotated[bool, typer.Option("-w", "--write", help="When all is decided, convert in place.")] = False,
    decisions: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Keep decisions there.", show_default=".jaxmigrate-review.json"),
    ] = None,
    restart: Annotated[bool, typer.Option("--restart", help="Forget earlier decisions.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Write over uncommitted changes and an edited nnx_layers.py.")
    ] = False,
    rules: Rules = None,
    jobs: Jobs = None,
    cache: Cache = None,
    dry_run: DryRun = False,
) -> int:
    """Accept, refuse or edit a conversion hunk by hunk; what is refused stays, with all that cannot do without it."""
    from .reviewing import Review
    from .work import Options

    if write and output is not None:
        raise typer.BadParameter("--write and --output exclude each other")
    if write and (html or split_by):
        raise typer.BadParameter("--write is for the review in the terminal: it excludes --html and --split-by")
    options = Options(tuple(rules or ()), dry_run=dry_run, jobs=jobs, cache=cache)
    return Review(options, html, split_by.value if split_by else None, output, write, decisions, restart, force).run(
        tuple(paths)
    )
