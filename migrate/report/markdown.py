"""Markdown, for the step summary of a workflow run and for comments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import PurePath

from .findings import CODES, Finding
from .json import top_unmapped
from .shown import Shown, message_of
from .text import counted, percent

MOST = 1000  # findings; GitHub cuts a summary at one megabyte


def render_markdown(shown: Shown) -> str:
    """The figures, a table by file, a table by code, and what text lists."""
    return "\n".join([*_head(shown), *_files(shown), *_codes(shown), *_findings(shown), ""])


def cell(text: str) -> str:
    """Text that stays in one cell of a table."""
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


def _head(shown: Shown) -> Iterator[str]:
    run, seen = shown.run, shown.run.constructs
    status = Counter(o.status for o in run.outcomes)
    states = ", ".join(f"{status[s]} {s}" for s in ("changed", "unchanged", "skipped", "failed") if status[s])
    yield "## jaxmigrate"
    yield ""
    yield (
        f"**{counted(len(run.outcomes), 'file')}**: {states or 'nothing to do'}. "
        f"**{counted(seen.seen, 'construct')}**: {seen.exact} exact, {seen.stated} with a stated difference, "
        f"{seen.left} left, {seen.unmapped} unmapped; converted {seen.converted} of {seen.seen}{percent(seen)}."
    )
    if shown.known is not None:
        yield ""
        yield f"Against the baseline: {len(shown.listed)} new, {len(shown.known)} known."
    if shown.accepted:
        yield ""
        yield f"Accepted by settings or comments: {len(shown.accepted)}."


def _files(shown: Shown) -> Iterator[str]:
    rows = [o for o in shown.run.outcomes if o.status != "skipped"]
    if not rows:
        return
    yield from (
        "",
        "| file | | constructs | converted | left | unmapped | still needs torch |",
        "|---|---|--:|--:|--:|--:|---|",
    )
    for o in rows:
        c = o.constructs
        needs = "" if o.torch_free and o.status != "failed" else "yes"
        path = cell(PurePath(o.path).as_posix())
        yield f"| `{path}` | {o.status} | {c.seen} | {c.converted} | {c.left} | {c.unmapped} | {needs} |"


def _codes(shown: Shown) -> Iterator[str]:
    counts = Counter(f.code for f in shown.listed)
    if not counts:
        return
    yield from ("", "| code | findings | meaning |", "|---|--:|---|")
    for code, number in sorted(counts.items()):
        yield f"| {code} | {number} | {cell(CODES[code].summary)} |"
    if unmapped := top_unmapped(shown.run, limit=8):
        yield ""
        yield "Unmapped most often: " + ", ".join(f"`{name}` ({count})" for name, count in unmapped)


def _findings(shown: Shown) -> Iterator[str]:
    findings = shown.listed[:MOST]
    if not findings:
        yield from ("", "No findings.")
        return
    yield from ("", f"<details><summary>{counted(len(shown.listed), 'finding')}</summary>", "")
    yield from ("| place | code | |", "|---|---|---|")
    for finding in findings:
        yield f"| `{cell(_place(finding))}` | {finding.code} | {cell(message_of(finding))} |"
    if len(findings) < len(shown.listed):
        yield from ("", f"... and {len(shown.listed) - len(findings)} more; `jaxmigrate check` shows them all")
    yield from ("", "</details>")


def _place(finding: Finding) -> str:
    line, column = finding.start
    path = PurePath(finding.path).as_posix()
    return f"{path}:cell {finding.cell}:{line}:{column}" if finding.cell else f"{path}:{line}:{column}"
