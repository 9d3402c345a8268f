"""The report as JUnit XML: a test suite for each case, a test for each stage."""

from __future__ import annotations

from xml.etree import ElementTree

from .results import Stage, VerifyReport
from .table import found

_SKIPPED = ("not run", "shapes only", "eager only")


def render_junit(report: VerifyReport) -> str:
    """The XML text. A stage that differs is a failure, one that failed an error, one without numbers is skipped."""
    root = ElementTree.Element("testsuites", name=f"jaxmigrate verify {report.original.name}")
    for case in report.cases:
        counts = {
            "tests": len(case.stages),
            "failures": sum(s.verdict == "different" for s in case.stages),
            "errors": sum(s.verdict == "failed" for s in case.stages),
            "skipped": sum(s.verdict in _SKIPPED for s in case.stages),
        }
        attributes = {"name": case.case, **{k: str(v) for k, v in counts.items()}}
        suite = ElementTree.SubElement(root, "testsuite", attributes)
        for stage in case.stages:
            test = ElementTree.SubElement(
                suite, "testcase", classname=case.case, name=f"{stage.name} {stage.how}".strip()
            )
            _outcome(test, stage)
        places = [item.text for item in (case.statement, case.divergence) if item is not None]
        if places:
            ElementTree.SubElement(suite, "system-out").text = "\n".join(places)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _outcome(test: ElementTree.Element, stage: Stage) -> None:
    kinds = {"different": "failure", "failed": "error", **dict.fromkeys(_SKIPPED, "skipped")}
    if kind := kinds.get(stage.verdict):
        ElementTree.SubElement(test, kind, message=found(stage))
