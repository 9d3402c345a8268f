"""Flattening results to named leaves, and filling a case's arguments with arrays; the same on both sides."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .cases import ArraySpec, Case

_DEPTH = 12


def flatten(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """(dotted path, leaf) of a nested result: tuples (named ones too), lists, mappings, dataclasses, plain namespaces.

    A leaf is an array, a plain value or None; what cannot be looked into comes as it is.
    """
    join = f"{path}." if path else ""
    if depth > _DEPTH or value is None or hasattr(value, "dtype"):
        yield path, value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for f in dataclasses.fields(value):
            yield from flatten(getattr(value, f.name), join + f.name, depth + 1)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from flatten(item, f"{join}{key}", depth + 1)
    elif isinstance(value, (tuple, list)):
        for index, item in enumerate(value):
            yield from flatten(item, f"{join}{index}", depth + 1)
    elif type(value).__name__ == "SimpleNamespace":
        yield from flatten(vars(value), path, depth + 1)
    else:
        yield path, value


def specs(case: Case) -> list[tuple[str, ArraySpec]]:
    """The arrays that a case takes, named by where they stand: "0", "1.2", "targets"."""
    found: list[tuple[str, ArraySpec]] = []

    def note(name: str, spec: ArraySpec) -> ArraySpec:
        found.append((name, spec))
        return spec

    fill(case, note)
    return found


def fill(case: Case, make: Callable[[str, ArraySpec], Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The case's arguments with `make(name, spec)` in the place of each array."""

    def walk(value: Any, name: str) -> Any:
        if isinstance(value, ArraySpec):
            return make(name, value)
        if isinstance(value, (tuple, list)):
            return type(value)(walk(item, f"{name}.{i}") for i, item in enumerate(value))
        if isinstance(value, dict):
            return {key: walk(item, f"{name}.{key}") for key, item in value.items()}
        return value

    args = tuple(walk(value, str(i)) for i, value in enumerate(case.args))
    return args, {name: walk(value, name) for name, value in case.kwargs}


def draw(case: Case, seed: int) -> dict[str, Any]:
    """NumPy arrays for the inputs of a case. float16 and bfloat16 come as float32, to be rounded by each side."""
    import numpy as np

    kinds = {"f64": "float64", "i32": "int32", "i64": "int64", "u8": "uint8", "bool": "bool"}
    rng = np.random.default_rng(seed)
    arrays = {}
    for name, spec in specs(case):
        low, high = spec.low, spec.high
        if spec.dtype == "bool":
            array: Any = rng.random(spec.shape) < 0.5
        elif spec.dtype.startswith(("i", "u")):
            array = rng.integers(int(low or 0), int(high if high is not None else 10), spec.shape)
        elif high is not None:
            array = rng.uniform(low or 0, high, spec.shape)
        else:
            array = rng.standard_normal(spec.shape)
        arrays[name] = np.asarray(array).astype(kinds.get(spec.dtype, "float32"))
    return arrays


def same_bits(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Whether two sets of NumPy arrays are the same, bit by bit (a NaN is equal to itself)."""
    return first.keys() == second.keys() and all(
        a.dtype == second[n].dtype and a.shape == second[n].shape and a.tobytes() == second[n].tobytes()
        for n, a in first.items()
    )


def weights_of_loss(size: int) -> Any:
    """The fixed weights w of the scalar sum(w * output) that gradients are taken of: cos(0), cos(1), ..."""
    import numpy as np

    return np.cos(np.arange(size, dtype=np.float64))
