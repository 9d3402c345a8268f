"""The table of stages for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .results import CaseReport, Stage, VerifyReport

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_STYLES = {
    "equal": "green",
    "holds": "green",
    "different": "bold red",
    "failed": "bold red",
    "shapes only": "yellow",
    "eager only": "yellow",
    "recompiles": "yellow",
    "not run": "dim",
}


def render_table(report: VerifyReport, console: Console) -> None:
    """Print one table of stages for each case, what was found out on a mismatch, and the verdict."""
    from rich.markup import escape

    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    console.print(escape(f"{report.original} (torch, cpu) against {report.converted} (JAX, {report.device})"))
    if versions:
        console.print(escape(versions), style="dim")
    for case in report.cases:
        console.print()
        console.print(f"[bold]{escape(case.case)}[/bold]")
        console.print(_table(case))
        for note in case.notes:
            console.print(f"note: {escape(note)}")
        if case.statement is not None:
            console.print(f"[bold red]first statement:[/bold red] {escape(case.statement.text)}")
        if case.divergence is not None:
            console.print(f"[bold red]first divergence:[/bold red] {escape(case.divergence.text)}")
    console.print()
    good = sum(c.ok for c in report.cases)
    if not report.cases:
        console.print("[bold red]nothing was verified: there is no case[/bold red]")
    elif report.ok:
        console.print(f"[bold green]equal[/bold green] in all that was run ({good} of {len(report.cases)} cases)")
    else:
        console.print(f"[bold red]not equal[/bold red]: {len(report.cases) - good} of {len(report.cases)} cases")


def _table(case: CaseReport) -> Table:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("stage", "how", "verdict"):
        table.add_column(heading, no_wrap=True)
    for heading in ("max abs", "max rel", "tolerance"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("compared, and what was found", overflow="fold")
    for stage in case.stages:
        style = _STYLES[stage.verdict]
        numbers = [_number(n) for n in (stage.max_abs, stage.max_rel, stage.tolerance)]
        table.add_row(stage.name, stage.how, f"[{style}]{stage.verdict}[/{style}]", *numbers, escape(found(stage)))
    return table


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1e}"


def found(stage: Stage) -> str:
    """What was compared, where the largest difference is, and why a stage was not run: one text."""
    worst = f"largest at {stage.worst}" if stage.worst and stage.verdict == "different" else ""
    return "; ".join(part for part in (stage.compared, worst, stage.detail) if part)
