"""The places where the kit must know something about the converter: its report, how its output asks for PRNG keys, and
where weights go. No torch here: load_weights runs where torch cannot be imported."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any


def reported(case: dict[str, Any], findings: Sequence[dict[str, Any]]) -> str:
    """What the converter itself said of this case: "reported" when it left a line of it or called it unmapped
    (JM2xx, JM3xx), "stated" when it converted with a stated difference (JM1xx), else "".

    findings: those about the case's source file (code, range in the source); case["lines"]: its first and last line."""
    first, last = case["lines"]
    said = {f["code"][:3] for f in findings if f["range"]["start"][0] <= last and f["range"]["end"][0] >= first}
    if said & {"JM2", "JM3"}:
        return "reported"
    return "stated" if "JM1" in said else ""


def random_arguments(fn: Callable[..., Any], n: int, given: int) -> dict[str, Any]:
    """Keyword arguments for what a converted function or class asks beyond the n arguments it is given:
    a PRNG key or an nnx.Rngs, recognised by name. given: a number that differs between calls."""
    import jax
    from flax import nnx

    try:
        params = list(inspect.signature(fn.__init__ if inspect.isclass(fn) else fn).parameters.values())
    except (TypeError, ValueError):
        return {}
    extra = {}
    for p in params:
        if p.name in ("rngs", "rng", "rng_stream"):
            extra[p.name] = nnx.Rngs(given)
        elif p.name in ("key", "rng_key", "prng_key"):
            extra[p.name] = jax.random.key(given)
    return extra


NAMES = {
    "weight": ("weight", "kernel", "scale", "embedding", "negative_slope"),
    "bias": ("bias",),
    "running_mean": ("running_mean", "mean"),
    "running_var": ("running_var", "var"),
    "num_batches_tracked": (),
}


def load_weights(model: Any, state: Mapping[str, Any], module: ModuleType) -> Any:
    """Copies a torch state dict (name -> numpy array) into a converted model.

    If the converted file defines load_torch_state_dict(model, state), or the emitted nnx_layers.py
    load_state_dict(model, state), that is used. Else weights
    are matched by path, by the usual Flax leaf names, and moved to Flax layout: Linear and Conv kernels."""
    if hasattr(module, "load_torch_state_dict"):
        return module.load_torch_state_dict(model, state)
    layers = sys.modules.get("nnx_layers")
    if hasattr(layers, "load_state_dict"):
        return layers.load_state_dict(model, state)
    import jax.numpy as jnp
    import numpy as np
    from flax import nnx

    flat = {tuple(map(str, path)): v for path, v in nnx.to_flat_state(nnx.state(model))}
    for name, value in state.items():
        *path, leaf = name.split(".")
        options = NAMES.get(leaf, (leaf,))
        found = next((n for n in options if (*path, n) in flat), None)
        if found is None:
            if leaf == "num_batches_tracked":
                continue
            raise LookupError(f"no place for {name} in the converted model")
        variable = flat[(*path, found)]
        if found == "kernel":  # (out, in, *window) -> (*window, in, out)
            value = np.transpose(value, (*range(2, value.ndim), 1, 0))
        if value.shape != variable.shape:
            raise LookupError(f"{name}: shape {value.shape}, the converted model has {variable.shape}")
        variable.set_value(jnp.asarray(value))
    nnx.update(model, nnx.from_flat_state({tuple(int(p) if p.isdigit() else p for p in k): v for k, v in flat.items()}))
