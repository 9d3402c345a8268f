"""The gate: which sources have nothing to convert. It is light, so that a run without a hit loads nothing more."""

from __future__ import annotations

from pathlib import PurePath

from .read.source import Source
from .report.findings import Outcome

TODO = "# TODO(jaxmigrate "
LAYER_FILE = "nnx_layers.py"


def wants_conversion(source: Source) -> bool:
    """Whether there can be anything to do: are there the letters `torch`, outside the comments of an earlier run?"""
    if "torch" not in source.text or is_layer_file(source):
        return False
    if TODO not in source.text:
        return True
    return any("torch" in line.partition(TODO)[0] for line in source.text.splitlines())


def is_layer_file(source: Source) -> bool:
    """Whether the file is the layer library that an earlier run wrote."""
    return PurePath(source.path).name == LAYER_FILE


def skipped(source: Source) -> Outcome:
    """The outcome of a source that has nothing to convert."""
    text = source.notebook.text if source.notebook else source.text
    return Outcome(source.path, "skipped", text, text, encoding=source.encoding, bom=source.bom)
