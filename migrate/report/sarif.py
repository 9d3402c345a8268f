"""SARIF 2.1.0, for code scanning."""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from .. import __version__
from .findings import CODES, Finding
from .shown import Shown, message_of

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
HOME = "https://pypi.org/project/jaxmigrate/"
_BASELINE = {"new": "new", "known": "unchanged"}


def render_sarif(shown: Shown) -> str:
    """A log of one run: what text lists, and the known and accepted findings marked as such."""
    listed = set(shown.listed)
    findings = [f for f in shown.run.findings if f in listed or shown.state(f) != "new"]
    codes = sorted({f.code for f in findings})
    driver = {
        "name": "jaxmigrate",
        "version": __version__,
        "informationUri": HOME,
        "rules": [_rule(code) for code in codes],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": not any(f.code.startswith("JM9") for f in shown.run.findings)}],
        "results": [_result(f, codes.index(f.code), shown) for f in findings],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False) + "\n"


def _rule(name: str) -> dict[str, Any]:
    code = CODES[name]
    return {
        "id": code.code,
        "shortDescription": {"text": code.summary},
        "help": {"text": code.help},
        "defaultConfiguration": {"level": code.severity},
    }


def _result(finding: Finding, index: int, shown: Shown) -> dict[str, Any]:
    state = shown.state(finding)
    cell = f"cell {finding.cell}, line {finding.start[0]}: " if finding.cell else ""
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": finding.severity,
        "message": {"text": f"{cell}{message_of(finding)}"},
        "locations": [{"physicalLocation": _location(finding)}],
        "partialFingerprints": {"jaxmigrate/v1": finding.fingerprint},
        "properties": {"name": finding.name, "rule": finding.rule},
    }
    if finding.evidence:
        result["properties"]["evidence"] = finding.evidence
    if state == "accepted":
        result["suppressions"] = [{"kind": "external"}]
    elif shown.known is not None:
        result["baselineState"] = _BASELINE[state]
    return result


def _location(finding: Finding) -> dict[str, Any]:
    """The place in the file; a notebook's cell has none that a viewer of its JSON could show."""
    path = PurePath(finding.path)
    uri = path.as_uri() if path.is_absolute() else quote(path.as_posix())
    artifact = {"uri": uri} if path.is_absolute() else {"uri": uri, "uriBaseId": "%SRCROOT%"}
    if finding.cell:
        return {"artifactLocation": artifact, "region": {"startLine": 1}}
    (line, column), (last, stop) = finding.start, finding.end
    region: dict[str, Any] = {"startLine": line, "startColumn": column, "endLine": last, "endColumn": stop}
    if finding.before:
        region["snippet"] = {"text": finding.before}
    return {"artifactLocation": artifact, "region": region}
