"""The report for people: one line for each finding, and the summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from .findings import Constructs, Finding, Run, Severity
from .json import top_unmapped
from .shown import RANK, Shown, message_of
from .style import PLAIN, Colour, Style

_COLOURS: dict[Severity, Colour] = {"note": "cyan", "warning": "yellow", "error": "red"}


def at_or_above(findings: Iterable[Finding], severity: Severity) -> list[Finding]:
    return [f for f in findings if RANK[f.severity] >= RANK[severity]]


def finding_line(finding: Finding, style: Style = PLAIN) -> str:
    """`path:line:col: JM201 name: message. Advice`, on one line; a message that begins with the name says it once. In a
    notebook `path:cell 3:line:col:`."""
    line, column = finding.start
    code = style(_COLOURS[finding.severity], finding.code)
    message = message_of(finding).removeprefix(f"{finding.name}: ") if finding.name else message_of(finding)
    if finding.name and message.startswith(f"{finding.name} "):
        said = f" {style('bold', finding.name)}{message.removeprefix(finding.name)}"
    else:
        said = f" {style('bold', finding.name)}: {message}" if finding.name else f": {message}"
    cell = f"cell {finding.cell}:" if finding.cell else ""
    return f"{finding.path}:{cell}{line}:{column}: {code}{said}"


def finding_lines(findings: Sequence[Finding], style: Style = PLAIN, limit: int | None = None) -> list[str]:
    """A line for each finding; with a limit, the errors first among those shown, and a last line that says how many
    are not."""
    shown = list(findings)
    if limit is not None and len(shown) > limit:
        worst = sorted(shown, key=lambda f: -RANK[f.severity])[:limit]
        shown = [f for f in shown if f in worst]
    lines = [finding_line(f, style) for f in shown]
    if len(shown) < len(findings):
        lines.append(f"... and {len(findings) - len(shown)} more; `jaxmigrate check` shows them all")
    return lines


def summary_lines(run: Run, style: Style = PLAIN) -> list[str]:
    """What became of the files and of the constructs in them, and what is unmapped most often."""
    status = Counter(o.status for o in run.outcomes)
    states = ", ".join(f"{status[s]} {s}" for s in ("changed", "unchanged", "skipped", "failed") if status[s])
    seen = run.constructs
    lines = [
        f"{style('bold', counted(len(run.outcomes), 'file'))}: {states or 'nothing to do'}",
        f"{style('bold', counted(seen.seen, 'construct'))}: {seen.exact} exact, "
        f"{seen.stated} with a stated difference, {seen.left} left, {seen.unmapped} unmapped; "
        f"converted {seen.converted} of {seen.seen}{percent(seen)}",
    ]
    bound = [o.path for o in run.outcomes if not o.torch_free]
    if bound:
        more = f" and {len(bound) - 3} more" if len(bound) > 3 else ""
        lines.append(f"still need torch: {', '.join(bound[:3])}{more}")
    unmapped = top_unmapped(run, limit=8)
    if unmapped:
        lines.append("unmapped: " + ", ".join(f"{name} ({count})" for name, count in unmapped))
    return lines


def judged_lines(shown: Shown, style: Style = PLAIN) -> list[str]:
    """The summary of a check: with what a baseline knows and what is accepted."""
    lines = summary_lines(shown.run, style)
    if shown.known is not None:
        lines.append(f"against the baseline: {len(shown.listed)} new, {len(shown.known)} known")
    if shown.accepted:
        lines.append(f"accepted by settings or comments: {counted(len(shown.accepted), 'finding')}")
    return lines


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def percent(seen: Constructs) -> str:
    """` (97.3 %)`, cut and not rounded: 100 % must mean all of them; "" when there is nothing to convert."""
    return f" ({seen.converted * 1000 // seen.seen / 10:.1f} %)" if seen.seen else ""
