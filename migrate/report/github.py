"""Annotations of GitHub Actions: one workflow command for each finding."""

from __future__ import annotations

from pathlib import PurePath

from .findings import Finding, Severity
from .shown import Shown, message_of

_COMMANDS: dict[Severity, str] = {"note": "notice", "warning": "warning", "error": "error"}


def render_github(shown: Shown) -> str:
    """What text lists, as `::warning file=…,line=…::message` lines."""
    return "".join(f"{_line(f)}\n" for f in shown.listed)


def _line(finding: Finding) -> str:
    (line, column), (last, stop) = finding.start, finding.end
    where = {"file": PurePath(finding.path).as_posix()}
    message = message_of(finding)
    if finding.cell:
        message = f"cell {finding.cell}, line {line}: {message}"
    else:
        where |= {"line": str(line), "endLine": str(last)}
        if line == last:  # GitHub takes columns only within one line
            where |= {"col": str(column), "endColumn": str(stop)}
    where["title"] = f"{finding.code} {finding.name}".strip()
    properties = ",".join(f"{key}={_property(value)}" for key, value in where.items())
    return f"::{_COMMANDS[finding.severity]} {properties}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
