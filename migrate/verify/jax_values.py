"""JAX results as NumPy arrays and plain facts, and the scalar that gradients are taken of."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from .jax_model import to_numpy
from .leaves import flatten, weights_of_loss
from .worker import Result


def _value(leaf: Any) -> Any:
    return leaf[...] if isinstance(leaf, nnx.Variable) else leaf


def outputs(result: Any, order: list[str] | None = None) -> Result:
    """Arrays and facts of what a call returned. `order`: the result is already flat, with its paths in this order."""
    flat = flatten(result) if order is None else ((path, result[path]) for path in order)
    arrays: dict[str, Any] = {}
    leaves: list[list[Any]] = []
    for path, leaf in flat:
        leaf = _value(leaf)
        if isinstance(leaf, (jax.Array, np.ndarray, np.generic)):
            arrays[f"out.{path}"] = to_numpy(leaf)
            leaves.append([path, "array", str(leaf.dtype)])
        elif isinstance(leaf, (bool, int, float, str, type(None))):
            leaves.append([path, "value", leaf])
        else:
            leaves.append([path, "object", type(leaf).__name__])
    return arrays, {"leaves": leaves}


def static(result: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """A result inside jit: its arrays by path, and every path in order with the value where that is no array."""
    flat = [(path, _value(leaf)) for path, leaf in flatten(result)]
    arrays = {path: leaf for path, leaf in flat if isinstance(leaf, (jax.Array, np.ndarray, np.generic))}
    return arrays, {path: None if path in arrays else leaf for path, leaf in flat}


def scalar_loss(result: Any, path: str | None, mean: bool) -> Any:
    """sum(w * output) over the floating outputs, or the output called `path`; as in the worker of the original."""
    total: Any = None
    size = 0
    for name, leaf in flatten(result):
        leaf = _value(leaf)
        if path is not None and name == path:
            return jnp.sum(leaf)
        if path is not None or not isinstance(leaf, jax.Array) or not jnp.issubdtype(leaf.dtype, jnp.inexact):
            continue
        real = jnp.stack([leaf.real, leaf.imag], -1) if jnp.iscomplexobj(leaf) else leaf
        w = jnp.asarray(weights_of_loss(real.size), real.dtype).reshape(real.shape)
        total = (real * w).sum() if total is None else total + (real * w).sum()
        size += real.size
    if path is not None:
        raise ValueError(f"no output {path!r}, to be the loss")
    if total is None:
        raise ValueError("no floating output to take gradients of")
    return total / size if mean else total


def narrow_types(program: Any) -> list[str]:
    """The floating types narrower than float64 that occur in a traced program, its inner programs included."""
    seen: set[str] = set()

    def walk(jaxpr: Any) -> None:
        for variable in [*jaxpr.constvars, *jaxpr.invars, *(v for e in jaxpr.eqns for v in (*e.invars, *e.outvars))]:
            dtype = getattr(variable.aval, "dtype", None)
            if str(dtype) in ("float32", "float16", "bfloat16", "complex64"):
                seen.add(str(dtype))
        for equation in jaxpr.eqns:
            for value in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda p: hasattr(p, "eqns")):
                inner = getattr(value, "jaxpr", value)
                if hasattr(inner, "eqns"):
                    walk(inner)

    walk(program.jaxpr)
    return sorted(seen)


def changed(first: dict[str, Any], second: dict[str, Any]) -> list[str]:
    """Names of the outputs that differ between two calls."""
    return [
        name
        for name in first
        if name.startswith("out.")
        and (
            name not in second
            or first[name].shape != second[name].shape
            or not np.allclose(first[name], second[name], rtol=1e-5, atol=1e-6, equal_nan=True)
        )
    ]
