"""One case of the converted program: its module, its inputs, and how it is called."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen, nnx

from .jax_mapped import FromLinen
from .jax_model import Dropouts, Orders, Supplier, cast, load_weights
from .jax_values import outputs, static
from .leaves import fill, specs
from .mapping import NameMap, from_plain
from .record import read
from .worker import Item, Result

_DTYPES = {"f16": jnp.float16, "bf16": jnp.bfloat16}
PRECISIONS = {"float64": jnp.float64, "bfloat16": jnp.bfloat16}
configure: Callable[[str, Any], None] = jax.config.update


def wide_types() -> bool:
    """Whether 64-bit types are switched on."""
    return bool(jax.dtypes.canonicalize_dtype(np.float64) == np.float64)


class Program:
    """A case of the converted program, with the recording of the original beside it."""

    def __init__(self, item: Item, options: Any, dropouts: Dropouts) -> None:
        assert item.weights is not None
        self.item, self.case, self.options, self.dropouts = item, item.case, options, dropouts
        self.torch = read(item.weights)
        self.names: dict[str, Any] = {}
        self.layers: Any = None
        self.supplier = Supplier(options.seed)
        self.model: Any = None
        self.weights: dict[str, Any] = {}
        self.orders: Orders = {}
        self.temporaries: dict[str, Any] = {}
        self.loaded = True
        self.precision: Any = None
        self.map: NameMap = from_plain(options.map or {})
        self.made_narrow: list[str] = []
        self.count: Callable[[], int] = lambda: 0

    @property
    def back(self) -> Orders:
        """The orders that undo those of the inputs."""
        return {n: tuple(int(i) for i in np.argsort(order)) for n, order in self.map.inputs.items()}

    def seed(self) -> None:
        """Let NumPy and Python draw what they do in the original."""
        np.random.seed(self.options.seed)
        random.seed(self.options.seed)

    def built(self) -> Any:
        self.seed()
        self.supplier = Supplier(self.options.seed)
        model = self.supplier.evaluate(self.case.build or "", self.names)
        if isinstance(model, linen.Module) and self.options.map is not None:
            args, kwargs = fill(self.case, lambda name, _: self.inputs()[name])
            model = FromLinen(model, args, kwargs, self.supplier.rngs)
        if not isinstance(model, nnx.Module):
            raise TypeError(f"{self.case.build} gives {type(model).__name__}, not a flax.nnx.Module")
        return model

    def fresh(self, mode: str, dropout: bool = False) -> Any:
        """A new module with the original's weights (a copy would lose the order of its attributes)."""
        if self.case.build is None:
            return None
        wide = wide_types()
        if self.precision is not None:  # made in float32 as the original is, so that its constants are the same
            configure("jax_enable_x64", False)
        model = self.built()
        load_weights(model, self.weights, self.layers)
        configure("jax_enable_x64", wide)
        if self.precision is not None:
            self.made_narrow = cast(
                model, {**self.temporaries, **self.weights}, self.layers, self.precision, self.orders
            )
        model.train() if mode == "train" else model.eval()
        self.dropouts.off = not dropout
        if not dropout:
            self.dropouts.silence(model)
        return model

    @contextmanager
    def precisely(self, name: str) -> Iterator[None]:
        """Call in another floating type; float64 is then also the type of new arrays."""
        before = wide_types()
        self.precision = PRECISIONS[name]
        if name == "float64":
            configure("jax_enable_x64", True)
        try:
            yield
        finally:
            self.precision = None
            configure("jax_enable_x64", before)

    def inputs(self) -> dict[str, Any]:
        """The arrays of the case, in the precision that is set."""
        arrays = self.torch.get("load").arrays
        given = {n: jnp.asarray(arrays[f"in.{n}"], _DTYPES.get(s.dtype)) for n, s in specs(self.case)}
        given = {n: v.transpose(self.map.inputs[n]) if n in self.map.inputs else v for n, v in given.items()}
        if self.precision is None:
            return given
        return {n: v.astype(self.precision) if jnp.issubdtype(v.dtype, jnp.floating) else v for n, v in given.items()}

    def call(self, model: Any, inputs: dict[str, Any]) -> Any:
        self.seed()
        args, kwargs = fill(self.case, lambda name, _: inputs[name])
        if model is None:
            target = self.supplier.evaluate(self.case.target, self.names)
        else:
            target = getattr(model, self.case.target) if self.case.target else model
        return self._as_torch(self.supplier.call(target, *args, **kwargs))

    def _as_torch(self, result: Any) -> Any:
        """The result with the axes of its arrays in torch's order, where the name map says that they are not."""
        orders = self.map.outputs
        if not orders:
            return result
        if isinstance(result, (tuple, list)):
            return [v.transpose(orders[str(i)]) if str(i) in orders else v for i, v in enumerate(result)]
        return result.transpose(orders["output"]) if "output" in orders else result

    def run(self, model: Any, jitted: bool) -> Result:
        """Arrays and facts of one forward call; under jit the values that are not arrays are kept at tracing."""
        if not jitted:
            return outputs(self.call(model, self.inputs()))
        kept: list[Any] = []
        traces: list[int] = []

        def function(model: Any, inputs: dict[str, Any]) -> dict[str, Any]:
            traces.append(1)
            arrays, others = static(self.call(model, inputs))
            kept[:] = [others]
            return arrays

        jitted_function = nnx.jit(function)
        arrays = jitted_function(model, self.inputs())
        result, facts = outputs({**kept[0], **arrays}, order=list(kept[0]))
        self.count = lambda: (jitted_function(model, self.inputs()), len(traces))[1]
        return result, facts
