"""Convert a program in this process, run it under torch and the result under JAX, and compare what they return."""

from __future__ import annotations

import sys
import textwrap
import types
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import numpy as np
import torch
from flax import nnx

from jaxmigrate.project import convert_files
from jaxmigrate.read.source import Source
from jaxmigrate.report.findings import Finding, Outcome, fate
from jaxmigrate.rulebook import RuleBook
from jaxmigrate.rulebook.load import load_rules


@dataclass(frozen=True)
class Both:
    """What became of a program: torch's result, ours, and what the converted program raised (`error`)."""

    outcome: Outcome
    expected: Any
    got: Any
    error: str = ""

    @property
    def left(self) -> list[Finding]:
        return [f for f in self.outcome.findings if fate(f.code) in ("left", "unmapped")]

    @property
    def codes(self) -> set[str]:
        return {f.code for f in self.outcome.findings}

    @property
    def same(self) -> bool:
        return not self.error and equal(self.expected, self.got)


@cache
def rules() -> RuleBook:
    return load_rules()


def convert(source: str) -> tuple[Outcome, str]:
    """The outcome of one file and the text of its layer file."""
    run = convert_files([Source("program.py", textwrap.dedent(source))], rules())
    return run.outcomes[0], run.layer_file


def run_both(source: str, entry: str = "main", *args: Any) -> Both:
    """Convert `source` and call `entry` in both programs; NumPy arguments become tensors and arrays."""
    outcome, layers = convert(source)
    assert outcome.status != "failed", [f.message for f in outcome.findings]
    expected = _call(outcome.before, entry, [torch.tensor(a) if isinstance(a, np.ndarray) else a for a in args])
    try:
        got = _call(
            outcome.after, entry, [jax.numpy.asarray(a) if isinstance(a, np.ndarray) else a for a in args], layers
        )
    except Exception as error:
        return Both(outcome, expected, None, f"{type(error).__name__}: {error}")
    return Both(outcome, expected, got)


def _call(text: str, entry: str, args: list[Any], layers: str = "") -> Any:
    saved = sys.modules.get("nnx_layers")
    if layers:
        module = types.ModuleType("nnx_layers")
        sys.modules["nnx_layers"] = module
        exec(compile(layers, "nnx_layers.py", "exec"), module.__dict__)
    try:
        namespace: dict[str, Any] = {"__name__": "program"}
        exec(compile(text, "program.py", "exec"), namespace)
        return _plain(namespace[entry](*args))
    finally:
        sys.modules.pop("nnx_layers", None)
        if saved is not None:
            sys.modules["nnx_layers"] = saved


def _plain(value: Any) -> Any:
    """A result as NumPy arrays and Python values, copied at once so that later writes cannot reach it."""
    if isinstance(value, torch.Tensor):
        return value.detach().to(torch.float32 if value.dtype == torch.bfloat16 else value.dtype).numpy().copy()
    if isinstance(value, nnx.Variable):
        return np.array(value[...])
    if isinstance(value, jax.Array):
        return np.array(value)
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return value


def equal(a: Any, b: Any, tolerance: float = 1e-6) -> bool:
    """Whether two plain results agree: shapes, kinds of type, values."""
    if isinstance(a, list):
        return (
            isinstance(b, list) and len(a) == len(b) and all(equal(x, y, tolerance) for x, y in zip(a, b, strict=True))
        )
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(equal(a[k], b[k], tolerance) for k in a)
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        x, y = np.asarray(a), np.asarray(b)
        kinds = {"i": "int", "u": "int", "f": "float", "b": "bool", "c": "complex"}
        if x.shape != y.shape or kinds.get(x.dtype.kind) != kinds.get(y.dtype.kind):
            return False
        return bool(
            np.allclose(x.astype(np.float64), y.astype(np.float64), rtol=tolerance, atol=tolerance, equal_nan=True)
        )
    return bool(a == b)
