"""The hunks of a conversion: what changes at one place, and the findings that say why."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ..report.diff import Opcodes, group_changes, innermost, opcodes, split_lines
from ..report.findings import Finding, Outcome, fate

Fidelity = Literal["exact", "stated", "left", "unmapped", "follows"]
_RANK: dict[str, int] = {"follows": 0, "exact": 1, "stated": 2, "left": 3, "unmapped": 4}


@dataclass(frozen=True)
class Hunk:
    """One change: lines `start` to `stop` (from 0, the end not in it) of the file become `after`, lines
    `after_start` on. `findings` are those about it; without any it follows from other hunks (imports)."""

    path: str
    key: str
    start: int
    stop: int
    after_start: int
    before: tuple[str, ...]
    after: tuple[str, ...]
    groups: Opcodes
    findings: tuple[Finding, ...]

    @property
    def fidelity(self) -> Fidelity:
        """The worst of what became of its constructs."""
        fates = [fate(f.code) or "follows" for f in self.findings]
        return max(fates, key=_RANK.__getitem__, default="follows")

    @property
    def rules(self) -> frozenset[str]:
        return frozenset(f.rule for f in self.findings if fate(f.code) is not None)

    @property
    def decidable(self) -> bool:
        """Whether it can be refused: it is about constructs of its own."""
        return bool(self.rules)


def hunks_of(outcome: Outcome) -> list[Hunk]:
    """The hunks of one file, in order. Each finding is in the first hunk whose lines it is about."""
    if outcome.before == outcome.after:
        return []
    before, after = split_lines(outcome.before), split_lines(outcome.after)
    placed = [(*outcome.span(f), f) for f in outcome.findings]
    seen: Counter[str] = Counter()
    told: set[Finding] = set()
    found = []
    for group in group_changes(opcodes(before, after)):
        a1, a2, b1, b2 = group[0][1], group[-1][2], group[0][3], group[-1][4]
        findings = tuple(f for f in _about(group, placed) if f not in told)
        told.update(findings)
        old, new = tuple(before[a1:a2]), tuple(after[b1:b2])
        digest = hashlib.sha256("\0".join((outcome.path, *old, "\1", *new)).encode("utf-8", "replace")).hexdigest()[:16]
        seen[digest] += 1
        found.append(Hunk(outcome.path, f"{digest}#{seen[digest]}", a1, a2, b1, old, new, group, findings))
    return found


def with_edits(outcome: Outcome, edits: dict[str, str]) -> str:
    """The text after the conversion, with the new text of the hunks whose keys are in `edits`."""
    after = split_lines(outcome.after)
    for hunk in reversed(hunks_of(outcome)):
        if hunk.key in edits:
            after[hunk.after_start : hunk.after_start + len(hunk.after)] = [edits[hunk.key]]
    return "".join(after)


def rows(hunk: Hunk, before: Sequence[str], after: Sequence[str]) -> Iterator[tuple[str, int, str, int, str]]:
    """The hunk side by side: " ", "-", "+" or "~", and line number and text of each side (0 and "" where there is
    none). `before` and `after` are all lines of the file."""
    for tag, a1, a2, b1, b2 in hunk.groups:
        length = max(a2 - a1, b2 - b1)
        for at in range(length):
            left, right = a1 + at, b1 + at
            old = (left + 1, before[left]) if left < a2 else (0, "")
            new = (right + 1, after[right]) if right < b2 else (0, "")
            sign = " " if tag == "equal" else "~" if old[0] and new[0] else "-" if old[0] else "+"
            yield sign, *old, *new


def _about(group: Opcodes, placed: Sequence[tuple[int, int, Finding]]) -> list[Finding]:
    """The findings whose lines (first and last) meet those that change."""
    spans = [(i + 1, max(j, i + 1)) for tag, i, j, _, _ in group if tag != "equal"]
    lowest, highest = spans[0][0], spans[-1][1]
    near = [entry for entry in placed if entry[0] <= highest and entry[1] >= lowest]
    hit = [f for first, last, f in near if any(first <= b and last >= a for a, b in spans)]
    return innermost(sorted(hit, key=lambda f: f.place))
