"""The options of `jaxmigrate check`; what they do is in checking.py, imported late."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from .options import Cache, DryRun, ExitZero, FailOn, Jobs, Paths, Report, Rules, level_of


class Format(StrEnum):
    text = "text"
    json = "json"
    jsonl = "jsonl"
    sarif = "sarif"
    github = "github"
    markdown = "markdown"
    junit = "junit"


def check(
    paths: Paths,
    form: Annotated[Format, typer.Option("--format", help="How to show the findings.")] = Format.text,
    readiness: Annotated[
        bool, typer.Option("--readiness", help="What converts whole, what needs hands, and whether to migrate now.")
    ] = False,
    baseline: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Findings that are known: only others are shown and count.")
    ] = None,
    write_baseline: Annotated[
        Path | None, typer.Option("--write-baseline", metavar="FILE", help="Write the findings of now as a baseline.")
    ] = None,
    fail_on: FailOn = None,
    fail_under: Annotated[
        float | None,
        typer.Option(metavar="PERCENT", min=0, max=100, help="Exit 1 when fewer constructs are converted."),
    ] = None,
    report: Report = None,
    rules: Rules = None,
    jobs: Jobs = None,
    cache: Cache = None,
    exit_zero: ExitZero = False,
    dry_run: DryRun = False,
) -> int:
    """Show what would be converted and what would be left, and write nothing but what --report and --write-baseline
    name."""
    from .checking import Check
    from .work import Options

    level = level_of(fail_on)
    options = Options(tuple(rules or ()), level, exit_zero, dry_run, report, jobs=jobs, cache=cache)
    return Check(options, form.value, readiness, baseline, write_baseline, fail_under).run(tuple(paths))
