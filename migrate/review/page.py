"""The review page: one self-contained HTML file, side by side, with the findings in the margin."""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import PurePath
from typing import Any

from .. import __version__
from ..report.diff import opcodes, split_lines
from ..report.findings import CODES, Finding, Outcome, fate
from ..report.shown import Shown
from ..report.text import percent

CONTEXT = 3  # lines around a change
LONG = 8  # lines after which a block ends at a blank line
MARK = "/*DATA*/null"


def render_page(shown: Shown) -> str:
    """The text of the page. Everything in it is drawn from the findings and the texts of the run."""
    template = (resources.files(__package__) / "page.html").read_text(encoding="utf-8")
    # A script element ends at the first "</script", also inside a string.
    data = json.dumps(page_data(shown), ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    data = data.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return template.replace(MARK, data)


def page_data(shown: Shown) -> dict[str, Any]:
    """What the page shows, as plain data."""
    run = shown.run
    seen = run.constructs
    codes = Counter(f.code for f in run.findings)
    return {
        "tool": __version__,
        "files": [_file(o, shown) for o in run.outcomes if o.status != "skipped"],
        "skipped": sum(o.status == "skipped" for o in run.outcomes),
        "constructs": [seen.exact, seen.stated, seen.left, seen.unmapped],
        "rate": percent(seen).strip(" ()"),
        "codes": [[c, codes[c], CODES[c].severity, CODES[c].summary] for c in sorted(codes)],
    }


def _file(outcome: Outcome, shown: Shown) -> dict[str, Any]:
    seen = outcome.constructs
    findings = sorted(outcome.findings, key=lambda f: (f.place, f))
    return {
        "path": PurePath(outcome.path).as_posix(),
        "status": outcome.status,
        "free": outcome.torch_free,
        "constructs": [seen.exact, seen.stated, seen.left, seen.unmapped],
        "rate": percent(seen).strip(" ()"),
        "findings": [_finding(f, shown) for f in findings],
        "blocks": list(_blocks(outcome, findings)),
    }


def _finding(finding: Finding, shown: Shown) -> dict[str, Any]:
    data = {
        "code": finding.code,
        "fate": fate(finding.code) or finding.severity,
        "name": finding.name,
        "message": finding.message,
        "line": finding.start[0],
        "more": [t for t in (finding.evidence and f"since {finding.evidence}", finding.advice) if t],
    }
    if finding.rule and finding.rule != finding.name:
        data["rule"] = finding.rule
    if finding.cell:
        data["cell"] = finding.cell
    if (state := shown.state(finding)) != "new":
        data["state"] = state
    return data


def _blocks(outcome: Outcome, findings: Sequence[Finding]) -> Iterator[dict[str, Any]]:
    """The changes with lines around them, and the places of findings where nothing changed; in order, none
    overlapping."""
    before, after = split_lines(outcome.before), split_lines(outcome.after)
    codes = opcodes(before, after) if before != after else [("equal", 0, len(before), 0, len(after))]
    wanted = _wanted(codes, [outcome.span(f) for f in findings], len(before))
    groups = list(_cut(codes, wanted, before))
    starts = [outcome.span(f)[0] for f in findings]
    order = sorted(range(len(findings)), key=starts.__getitem__)
    at = 0
    for group in groups:
        mine = []
        while at < len(order) and starts[order[at]] <= max(group[-1][2], group[0][1] + 1):
            mine.append(order[at])
            at += 1
        yield {"rows": list(_rows(group, before, after, bool(outcome.lines))), "findings": mine}
    if at < len(order):  # of a file without text: it could not be read
        yield {"rows": [], "findings": order[at:]}


def _wanted(
    codes: Sequence[tuple[str, int, int, int, int]], spans: Sequence[tuple[int, int]], length: int
) -> list[bool]:
    """Which lines of the file (from 0) are shown: changed ones, those of findings, and some around them."""
    shown = [False] * (length + 1)
    places = [(a1, max(a2, a1 + 1)) for tag, a1, a2, _, _ in codes if tag != "equal"]
    places += [(first - 1, first) for first, _ in spans]
    for start, stop in places:
        for line in range(max(0, start - CONTEXT), min(length + 1, stop + CONTEXT)):
            shown[line] = True
    return shown


def _cut(
    codes: Sequence[tuple[str, int, int, int, int]], wanted: Sequence[bool], before: Sequence[str]
) -> Iterator[list[tuple[str, int, int, int, int]]]:
    """The opcodes in groups of lines that stand together, without the lines that nobody wants."""
    group: list[tuple[str, int, int, int, int]] = []
    for tag, a1, a2, b1, b2 in codes:
        if tag != "equal":
            group.append((tag, a1, a2, b1, b2))
            continue
        at = a1
        while at < a2:
            if not wanted[at]:
                if group:
                    yield group
                    group = []
                at += 1
                continue
            stop = at
            while stop < a2 and wanted[stop] and (stop == at or before[stop - 1].strip()):
                stop += 1
            group.append(("equal", at, stop, b1 + at - a1, b1 + stop - a1))
            at = stop
            if group[-1][2] - group[0][1] >= LONG and not before[stop - 1].strip():
                yield group  # at a blank line, so that findings stand beside their lines
                group = []
    if group:
        yield group


def _rows(
    group: Sequence[tuple[str, int, int, int, int]], before: Sequence[str], after: Sequence[str], notebook: bool
) -> Iterator[list[Any]]:
    """Rows of sign, number and text on the left, number and text on the right; an unchanged line has its text once."""
    for tag, a1, a2, b1, b2 in group:
        if tag == "equal":
            for at in range(a2 - a1):
                yield [" ", a1 + at + 1, _shown(before[a1 + at], notebook), b1 + at + 1]
            continue
        for left, right in _paired(before[a1:a2], after[b1:b2]):
            old = [a1 + left + 1, _shown(before[a1 + left], notebook)] if left is not None else [0, ""]
            new = [b1 + right + 1, _shown(after[b1 + right], notebook)] if right is not None else [0, ""]
            yield ["~" if old[0] and new[0] else "-" if old[0] else "+", *old, *new]


def _paired(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[int | None, int | None]]:
    """Which line became which: lines that resemble each other stand side by side."""
    left = right = 0
    if len(old) != len(new) and len(old) * len(new) <= 2500:
        for at, line in enumerate(old):
            close = [(_likeness(line, other), -j) for j, other in enumerate(new[right:], right)]
            best, where = max(close, default=(0.0, 0))
            if best > 0.6:
                while right < -where:
                    yield (left, right) if left < at else (None, right)
                    left += left < at
                    right += 1
                while left < at:
                    yield left, None
                    left += 1
                yield at, right
                left, right = at + 1, right + 1
    while left < len(old) or right < len(new):
        yield left if left < len(old) else None, right if right < len(new) else None
        left, right = left + 1, right + 1


def _likeness(old: str, new: str) -> float:
    matcher = difflib.SequenceMatcher(None, old.strip(), new.strip(), autojunk=False)
    return matcher.ratio() if matcher.real_quick_ratio() > 0.6 and matcher.quick_ratio() > 0.6 else 0.0


def _shown(line: str, notebook: bool) -> str:
    """A line without its end; of a notebook's JSON the source line that it holds."""
    line = line.rstrip("\r\n")
    bare = line.strip().rstrip(",")
    if notebook and len(bare) > 1 and bare[0] == bare[-1] == '"':
        try:
            return str(json.loads(bare)).rstrip("\n")
        except ValueError:
            return line
    return line
