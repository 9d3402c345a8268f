"""Baselines: the findings that a project lives with, kept in a file so that only new ones fail."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path, PurePath

from .findings import Finding, Run

SCHEMA = "jaxmigrate-baseline/1"


class BaselineError(Exception):
    """The baseline cannot be used: the message is one line that names the file."""


def render_baseline(run: Run, home: Path) -> str:
    """The text of a baseline of all warnings and errors of `run`, JM9xx apart. Paths count from the folder `home`."""
    entries: dict[str, dict[str, object]] = {}
    for finding in sorted(_lasting(run.findings), key=lambda f: (_path(f, home), f.code, f.name, f.start)):
        key = _fingerprint(finding, home)
        entry = entries.setdefault(
            key, {"path": _path(finding, home), "code": finding.code, "name": finding.name, "count": 0}
        )
        entry["count"] = int(str(entry["count"])) + 1
    return json.dumps({"schema": SCHEMA, "findings": entries}, indent=1, ensure_ascii=False) + "\n"


def read_baseline(path: Path) -> dict[str, int]:
    """How often each fingerprint may occur. Raises BaselineError for a file that is no baseline."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BaselineError(f"{path}: {(error.strerror or str(error)).lower()}") from error
    except ValueError as error:
        raise BaselineError(f"{path}: not a baseline: {error}") from error
    try:
        if data["schema"] != SCHEMA:
            raise BaselineError(f"{path}: not a baseline of this version: {data['schema']!r} instead of {SCHEMA!r}")
        return {str(key): int(entry["count"]) for key, entry in data["findings"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BaselineError(f"{path}: not a baseline; write one with --write-baseline") from error


def known_findings(run: Run, baseline: dict[str, int], home: Path) -> frozenset[Finding]:
    """The findings of `run` that the baseline has: of several with one fingerprint, the first as many as it counts."""
    used: Counter[str] = Counter()
    known = set()
    for finding in _lasting(run.findings):
        key = _fingerprint(finding, home)
        if used[key] < baseline.get(key, 0):
            used[key] += 1
            known.add(finding)
    return frozenset(known)


def gone(run: Run, baseline: dict[str, int], home: Path) -> int:
    """How many findings of the baseline no longer occur."""
    now = Counter(_fingerprint(f, home) for f in _lasting(run.findings))
    return sum(max(0, count - now[key]) for key, count in baseline.items())


def _lasting(findings: Iterable[Finding]) -> list[Finding]:
    return [f for f in findings if f.severity != "note" and not f.code.startswith("JM9")]


def _path(finding: Finding, home: Path) -> str:
    """The path from the baseline's folder, so that it is the same wherever the command is run."""
    return PurePath(os.path.relpath(finding.path, home)).as_posix()


def _fingerprint(finding: Finding, home: Path) -> str:
    return replace(finding, path=_path(finding, home)).fingerprint
