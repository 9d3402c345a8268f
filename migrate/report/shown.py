"""A run as a report shows it: which findings are new, which are known, which were accepted."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from .findings import Finding, Run, Severity

RANK: dict[Severity, int] = {"note": 0, "warning": 1, "error": 2}


@dataclass(frozen=True)
class Shown:
    """`least` is the lowest severity that reports for people list, `fails` the lowest that counts against the run
    (None: none does). `known` are the findings of a baseline (None: without one), `accepted` those that a setting or
    a comment accepts: neither counts."""

    run: Run
    least: Severity = "warning"
    fails: Severity | None = "error"
    known: frozenset[Finding] | None = None
    accepted: frozenset[Finding] = frozenset()

    @cached_property
    def listed(self) -> list[Finding]:
        """The findings that a report for people lists, in order."""
        passed = self.accepted | (self.known or frozenset())
        return [f for f in self.run.findings if RANK[f.severity] >= RANK[self.least] and f not in passed]

    @cached_property
    def failing(self) -> list[Finding]:
        """The findings that make the exit code 1."""
        passed = self.accepted | (self.known or frozenset())
        return [f for f in self.run.findings if self.counts(f) and f not in passed]

    def counts(self, finding: Finding) -> bool:
        """Whether a finding's severity is one that counts against the run."""
        return self.fails is not None and RANK[finding.severity] >= RANK[self.fails]

    def state(self, finding: Finding) -> str:
        """ "new", "known" or "accepted"."""
        if finding in self.accepted:
            return "accepted"
        return "known" if self.known is not None and finding in self.known else "new"


def message_of(finding: Finding) -> str:
    """The message with its advice, on one line, headed by the name that it is about."""
    advice = f". {finding.advice}" if finding.advice and finding.advice not in finding.message else ""
    message = " ".join((finding.message.rstrip(".") + advice if advice else finding.message).split())
    if not finding.name or message.startswith(finding.name):
        return message
    return f"{finding.name}: {message}"
