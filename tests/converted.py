"""Run a program under torch and its conversion under JAX, in one process: what tests of the passes compare."""

from __future__ import annotations

import importlib
import sys
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jaxmigrate.config import Settings
from jaxmigrate.project import convert_files
from jaxmigrate.read.source import Source
from jaxmigrate.report.findings import Finding
from jaxmigrate.rulebook import load_rules


@dataclass(frozen=True)
class Converted:
    """The converted text, its layer file and the findings."""

    text: str
    layers: str
    findings: tuple[Finding, ...]
    status: str

    def codes(self, severity: str = "") -> list[str]:
        return [f.code for f in self.findings if not severity or f.severity == severity]

    @property
    def left(self) -> list[str]:
        """What was not converted: code and message."""
        return [f"{f.code} {f.message}" for f in self.findings if f.code[2] in "239"]


def convert(source: str, path: str = "program.py", settings: Settings | None = None) -> Converted:
    run = convert_files([Source(path, source)], load_rules(), settings)
    (outcome,) = run.outcomes
    return Converted(outcome.after, run.layer_file, outcome.findings, outcome.status)


def under_torch(source: str) -> types.SimpleNamespace:
    names: dict[str, Any] = {"__name__": "original"}
    exec(compile(source, "original.py", "exec"), names)
    return types.SimpleNamespace(**names)


def under_jax(converted: Converted, folder: Path) -> types.ModuleType:
    """Import the conversion with its layer file from `folder`."""
    return with_layers(converted, folder)[0]


def with_layers(converted: Converted, folder: Path) -> tuple[types.ModuleType, types.ModuleType]:
    """Import the conversion from `folder`; also its layer file."""
    (folder / "nnx_layers.py").write_text(converted.layers, encoding="utf-8")
    (folder / "program.py").write_text(converted.text, encoding="utf-8")
    for name in ("nnx_layers", "program"):
        sys.modules.pop(name, None)
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module("program"), importlib.import_module("nnx_layers")
    finally:
        sys.path.remove(str(folder))
        for name in ("nnx_layers", "program"):
            sys.modules.pop(name, None)


def arrays(state: dict[str, Any]) -> dict[str, np.ndarray]:
    """A torch state_dict as NumPy arrays of their own."""
    return {k: v.detach().numpy().copy() for k, v in state.items()}
