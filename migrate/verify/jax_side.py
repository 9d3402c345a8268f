"""The worker process of the converted program: runs it where torch cannot be imported, and records what it does."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
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

from .confine import settle  # noqa: E402
from .jax_bench import benchmark  # noqa: E402
from .jax_mapped import Mapped  # noqa: E402
from .jax_model import (  # noqa: E402
    Dropouts,
    Supplier,
    as_torch,
    layer_module,
    load_weights,
    paths_of_parameters,
    state_arrays,
    submodules,
    temporary,
    to_numpy,
    torch_orders,
    variables,
)
from .jax_program import Program, configure, wide_types  # noqa: E402
from .jax_trace import concrete, traced  # noqa: E402
from .jax_values import changed, narrow_types, outputs, scalar_loss, static  # noqa: E402
from .leaves import same_bits, specs  # noqa: E402
from .statements import Statements  # noqa: E402
from .worker import Result, attempts, perform, rates_by_path, read_job, settings  # noqa: E402

_forget_compiled: Callable[[], None] = jax.clear_caches


def work(job: Path) -> None:
    """Do every item of a job file. The programs of several items may have modules of the same names."""
    configure("jax_default_matmul_precision", "highest")
    items, options = read_job(job)
    dropouts = Dropouts()
    last = items[0].case
    for item in items:
        settle(job.parent, item.file.parent)
        if item.case != last:
            _forget_compiled()  # made for other shapes, and large
        last = item.case
        converted = Converted(item, settings(item.case, options), dropouts)
        perform(item, converted.steps())
        forget(root(item.file))


class Converted(Program):
    """What is recorded of one case of the converted program."""

    def steps(self) -> Iterator[tuple[str, Callable[[], Result]]]:
        yield "load", self.load
        yield "build", self.build
        if self.item.trace == "bench":
            yield "bench", lambda: benchmark(self, self._wanted("behaviour"))
            return
        if self.item.trace:
            yield f"trace {self.item.trace}", lambda: self.trace(self.item.trace)
            return
        ways = [("eager", False)] * self.options.eager + [("jit", True)] * self.options.jit
        for mode in ("eval", "train"):
            if mode == "train" and self._wanted("dropout"):
                yield "dropout", self.dropout
            for name in self.options.precisions:
                if self._wanted(f"{name} {mode}"):
                    yield f"{name} {mode}", lambda n=name, m=mode: self.precise(n, m)  # type: ignore[misc]
            for kind, run in (("forward", self.forward), ("gradient", self.gradient)):
                for way, jitted in ways if self._wanted(f"{kind} {mode}") else ():
                    yield f"{kind} {mode} {way}", lambda r=run, m=mode, j=jitted: r(m, j)  # type: ignore[misc]
        for way, jitted in ways if self._wanted("behaviour") else ():
            yield f"behaviour {way}", lambda j=jitted: self.behaviour(j)  # type: ignore[misc]
        if self._wanted("determinism"):
            yield "determinism", self.determinism

    def _wanted(self, step: str) -> bool:
        """Whether the original took a step, so that there is something to compare with."""
        there = step in self.torch.steps and not self.torch.get(step).error and "nothing" not in self._facts(step)
        return there and self.loaded

    def _facts(self, step: str) -> dict[str, Any]:
        return self.torch.get(step).facts

    def load(self) -> Result:
        if self.options.device == "gpu" and jax.default_backend() == "cpu":
            raise RuntimeError(f"no GPU here: JAX sees only {jax.devices()[0]}; run without --device gpu")
        configure("jax_enable_x64", any(s.dtype == "f64" for _, s in specs(self.case)))
        file, top = self.item.file.resolve(), root(self.item.file)
        for folder in (f for f in file.parents if f.is_relative_to(top)):
            layer_file = folder / "nnx_layers.py"
            if layer_file.is_file() and layer_file != file:
                self.dropouts.wrap(load(layer_file))
        self.names = namespace(load(self.item.file))
        self.layers = layer_module(top)
        versions = {m.__name__: m.__version__ for m in (jax, flax, optax)}
        return {}, {"versions": versions, "device": str(jax.devices()[0]), "x64": wide_types()}

    def build(self) -> Result:
        """Build the module and take its interface down; raise where the weights cannot be carried over."""
        if self.case.build is None:
            if not callable(self.supplier.evaluate(self.case.target, self.names)):
                raise TypeError(f"{self.case.target} is not callable")
            return {}, {"module": False}
        self.model = self.built()
        step = self.torch.get("build")
        self.weights = {n[3:]: a for n, a in step.arrays.items() if n.startswith("sd.")}
        self.temporaries = {n[4:]: a for n, a in step.arrays.items() if n.startswith("tmp.")}
        if self.options.map is not None:
            self.layers = Mapped(self.model, {**self.weights, **self.temporaries}, self.map)
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
        if isinstance(self.layers, Mapped):
            facts["mapping"] = {"names": self.layers.pairing.names, "guessed": list(self.layers.pairing.guessed)}
        try:
            load_weights(self.model, self.weights, self.layers)
        except (KeyError, ValueError) as error:
            facts["weights"] = " ".join(f"{type(error).__name__}: {error}".split())
            self.loaded = False
        return {}, facts

    def _shape(self, name: str, variable: Any) -> list[int]:
        return [variable.shape[i] for i in self.orders.get(name, range(variable.ndim))]

    def dropout(self) -> Result:
        """Whether train mode draws random numbers as the program stands, and the drop rates that it used."""
        self.dropouts.rates.clear()
        model = self.fresh("train", dropout=True)
        first = self.run(model, False)[0]
        parts = [m for _, m in nnx.iter_modules(model)] if model is not None else []
        differs = any(changed(first, self.run(model, False)[0]) for _ in range(attempts(parts)))
        places = rates_by_path(submodules(model)) if model is not None else {}
        return {}, {"random": differs, "rates": sorted(self.dropouts.rates), "places": places}

    def forward(self, mode: str, jitted: bool) -> Result:
        model = self.fresh(mode)
        arrays, facts = self.run(model, jitted)
        arrays |= self._state(model)
        if self._facts(f"forward {mode}")["random"] and not jitted:
            facts["random"] = changed(arrays, self.run(model, False)[0])
        return arrays, facts | ({"traces": self.count(), "calls": 2} if jitted else {})

    def _state(self, model: Any) -> dict[str, Any]:
        """Buffers, and parameters that a call has changed."""
        arrays = {}
        for name, variable in variables(model, self.layers) if model is not None else []:
            value = as_torch(name, to_numpy(variable[...]), self.orders)
            if not isinstance(variable, nnx.Param) or not _same(value, self.weights.get(name)):
                arrays[f"state.{name}"] = value
        return arrays

    def gradient(self, mode: str, jitted: bool) -> Result:
        return self._gradient(self.fresh(mode), jitted)[0], {}

    def _gradient(self, model: Any, jitted: bool) -> tuple[dict[str, Any], Result]:
        """Loss and gradients; and what the call returned."""
        inputs = self.inputs()
        floating = {n: v for n, v in inputs.items() if jnp.issubdtype(v.dtype, jnp.floating)}
        kept: list[Any] = []

        def loss(model: Any, floating: dict[str, Any]) -> Any:
            result = self.call(model, {**inputs, **floating})
            arrays, others = static(result)
            kept[:] = [others]
            value = scalar_loss(result, self.case.loss, mean=True)
            return scalar_loss(result, None, mean=False), (value, arrays)

        if model is None:
            function: Any = jax.grad(lambda f: loss(None, f), has_aux=True)
            found, (value, results) = (jax.jit(function) if jitted else function)(floating)
            grads = {}
        else:
            paths = paths_of_parameters(model, variables(model, self.layers))
            function = nnx.grad(loss, argnums=(0, 1), has_aux=True)
            (state, found), (value, results) = (nnx.jit(function) if jitted else function)(model, floating)
            grads = self._named_gradients(state, paths)
        given = {f"in.{n}": as_torch(n, to_numpy(g), self.back) for n, g in found.items()}
        arrays = {**grads, **given, "loss": to_numpy(value)}
        return arrays, outputs({**kept[0], **results}, order=list(kept[0]))

    def _named_gradients(self, state: Any, paths: dict[tuple[str, ...], list[str]]) -> dict[str, Any]:
        known, arrays = set(self._facts("build")["parameters"]), {}
        for path, grad in nnx.to_flat_state(state):
            names = paths[tuple(map(str, path))]
            name = next((n for n in names if n in known), names[0])
            arrays[f"grad.{name}"] = as_torch(name, to_numpy(grad[...]), self.orders)
        return arrays

    def behaviour(self, jitted: bool) -> Result:
        """The optimizer steps of the original; what it has frozen is left out of the optimizer here too."""
        model = self.fresh("train")
        named = variables(model, self.layers)
        frozen = set(self._facts("build")["frozen"])
        paths = paths_of_parameters(model, named)
        held = {path for path, names in paths.items() if frozen & set(names)}
        trained = nnx.All(nnx.Param, nnx.Not(lambda path, _: tuple(map(str, path)) in held))
        lr = self.options.lr
        kinds = {"sgd": optax.sgd, "adam": optax.adam, "adamw": partial(optax.adamw, weight_decay=1e-2)}
        rule = optax.inject_hyperparams(kinds[self.options.optimizer])(lr)
        optimizer = nnx.Optimizer(model, rule, wrt=trained)
        traces: list[int] = []

        def step(model: Any, optimizer: Any, inputs: dict[str, Any]) -> Any:
            traces.append(1)

            def loss(model: Any) -> Any:
                return scalar_loss(self.call(model, inputs), self.case.loss, mean=True)

            value, grads = nnx.value_and_grad(loss, argnums=nnx.DiffState(0, trained))(model)
            optimizer.update(model, grads)
            return value

        run = nnx.jit(step) if jitted else step
        losses, rates = [], []
        for _ in range(self.options.steps):
            losses.append(float(run(model, optimizer, self.inputs())))
            rates.append(float(optimizer.opt_state.hyperparams["learning_rate"][...]))
        values = state_arrays(named, self.orders)
        arrays = {f"param.{n}": values[n] for n, v in named if isinstance(v, nnx.Param)}
        arrays |= {f"buffer.{n}": values[n] for n, v in named if not isinstance(v, nnx.Param)}
        arrays |= {"losses": np.asarray(losses), "rates": np.asarray(rates)}
        return arrays, {"traces": len(traces), "calls": self.options.steps} if jitted else {}

    def precise(self, name: str, mode: str) -> Result:
        """Outputs, buffers and gradients in another precision, and whether narrower numbers came up on the way."""
        with self.precisely(name):
            try:  # eagerly each operation would be compiled anew for this type
                arrays, facts = self._whole(mode, True)
            except Exception:  # shapes or control flow that depend on values
                arrays, facts = self._whole(mode, False)
            made = self.made_narrow
            narrow = [*made, *self._narrow(mode)] if name == "float64" else []
        return arrays, {**facts, "narrow": narrow}

    def _whole(self, mode: str, jitted: bool) -> Result:
        if not self._wanted(f"gradient {mode}"):
            return self.forward(mode, jitted)
        model = self.fresh(mode)
        gradients, (arrays, facts) = self._gradient(model, jitted)
        return {**arrays, **gradients, **self._state(model)}, facts

    def _narrow(self, mode: str) -> list[str]:
        """The floating types narrower than float64 in the program as JAX traces it; "unknown" when it cannot be."""
        model = self.fresh(mode)
        definition, state = nnx.split(model) if model is not None else (None, None)

        def function(state: Any, inputs: dict[str, Any]) -> Any:
            return static(self.call(None if definition is None else nnx.merge(definition, state), inputs))[0]

        try:
            return narrow_types(jax.make_jaxpr(function)(state, self.inputs()))
        except Exception:  # shapes or control flow that depend on values
            return ["unknown"]

    def determinism(self) -> Result:
        """Whether a run with the same seed gives the same again, drop rates as they are."""
        mode = "train" if self.case.build is not None else "eval"
        runs = []
        for _ in range(2):
            self.supplier = Supplier(self.options.seed)
            runs.append(self.run(self.fresh(mode, dropout=True), False)[0])
        return {}, {"changed": changed(*runs), "same bits": same_bits(*runs)}

    def trace(self, wanted: str) -> Result:
        """As the trace of the original."""
        mode, _, precision = wanted.partition(" ")
        statements = Statements(root(self.item.file), concrete, lambda _: 0)

        def run() -> None:
            given = self.inputs()
            with statements:
                self.call(model, given)

        with self.precisely(precision) if precision else nullcontext():
            model = self.fresh(mode)
            arrays: dict[str, Any] = {}
            facts: dict[str, Any] = {"calls": []}
            if model is None:
                run()
            else:
                arrays, facts = traced(model, run)
        more, about = statements.result
        return {**arrays, **more}, {**facts, **about}


def _same(now: Any, before: Any) -> bool:
    return before is not None and np.array_equal(now, before, equal_nan=True)
