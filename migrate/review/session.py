"""A review: convert, take decisions hunk by hunk, convert again when something was refused."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from ..keep import keys_of
from ..report.findings import Finding, Outcome, fate
from ..work import Options, Work, convert_paths
from .decisions import Decisions
from .hunks import Hunk, hunks_of, with_edits


class Session:
    """What is under review. `keys` are those of the findings of a conversion in which nothing was refused."""

    def __init__(self, paths: Sequence[str], options: Options, decisions: Decisions) -> None:
        self.paths, self.options, self.decisions = paths, options, decisions
        everything = convert_paths(paths, options)
        self.keys = {o.path: _by_place(o) for o in everything.run.outcomes}
        self.work = everything
        self.hunks: list[Hunk] = []
        self._update(everything if not decisions.refused else None)

    def pending(self) -> Hunk | None:
        """The next hunk that nothing was decided about. Hunks that follow from others are not asked about."""
        for hunk in self.hunks:
            if hunk.decidable and not self.decided(hunk):
                return hunk
        return None

    def decided(self, hunk: Hunk) -> bool:
        """Whether a hunk is taken as it is: accepted itself, by all its rules, or edited."""
        decisions = self.decisions
        return (
            hunk.key in decisions.accepted or hunk.key in decisions.edits_of(hunk.path) or hunk.rules <= decisions.rules
        )

    def accept(self, hunk: Hunk) -> None:
        self.decisions.accepted.add(hunk.key)

    def accept_all(self) -> None:
        """Accept every hunk that is not decided yet."""
        self.decisions.accepted.update(h.key for h in self.hunks if h.decidable and not self.decided(h))

    def accept_rule(self, hunk: Hunk) -> None:
        """Accept all hunks that have only the rules of this one."""
        self.decisions.rules |= hunk.rules

    def refuse(self, hunk: Hunk) -> list[Hunk]:
        """Keep what the hunk is about as it was. Returns the other hunks that are gone with it."""
        return self._refuse(hunk, [f for f in hunk.findings if fate(f.code) is not None and f.code != "JM221"])

    def refuse_rule(self, hunk: Hunk) -> list[Hunk]:
        """Keep everything that the rules of this hunk would change. Returns the hunks that are gone."""
        found = [f for o in self.work.run.outcomes for f in o.findings if f.rule in hunk.rules and f.code != "JM221"]
        return self._refuse(hunk, [f for f in found if fate(f.code) is not None])

    def edit(self, hunk: Hunk, text: str) -> str:
        """Put `text` in place of what the hunk gives. Returns why it cannot be, "" when it was done."""
        outcome = self._outcome(hunk.path)
        changed = {**self.decisions.edits_of(hunk.path), hunk.key: text}
        new = with_edits(outcome, changed)
        if not hunk.path.endswith(".ipynb"):
            try:
                ast.parse(new)
            except (SyntaxError, ValueError) as error:
                return f"the file would not parse: {error}"
        self.decisions.edited.setdefault(self.decisions.name(hunk.path), {})[hunk.key] = text
        return ""

    def counts(self) -> dict[str, int]:
        """How many hunks there are, by what was decided."""
        asked = [h for h in self.hunks if h.decidable]
        done = [h for h in asked if self.decided(h)]
        edited = sum(h.key in self.decisions.edits_of(h.path) for h in done)
        return {
            "accepted": len(done) - edited,
            "edited": edited,
            "open": len(asked) - len(done),
            "refused": sum(map(len, self.decisions.refused.values())),
        }

    def _refuse(self, hunk: Hunk, findings: Sequence[Finding]) -> list[Hunk]:
        before = {h.key: h for h in self.hunks}
        for finding in findings:
            key = self.keys.get(finding.path, {}).get(_place(finding))
            if key:
                self.decisions.refuse(finding.path, [key])
        self._update(None)
        now = {h.key for h in self.hunks}
        gone = [h for key, h in before.items() if key not in now and key != hunk.key]
        if hunk.key in now:  # nothing to keep it by: do not ask again
            self.decisions.accepted.add(hunk.key)
        return gone

    def _update(self, work: Work | None) -> None:
        if work is None:
            work = convert_paths(self.paths, self.options, decisions=self.decisions)
        self.work = work
        self.hunks = [h for o in work.run.outcomes for h in hunks_of(o)]

    def _outcome(self, path: str) -> Outcome:
        return next(o for o in self.work.run.outcomes if o.path == path)


def apply_edits(work: Work, decisions: Decisions) -> tuple[Work, list[str]]:
    """The conversion with the edited hunks in it, and the files in which an edited hunk is no longer there."""
    outcomes, lost = [], []
    for outcome in work.run.outcomes:
        edits = dict(decisions.edits_of(outcome.path))
        if edits:
            if set(edits) - {h.key for h in hunks_of(outcome)}:
                lost.append(outcome.path)
            outcome = replace(outcome, after=with_edits(outcome, edits))
        outcomes.append(outcome)
    return replace(work, run=replace(work.run, outcomes=tuple(outcomes))), lost


Place = tuple[int, tuple[int, int], str]


def _place(finding: Finding) -> Place:
    """What a finding has in common with itself after something else was refused: its place and name."""
    return finding.cell, finding.start, finding.name


def _by_place(outcome: Outcome) -> dict[Place, str]:
    return {_place(f): key for f, key in keys_of(outcome.findings).items()}
