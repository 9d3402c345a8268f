"""The report for machines, `jaxmigrate-report/1`; its schema is report.schema.json beside this file."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import PurePath
from typing import Any

from .. import __version__
from .findings import Finding, Run, fate
from .shown import Shown

SCHEMA = "jaxmigrate-report/1"
TOP = 20


def report(run: Run, shown: Shown | None = None) -> dict[str, Any]:
    """The whole report as plain data. Every figure in it is counted from `run.findings` and the files' status. With
    `shown`, findings that a baseline knows or that are accepted say so."""
    return {
        "schema": SCHEMA,
        "tool": __version__,
        "rules": run.rules,
        "summary": _summary(run),
        "files": [{"path": _posix(o.path), "status": o.status, "torch_free": o.torch_free} for o in run.outcomes],
        "findings": [_finding(f, shown) for f in run.findings],
    }


def render(run: Run, shown: Shown | None = None) -> str:
    """The report as indented JSON with a newline at its end."""
    return json.dumps(report(run, shown), indent=2, ensure_ascii=False) + "\n"


def render_lines(shown: Shown) -> str:
    """The report as JSON lines: each finding, then each file, then the summary; `type` says which."""
    data = report(shown.run, shown)
    head = {key: data[key] for key in ("schema", "tool", "rules")}
    rows = [{"type": "finding", **f} for f in data["findings"]]
    rows += [{"type": "file", **f} for f in data["files"]]
    rows.append({"type": "summary", **head, **data["summary"]})
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def top_unmapped(run: Run, limit: int = TOP) -> list[tuple[str, int]]:
    """The names that most constructs were unmapped for, the most frequent first, then by name."""
    count = Counter(f.name for f in run.findings if fate(f.code) == "unmapped")
    return sorted(count.items(), key=lambda pair: (-pair[1], pair[0]))[:limit]


def _summary(run: Run) -> dict[str, Any]:
    status = Counter(o.status for o in run.outcomes)
    seen = run.constructs
    return {
        "files": len(run.outcomes),
        "changed": status["changed"],
        "skipped": status["skipped"],
        "failed": status["failed"],
        "constructs": {"exact": seen.exact, "stated": seen.stated, "left": seen.left, "unmapped": seen.unmapped},
        "rate": {"converted": seen.converted, "of": seen.seen},
        "by_code": dict(sorted(Counter(f.code for f in run.findings).items())),
        "top_unmapped": [{"name": name, "count": count} for name, count in top_unmapped(run)],
    }


def _finding(finding: Finding, shown: Shown | None) -> dict[str, Any]:
    more: dict[str, Any] = {"cell": finding.cell} if finding.cell else {}
    if shown is not None and shown.state(finding) != "new":
        more["state"] = shown.state(finding)
    return {
        "code": finding.code,
        "severity": finding.severity,
        "rule": finding.rule,
        "name": finding.name,
        "path": _posix(finding.path),
        "range": {"start": list(finding.start), "end": list(finding.end)},
        "message": finding.message,
        "advice": finding.advice,
        "evidence": finding.evidence,
        "before": finding.before,
        "after": finding.after,
        "fingerprint": finding.fingerprint,
        **more,
    }


def _posix(path: str) -> str:
    return PurePath(path).as_posix()
