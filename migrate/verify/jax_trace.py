"""Inputs and outputs of every sub-module of a converted module, in the order in which their calls end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from .jax_model import submodules, to_numpy
from .leaves import flatten
from .worker import Result


def traced(model: Any, call: Callable[[], Any]) -> Result:
    """Run `call` eagerly with the `__call__` of every sub-module's class wrapped; facts as in the torch trace."""
    arrays: dict[str, Any] = {}
    calls: list[dict[str, Any]] = []
    counts: Counter[str] = Counter()
    paths = {id(module): path for path, module in submodules(model)}

    def save(key: str, value: Any) -> list[str]:
        leaves = [v for _, v in flatten(value) if isinstance(v, (jax.Array, np.ndarray))]
        for i, leaf in enumerate(leaves):
            arrays[f"{key}.{i}"] = to_numpy(leaf)
        return [f"{key}.{i}" for i in range(len(leaves))]

    def wrapped(cls: type, plain: Callable[..., Any]) -> Callable[..., Any]:
        def call_and_note(self: Any, *args: Any, **kwargs: Any) -> Any:
            result = plain(self, *args, **kwargs)
            if type(self) is cls and id(self) in paths:  # not again for the __call__ of a base class
                path = paths[id(self)]
                number = counts[path]
                counts[path] += 1
                key = f"{path}#{number}"
                given = save(f"{key}.in", (args, list(kwargs.values())))
                entry = {"path": path, "call": number, "kind": cls.__name__}
                calls.append(entry | {"inputs": given, "outputs": save(f"{key}.out", result)})
            return result

        return call_and_note

    classes = {type(module) for _, module in submodules(model) if callable(module)}
    plain = {cls: cls.__call__ for cls in classes}
    own = {cls for cls in classes if "__call__" in vars(cls)}
    for cls in classes:
        cls.__call__ = wrapped(cls, plain[cls])
    try:
        call()
    finally:
        for cls in classes:
            if cls in own:
                cls.__call__ = plain[cls]
            else:
                del cls.__call__
    return arrays, {"calls": calls}


def concrete(value: Any) -> Any:
    """A copy as NumPy of an array that has numbers; None for anything else, such as what a transformation passes."""
    known = isinstance(value, (jax.Array, np.ndarray)) and not isinstance(value, jax.core.Tracer)
    return to_numpy(value) if known and value.dtype.kind in "biufc" else None
