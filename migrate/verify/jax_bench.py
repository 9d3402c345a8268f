"""Time per step of the converted program: eager and under jit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from .bench import Turns, Way, measure
from .jax_program import Program
from .jax_values import static
from .leaves import flatten
from .loading import explain
from .worker import Result

_wait: Callable[[Any], Any] = jax.block_until_ready
FORWARD, TRAINING = "forward", "training step"


def benchmark(program: Program, trains: bool) -> Result:
    """The facts of a measurement. `trains`: the original has something to train."""
    own = program.item.out.parent
    turns = Turns(own, own.parent / "torch", program.item.out.name, False)
    ways = []
    for way, jit in (("JAX eager", _plain), ("JAX jit", nnx.jit)):
        ways.append(Way(FORWARD, way, _forward(program, jit)))
        if trains:
            ways.append(Way(TRAINING, way, _training(program, jit)))
    device = jax.devices()[0]
    peak = None if device.platform == "cpu" else lambda: int((device.memory_stats() or {})["peak_bytes_in_use"])
    facts = measure(ways, turns, lambda error: explain(error, program.item.file.parent), peak)
    return {}, {**facts, "device": str(device)}


def _plain(function: Any) -> Any:
    return function


def _forward(program: Program, jit: Callable[[Any], Any]) -> Callable[[], None]:
    model, inputs = program.fresh("eval", dropout=True), program.inputs()
    run = jit(lambda model, inputs: static(program.call(model, inputs))[0])

    def step() -> None:
        _wait(run(model, inputs))

    return step


def _training(program: Program, jit: Callable[[Any], Any]) -> Callable[[], None]:
    """Forward, backward and an update by SGD; what the original has frozen is trained too, which costs little."""
    model, inputs = program.fresh("train", dropout=True), program.inputs()
    optimizer = nnx.Optimizer(model, optax.sgd(1e-4), wrt=nnx.Param)

    def update(model: Any, optimizer: Any, inputs: dict[str, Any]) -> Any:
        value, grads = nnx.value_and_grad(lambda m: _loss(program, program.call(m, inputs)))(model)
        optimizer.update(model, grads)
        return value

    run = jit(update)

    def step() -> None:
        value = run(model, optimizer, inputs)
        _wait((value, nnx.state(model, nnx.Param)))

    return step


def _loss(program: Program, result: Any) -> Any:
    """As `torch_bench.loss_of`."""
    return sum(
        (leaf.sum() if name == program.case.loss else leaf.mean()).astype(jnp.float32)
        for name, leaf in flatten(result)
        if isinstance(leaf, jax.Array)
        and jnp.issubdtype(leaf.dtype, jnp.floating)
        and program.case.loss in (None, name)
    )
