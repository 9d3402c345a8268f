"""The worker process of the converted program: runs it where torch cannot be imported, and records what it does."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .loading import Blocker, forget, load, namespace, root

sys.meta_path.insert(0, Blocker())

import flax  # noqa: E402 - only after torch is out of reach
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from flax import nnx  # noqa: E402

from .jax_model import (  # noqa: E402
    Dropouts,
    Orders,
    Supplier,
    as_torch,
    layer_module,
    load_weights,
    paths_of_parameters,
    state_arrays,
    temporary,
    to_numpy,
    torch_orders,
    variables,
)
from .jax_trace import traced  # noqa: E402
from .jax_values import changed, outputs, scalar_loss, static  # noqa: E402
from .leaves import fill, specs  # noqa: E402
from .record import read  # noqa: E402
from .worker import Item, Result, attempts, perform, read_job, settings  # noqa: E402

_configure: Callable[[str, Any], None] = jax.config.update
_forget_compiled: Callable[[], None] = jax.clear_caches
_DTYPES = {"f16": jnp.float16, "bf16": jnp.bfloat16}


def work(job: Path) -> None:
    """Do every item of a job file. The programs of several items may have modules of the same names."""
    _configure("jax_default_matmul_precision", "highest")
    items, options = read_job(job)
    dropouts = Dropouts()
    last = items[0].case
    for item in items:
        if item.case != last:
            _forget_compiled()  # made for other shapes, and large
        last = item.case
        converted = Converted(item, settings(item.case, options), dropouts)
        perform(item, converted.steps())
        forget(root(item.file))


class Converted:
    """One case of the converted program, with the recording of the original beside it."""

    def __init__(self, item: Item, options: Any, dropouts: Dropouts) -> None:
        assert item.weights is not None
        self.item, self.case, self.options, self.dropouts = item, item.case, options, dropouts
        self.torch = read(item.weights)
        self.names: dict[str, Any] = {}
        self.layers: Any = None
        self.supplier = Supplier(options.seed)
        self.model: Any = None
        self.orders: Orders = {}
        self.weights: dict[str, Any] = {}
        self.loaded = True

    def steps(self) -> Iterator[tuple[str, Callable[[], Result]]]:
        yield "load", self.load
        yield "build", self.build
        if self.item.trace:
            yield f"trace {self.item.trace}", lambda: self.trace(self.item.trace)
            return
        ways = [("eager", False)] * self.options.eager + [("jit", True)] * self.options.jit
        for mode in ("eval", "train"):
            if mode == "train" and self._wanted("dropout"):
                yield "dropout", self.dropout
            for kind, run in (("forward", self.forward), ("gradient", self.gradient)):
                for way, jitted in ways if self._wanted(f"{kind} {mode}") else ():
                    yield f"{kind} {mode} {way}", lambda r=run, m=mode, j=jitted: r(m, j)  # type: ignore[misc]
        for way, jitted in ways if self._wanted("behaviour") else ():
            yield f"behaviour {way}", lambda j=jitted: self.behaviour(j)  # type: ignore[misc]

    def _wanted(self, step: str) -> bool:
        """Whether the original took a step, so that there is something to compare with."""
        there = step in self.torch.steps and not self.torch.get(step).error and "nothing" not in self._facts(step)
        return there and self.loaded

    def _facts(self, step: str) -> dict[str, Any]:
        return self.torch.get(step).facts

    def load(self) -> Result:
        if self.options.device == "gpu" and jax.default_backend() == "cpu":
            raise RuntimeError(f"no GPU here: JAX sees only {jax.devices()[0]}; run without --device gpu")
        _configure("jax_enable_x64", any(s.dtype == "f64" for _, s in specs(self.case)))
        layer_file = self.item.file.parent / "nnx_layers.py"
        if layer_file.is_file() and layer_file != self.item.file:
            self.dropouts.wrap(load(layer_file))
        self.names = namespace(load(self.item.file))
        self.layers = layer_module(self.item.file.parent)
        versions = {m.__name__: m.__version__ for m in (jax, flax, optax)}
        x64 = jax.dtypes.canonicalize_dtype(np.float64) == np.float64
        return {}, {"versions": versions, "device": str(jax.devices()[0]), "x64": bool(x64)}

    def build(self) -> Result:
        """Build the module and take its interface down; raise where the weights cannot be carried over."""
        if self.case.build is None:
            if not callable(self.supplier.evaluate(self.case.target, self.names)):
                raise TypeError(f"{self.case.target} is not callable")
            return {}, {"module": False}
        self.model = self._built()
        named = variables(self.model, self.layers)
        self.orders = torch_orders(self.model, self.layers)
        facts = {
            "module": True,
            "parameters": [n for n, v in named if isinstance(v, nnx.Param)],
            "state": {n: self._shape(n, v) for n, v in named if not temporary(v)},
            "temporary": {n: list(v.shape) for n, v in named if temporary(v)},
            "dtypes": {n: str(v.dtype) for n, v in named},
            "layers": None if self.layers is None else self.layers.__name__,
        }
        step = self.torch.get("build")
        self.weights = {n.removeprefix("sd."): a for n, a in step.arrays.items()}
        try:
            load_weights(self.model, self.weights, self.layers)
        except (KeyError, ValueError) as error:
            facts["weights"] = " ".join(f"{type(error).__name__}: {error}".split())
            self.loaded = False
        return {}, facts

    def _shape(self, name: str, variable: Any) -> list[int]:
        return [variable.shape[i] for i in self.orders.get(name, range(variable.ndim))]

    def _built(self) -> Any:
        np.random.seed(self.options.seed)
        random.seed(self.options.seed)
        self.supplier = Supplier(self.options.seed)
        model = self.supplier.evaluate(self.case.build or "", self.names)
        if not isinstance(model, nnx.Module):
            raise TypeError(f"{self.case.build} gives {type(model).__name__}, not a flax.nnx.Module")
        return model

    def _fresh(self, mode: str, dropout: bool = False) -> Any:
        """A new module with the original's weights (a copy would lose the order of its attributes)."""
        if self.case.build is None:
            return None
        model = self._built()
        load_weights(model, self.weights, self.layers)
        model.train() if mode == "train" else model.eval()
        self.dropouts.off = not dropout
        if not dropout:
            self.dropouts.silence(model)
        return model

    def _inputs(self) -> dict[str, Any]:
        arrays = self.torch.get("load").arrays
        return {n: jnp.asarray(arrays[f"in.{n}"], _DTYPES.get(s.dtype)) for n, s in specs(self.case)}

    def _call(self, model: Any, inputs: dict[str, Any]) -> Any:
        args, kwargs = fill(self.case, lambda name, _: inputs[name])
        if model is None:
            return self.supplier.call(self.supplier.evaluate(self.case.target, self.names), *args, **kwargs)
        return self.supplier.call(getattr(model, self.case.target) if self.case.target else model, *args, **kwargs)

    def _run(self, model: Any, jitted: bool) -> Result:
        """Arrays and facts of one forward call; under jit the values that are not arrays are kept at tracing."""
        if not jitted:
            return outputs(self._call(model, self._inputs()))
        kept: list[Any] = []

        def function(model: Any, inputs: dict[str, Any]) -> dict[str, Any]:
            arrays, others = static(self._call(model, inputs))
            kept[:] = [others]
            return arrays

        arrays = nnx.jit(function)(model, self._inputs())
        return outputs({**kept[0], **arrays}, order=list(kept[0]))

    def dropout(self) -> Result:
        """Whether train mode draws random numbers as the program stands, and the drop rates that it used."""
        self.dropouts.rates.clear()
        model = self._fresh("train", dropout=True)
        first = self._run(model, False)[0]
        parts = [m for _, m in nnx.iter_modules(model)] if model is not None else []
        differs = any(changed(first, self._run(model, False)[0]) for _ in range(attempts(parts)))
        return {}, {"random": differs, "rates": sorted(self.dropouts.rates)}

    def forward(self, mode: str, jitted: bool) -> Result:
        model = self._fresh(mode)
        named = variables(model, self.layers) if model is not None else []
        arrays, facts = self._run(model, jitted)
        for name, variable in named:
            value = as_torch(name, to_numpy(variable[...]), self.orders)
            if not isinstance(variable, nnx.Param) or not _same(value, self.weights.get(name)):
                arrays[f"state.{name}"] = value
        if self._facts(f"forward {mode}")["random"] and not jitted:
            facts["random"] = changed(arrays, self._run(model, False)[0])
        return arrays, facts

    def gradient(self, mode: str, jitted: bool) -> Result:
        model = self._fresh(mode)
        inputs = self._inputs()
        floating = {n: v for n, v in inputs.items() if jnp.issubdtype(v.dtype, jnp.floating)}

        def loss(model: Any, floating: dict[str, Any]) -> Any:
            return scalar_loss(self._call(model, {**inputs, **floating}), None, mean=False)

        if model is None:
            function: Any = jax.grad(lambda f: loss(None, f))
            found = (jax.jit(function) if jitted else function)(floating)
            return {f"in.{n}": to_numpy(g) for n, g in found.items()}, {}
        paths = paths_of_parameters(model, variables(model, self.layers))
        function = nnx.grad(loss, argnums=(0, 1))
        grads, found = (nnx.jit(function) if jitted else function)(model, floating)
        arrays = {f"in.{n}": to_numpy(g) for n, g in found.items()}
        known = set(self._facts("build")["parameters"])
        for path, grad in nnx.to_flat_state(grads):
            names = paths[tuple(map(str, path))]
            name = next((n for n in names if n in known), names[0])
            arrays[f"grad.{name}"] = as_torch(name, to_numpy(grad[...]), self.orders)
        return arrays, {}

    def behaviour(self, jitted: bool) -> Result:
        """The optimizer steps of the original; what it has frozen is left out of the optimizer here too."""
        model = self._fresh("train")
        named = variables(model, self.layers)
        frozen = set(self._facts("build")["frozen"])
        paths = paths_of_parameters(model, named)
        held = {path for path, names in paths.items() if frozen & set(names)}
        trained = nnx.All(nnx.Param, nnx.Not(lambda path, _: tuple(map(str, path)) in held))
        lr = self.options.lr
        kinds = {"sgd": optax.sgd, "adam": optax.adam, "adamw": lambda r: optax.adamw(r, weight_decay=1e-2)}
        optimizer = nnx.Optimizer(model, kinds[self.options.optimizer](lr), wrt=trained)

        def step(model: Any, optimizer: Any, inputs: dict[str, Any]) -> Any:
            def loss(model: Any) -> Any:
                return scalar_loss(self._call(model, inputs), self.case.loss, mean=True)

            value, grads = nnx.value_and_grad(loss, argnums=nnx.DiffState(0, trained))(model)
            optimizer.update(model, grads)
            return value

        run = nnx.jit(step) if jitted else step
        losses = [float(run(model, optimizer, self._inputs())) for _ in range(self.options.steps)]
        values = state_arrays(named, self.orders)
        arrays = {f"param.{n}": values[n] for n, v in named if isinstance(v, nnx.Param)}
        arrays |= {f"buffer.{n}": values[n] for n, v in named if not isinstance(v, nnx.Param)}
        return arrays | {"losses": np.asarray(losses)}, {}

    def trace(self, mode: str) -> Result:
        model = self._fresh(mode)
        return traced(model, lambda: self._call(model, self._inputs()))


def _same(now: Any, before: Any) -> bool:
    return before is not None and np.array_equal(now, before, equal_nan=True)
