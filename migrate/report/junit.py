"""JUnit XML: a suite for each file, a test case for each finding."""

from __future__ import annotations

from pathlib import PurePath
from xml.etree import ElementTree as xml

from .findings import Finding
from .shown import Shown, message_of
from .text import finding_line


def render_junit(shown: Shown) -> str:
    """What text lists. A finding that counts against the run is a failure, one that does not is skipped, JM9xx is an
    error; a file without any is one case that passed."""
    by_path: dict[str, list[Finding]] = {o.path: [] for o in shown.run.outcomes}
    for finding in shown.listed:
        by_path.setdefault(finding.path, []).append(finding)
    root = xml.Element("testsuites", {"name": "jaxmigrate"})
    totals = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    for path, findings in by_path.items():
        suite = xml.SubElement(root, "testsuite", {"name": PurePath(path).as_posix()})
        kinds = [_case(suite, f, shown) for f in findings]
        if not findings:
            xml.SubElement(suite, "testcase", {"name": "converts", "classname": PurePath(path).as_posix()})
        counts = {
            "tests": len(suite),
            "failures": kinds.count("failure"),
            "errors": kinds.count("error"),
            "skipped": kinds.count("skipped"),
        }
        for key, number in counts.items():
            suite.set(key, str(number))
            totals[key] += number
    for key, number in totals.items():
        root.set(key, str(number))
    xml.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + xml.tostring(root, encoding="unicode") + "\n"


def _case(suite: xml.Element, finding: Finding, shown: Shown) -> str:
    line, column = finding.start
    place = f"cell {finding.cell}:{line}:{column}" if finding.cell else f"{line}:{column}"
    name = " ".join(part for part in (place, finding.code, finding.name) if part)
    case = xml.SubElement(suite, "testcase", {"name": name, "classname": PurePath(finding.path).as_posix()})
    kind = "error" if finding.code.startswith("JM9") else "failure" if shown.counts(finding) else "skipped"
    held = xml.SubElement(case, kind, {"message": _legal(message_of(finding))})
    if kind != "skipped":
        held.set("type", finding.code)
        held.text = _legal(finding_line(finding))
    return kind


def _legal(text: str) -> str:
    """Without the control characters that XML cannot hold."""
    return "".join(c if c >= " " or c in "\t\n\r" else "�" for c in text)
