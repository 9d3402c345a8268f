"""The table of stages for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .results import Bench, CaseReport, Memory, Stage, Timing, VerifyReport

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
        if case.bench is not None:
            _show_bench(case.bench, console)
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


def _show_bench(bench: Bench, console: Console) -> None:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    if bench.note:
        console.print(f"not measured: {escape(bench.note)}")
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("time per", "way"):
        table.add_column(heading, no_wrap=True)
    for heading in ("median", "quartiles", "first step", "steps"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    for row in sorted(bench.rows, key=lambda r: r.what):
        cells = timed(row)
        table.add_row(row.what, row.way, *cells, escape(row.detail))
    console.print(table)
    for used in bench.memory:
        console.print(escape(remembered(used)))


def timed(row: Timing) -> tuple[str, str, str, str]:
    """Median, quartiles, first step and number of steps as text."""
    if row.median is None or row.low is None or row.high is None:
        return "", "", "", ""
    return (
        _seconds(row.median),
        f"{_seconds(row.low)} - {_seconds(row.high)}",
        _seconds(row.first or 0.0),
        str(row.steps),
    )


def remembered(used: Memory) -> str:
    """The memory of one side as a line of text."""
    before = f", {used.before / 1e6:.0f} MB of it before the first step" if used.before else ""
    return f"peak memory, {used.side} on {used.device}: {used.peak / 1e6:.0f} MB{before}"


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.2f} ms" if value >= 1e-3 else f"{value * 1e6:.0f} us"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1e}"


def found(stage: Stage) -> str:
    """What was compared, where the largest difference is, and why a stage was not run: one text."""
    worst = f"largest at {stage.worst}" if stage.worst and stage.verdict == "different" else ""
    return "; ".join(part for part in (stage.compared, worst, stage.detail) if part)
