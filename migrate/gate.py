"""The gate: which sources have nothing to convert. It is light, so that a run without a hit loads nothing more."""

from __future__ import annotations

from .read.source import Source
from .report.findings import Outcome


def wants_conversion(source: Source) -> bool:
    """Whether there can be anything to do: without the letters `torch` there is not."""
    return "torch" in source.text


def skipped(source: Source) -> Outcome:
    """The outcome of a source that has nothing to convert."""
    return Outcome(source.path, "skipped", source.text, source.text, encoding=source.encoding, bom=source.bom)
