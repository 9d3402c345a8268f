"""A hand-written module under torch's names: stands where a converted program has its layer file."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import linen, nnx

from .mapping import NameMap, infer

_TRAIN, _EVAL = ("train", "training", "is_training"), ("deterministic", "eval_mode", "use_running_average")


class Mapped:
    """`named_variables`, `load_state_dict` and `torch_axes` of a module whose names or layouts are not torch's."""

    __name__ = "(inferred from names and shapes)"

    def __init__(self, model: Any, weights: Mapping[str, Any], given: NameMap) -> None:
        own = {n: v for n, v in walk(model) if not isinstance(v, nnx.RngState)}
        shapes = {n: tuple(v.shape) for n, v in own.items()}
        self.pairing = infer({n: tuple(a.shape) for n, a in weights.items()}, shapes, given)
        self.torch_names = {j: t for t, j in self.pairing.names.items()}

    def named_variables(self, model: Any) -> Iterator[tuple[str, Any]]:
        """(torch's name where there is one, variable)."""
        for name, variable in walk(model):
            yield self.torch_names.get(name, name), variable

    def torch_axes(self, _: Any) -> dict[str, tuple[int, ...]]:
        """The orders of axes that make arrays torch's."""
        return self.pairing.orders

    def load_state_dict(self, model: Any, weights: Mapping[str, Any]) -> None:
        """Copy the weights that have a partner. Raises KeyError where one has none."""
        if self.pairing.missing or self.pairing.extra:
            raise KeyError(f"no partner for {[*self.pairing.missing]} of torch, {[*self.pairing.extra]} of JAX")
        for name, variable in self.named_variables(model):
            if name in weights:
                order = self.pairing.orders.get(name)
                value = weights[name] if order is None else weights[name].transpose(np.argsort(order))
                variable.set_value(jnp.asarray(value, variable[...].dtype))


def walk(node: Any, prefix: str = "", seen: set[int] | None = None) -> Iterator[tuple[str, Any]]:
    """(path, variable) of a module in order of definition, through lists and mappings too."""
    seen = set() if seen is None else seen
    if id(node) in seen:
        return
    if isinstance(node, nnx.Variable):
        yield prefix, node
        return
    seen.add(id(node))
    if isinstance(node, (nnx.RngStream, nnx.Rngs, linen.Module)):
        return
    items: Any = ()
    if isinstance(node, FromLinen):
        yield from walk(node.inner, prefix, seen)
    elif isinstance(node, (list, tuple)):
        items = enumerate(node)
    elif isinstance(node, Mapping):
        items = node.items()
    elif isinstance(node, nnx.Module):
        items = vars(node).items()
    for name, value in items:
        if not str(name).startswith(("_pytree__", "_object__")):
            yield from walk(value, f"{prefix}.{name}" if prefix else str(name), seen)


class FromLinen(nnx.Module):
    """A Linen module as an NNX module: it is initialized by its first call, and knows train and eval mode."""

    def __init__(self, module: linen.Module, arguments: tuple[Any, ...], options: dict[str, Any], rngs: Any) -> None:
        names = set(inspect.signature(type(module).__call__).parameters)
        self.on = nnx.static(tuple(n for n in _TRAIN if n in names))
        self.off = nnx.static(tuple(n for n in _EVAL if n in names))
        self.deterministic = False  # set by nnx.Module.train and eval
        inner = nnx.bridge.ToNNX(module, rngs=rngs)
        self.inner = nnx.bridge.lazy_init(inner, *arguments, **options, **self._modes())

    def _modes(self) -> dict[str, bool]:
        return {**dict.fromkeys(self.on, not self.deterministic), **dict.fromkeys(self.off, self.deterministic)}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        changing = [] if self.deterministic else ["batch_stats"]
        return self.inner(*args, **kwargs, **self._modes(), mutable=changing)
