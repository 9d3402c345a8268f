"""The gate: which sources have nothing to convert. It is light, so that a run without a hit loads nothing more."""

from __future__ import annotations

from .read.source import Source
from .report.findings import Outcome

TODO = "# TODO(jaxmigrate "


def wants_conversion(source: Source) -> bool:
    """Whether there can be anything to do: are there the letters `torch`, outside the comments of an earlier run?"""
    if "torch" not in source.text:
        return False
    if TODO not in source.text:
        return True
    return any("torch" in line.partition(TODO)[0] for line in source.text.splitlines())


def skipped(source: Source) -> Outcome:
    """The outcome of a source that has nothing to convert."""
    return Outcome(source.path, "skipped", source.text, source.text, encoding=source.encoding, bom=source.bom)
