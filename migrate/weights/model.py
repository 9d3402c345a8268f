"""A converted model, built to ask for the names, layouts, shapes and ties of its weights."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from .checkpoint import WeightsError, need
from .mapping import Entry

SEED = 0


def entries_of(target: str) -> list[Entry]:
    """The mapping of the model that `FILE.py:Net(3)` builds. Raises WeightsError when it cannot be built."""
    path, colon, call = target.rpartition(".py:")
    file = Path(f"{path}.py")
    if not colon or not call:
        raise WeightsError(f"--model {target}: give it as FILE.py:Net(arguments)")
    if not file.is_file():
        raise WeightsError(f"{file}: no such file")
    need("jax", "flax", "optax")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    from flax import nnx

    from ..verify.jax_model import Supplier, layer_module, temporary, variables
    from ..verify.loading import explain, forget, load, namespace

    try:
        model = Supplier(SEED).evaluate(call, namespace(load(file)))
        layers = layer_module(file.parent)
        named = variables(model, layers) if isinstance(model, nnx.Module) else None
    except Exception as error:
        raise WeightsError(f"--model {target}: {explain(error, file.parent)}") from error
    finally:
        forget(file.parent)
    if named is None:
        raise WeightsError(f"--model {target}: gives a {type(model).__name__}, not an nnx.Module")
    return _entries(model, [(n, v) for n, v in named if not temporary(v)], getattr(layers, "torch_axes", None))


def _entries(model: Any, named: list[tuple[str, Any]], torch_axes: Any) -> list[Entry]:
    """`torch_axes` is the layer file's function of that name: what is stored in another order of axes than torch's."""
    paths = _paths(model)
    orders = torch_axes(model) if torch_axes else {}
    names: dict[int, list[str]] = {}
    for name, variable in named:
        names.setdefault(id(variable), []).append(name)
    seen: dict[int, int] = {}
    entries: list[Entry] = []
    for name, variable in named:
        place = seen[id(variable)] = seen.get(id(variable), -1) + 1
        own = paths.get(id(variable), [])
        # Without a rename the path is the name; else the nth name of a shared Variable is its nth path.
        path = name if name in own or place >= len(own) else own[place]
        group = names[id(variable)]
        axes = orders.get(name, ())
        # The layer file says how to come back to torch's order; an entry says how to leave it.
        order = tuple(axes.index(i) for i in range(len(axes)))
        entries.append(Entry(name, path, order, group[0] if len(group) > 1 else "", tuple(variable.shape)))
    return entries


def _paths(model: Any) -> dict[int, list[str]]:
    """The dotted paths of every Variable, a shared one under each of its places, in order of definition."""
    from flax import nnx

    found: dict[int, list[str]] = {}
    open_now: set[int] = set()

    def walk(node: Any, prefix: str) -> None:
        if id(node) in open_now:
            return
        open_now.add(id(node))
        items = enumerate(node) if isinstance(node, nnx.List) else list(vars(node).items())
        for key, value in items:
            if str(key).startswith("_pytree__"):
                continue
            if isinstance(value, nnx.Variable):
                found.setdefault(id(value), []).append(f"{prefix}{key}")
            elif isinstance(value, nnx.Module):
                walk(value, f"{prefix}{key}.")
        open_now.discard(id(node))

    walk(model, "")
    return found
