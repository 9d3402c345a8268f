"""The variables that the cases of rules may use, for torch and for JAX, and how the two results are compared.

`variables()` gives NumPy arrays; `torch_names` and `jax_names` build the namespaces in which a case's two texts run.
"""

from __future__ import annotations

import importlib
import inspect
import math
import pkgutil
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

RTOL, ATOL = 1e-5, 1e-5
FLOATS = ("x", "y", "z", "x3", "y3", "x4", "v", "w", "b3", "c3", "p", "sq")


@cache
def variables() -> Mapping[str, Any]:
    """The arrays of docs/architecture.md by name; the same on every call."""
    rng = np.random.default_rng(7)

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32)

    values: dict[str, Any] = {name: normal(3, 4) for name in "xyz"}
    values |= {"x3": normal(2, 3, 4), "y3": normal(2, 3, 4), "x4": normal(2, 3, 8, 8)}
    values |= {"v": normal(4), "w": normal(4), "b3": normal(2, 3, 3), "c3": normal(2, 3, 3)}
    values["p"] = rng.uniform(0.05, 0.95, size=(3, 4)).astype(np.float32)
    values["a"] = rng.integers(0, 6, size=(3, 4))
    values["b"] = rng.integers(1, 4, size=(3, 4))
    values["i"] = np.array([2, 0])
    values["m"] = normal(3, 4) > 0
    values["sq"] = (np.diag([2.0, 3.0, 4.0]) + 0.3 * rng.normal(size=(3, 3))).astype(np.float32)
    values["n"] = 2
    return values


def torch_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """The namespace of a case's torch text. Raises ImportError without torch."""
    import torch

    tensors = {k: torch.from_numpy(v.copy()) if isinstance(v, np.ndarray) else v for k, v in values.items()}
    return {"torch": torch, "nn": torch.nn, "F": torch.nn.functional, "np": np, "math": math, **tensors}


def jax_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """The namespace of a case's JAX text: the usual modules, the layer library's names, and a PRNG key."""
    import jax
    import jax.numpy as jnp
    import optax
    from flax import nnx

    arrays = {k: jnp.asarray(v) if isinstance(v, np.ndarray) else v for k, v in values.items()}
    modules = {"jax": jax, "jnp": jnp, "lax": jax.lax, "nnx": nnx, "optax": optax, "np": np, "math": math}
    return {**library(), **modules, "key": jax.random.key(0), "rngs": nnx.Rngs(0), **arrays}


@cache
def library() -> Mapping[str, Any]:
    """Every public class and function of the layer library, by name."""
    package = importlib.import_module("jaxmigrate.layers.library")
    names: dict[str, Any] = {}
    for found in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{package.__name__}.{found.name}")
        for name, value in vars(module).items():
            defined_here = getattr(value, "__module__", None) == module.__name__
            if defined_here and not name.startswith("_") and (inspect.isclass(value) or inspect.isfunction(value)):
                names[name] = value
    return names


def leaves(value: Any) -> list[Any]:
    """The arrays, numbers and other atoms in a result, in order; the containers' lengths are kept as atoms."""
    if isinstance(value, (tuple, list)) and type(value).__name__ != "Size":
        return [f"{len(value)} items", *(leaf for v in value for leaf in leaves(v))]
    if type(value).__name__ == "Size":
        return [f"{len(value)} items", *value]
    return [value]


def as_array(value: Any) -> np.ndarray | None:
    """A tensor, array or number as NumPy; None for anything else."""
    if type(value).__module__.partition(".")[0] == "torch":
        if not hasattr(value, "detach"):
            return None
        value = value.detach().resolve_conj()
        value = value.float() if str(value.dtype) == "torch.bfloat16" else value
        return np.asarray(value.numpy())
    if isinstance(value, (bool, int, float, complex, np.ndarray, np.generic)) or hasattr(value, "__jax_array__"):
        return np.asarray(value)
    if type(value).__module__.startswith("jax") and hasattr(value, "dtype"):
        return np.asarray(value.astype("float32") if str(value.dtype) == "bfloat16" else value)
    return None


def dtype_kind(value: Any) -> str:
    """The type's name without the width that x64 decides: int32 and int64 are one kind, float32 and float64 too."""
    name = str(getattr(value, "dtype", type(value).__name__)).removeprefix("torch.")
    wide = {
        "int64": "int",
        "int32": "int",
        "float64": "float",
        "float32": "float",
        "complex128": "complex",
        "complex64": "complex",
    }
    return wide.get(name, name)


def differences(wanted: Any, got: Any, close: Callable[[np.ndarray, np.ndarray], bool] | None = None) -> list[str]:
    """What sets two results apart: structure, shape, kind of type, values. Empty when they agree.

    `close` compares two arrays of one shape; by default to RTOL and ATOL.
    """
    left, right = leaves(wanted), leaves(got)
    if len(left) != len(right):
        return [f"structure: {left} against {right}"]
    found = []
    for a, b in zip(left, right, strict=True):
        x, y = as_array(a), as_array(b)
        if x is None or y is None:
            if str(a).removeprefix("torch.") not in (str(b), str(b).removeprefix("jnp.")) and not callable(b):
                found.append(f"{a!r} against {b!r}")
        elif x.shape != y.shape:
            found.append(f"shape {x.shape} against {y.shape}")
        elif dtype_kind(a) != dtype_kind(b):
            found.append(f"type {dtype_kind(a)} against {dtype_kind(b)}")
        elif not (close or _close)(x, y):
            found.append(f"values {x.ravel()[:4]} against {y.ravel()[:4]}")
    return found


def _close(x: np.ndarray, y: np.ndarray) -> bool:
    loose = 1e-2 if "float16" in (str(x.dtype), str(y.dtype)) else RTOL
    kind = complex if x.dtype.kind == "c" else float
    return bool(np.allclose(x.astype(kind), y.astype(kind), rtol=loose, atol=max(ATOL, loose / 10), equal_nan=True))
