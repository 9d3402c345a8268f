"""`same(theirs, ours, *inputs, **options)`: torch and the layer library give the same numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

from jaxmigrate.layers.library.base import load_state_dict, named_variables

jax.config.update("jax_disable_most_optimizations", True)  # these programs run once: compiling is all the time
torch.set_num_threads(1)

TOLERANCE = 2e-5


def leaves(value: Any) -> Iterator[Any]:
    """The arrays in nested tuples and lists, without None."""
    if isinstance(value, tuple | list):
        for item in value:
            yield from leaves(item)
    elif value is not None:
        yield value


def convert(value: Any, make: Callable[[np.ndarray], Any]) -> Any:
    """`make` on every array in nested tuples, lists and dicts; everything else as it is."""
    if isinstance(value, tuple | list):
        return type(value)(convert(v, make) for v in value)
    if isinstance(value, dict):
        return {k: convert(v, make) for k, v in value.items()}
    return make(value) if isinstance(value, np.ndarray) else value


def error(want: Any, got: Any) -> float:
    """Largest difference, relative to the largest value if that is above 1; infinite where shape, NaN or inf differ."""
    want, got = np.asarray(want, np.float64), np.asarray(got, np.float64)
    if want.shape != got.shape or not np.array_equal(np.isnan(want), np.isnan(got)):
        return float("inf")
    finite = np.isfinite(want)
    if not np.array_equal(want[np.isinf(want)], got[np.isinf(want)]):
        return float("inf")
    if not finite.any():
        return 0.0
    return float(np.abs(want - got)[finite].max() / max(1.0, np.abs(want[finite]).max()))


def is_float(array: Any) -> bool:
    return isinstance(array, np.ndarray) and np.issubdtype(array.dtype, np.floating)


def run_theirs(f: Any, inputs: tuple, options: dict, cotangents: list[np.ndarray]) -> dict[str, Any]:
    def make(array: np.ndarray) -> torch.Tensor:
        return torch.tensor(array, requires_grad=is_float(array))

    tensors = convert(inputs, make)
    out = list(leaves(f(*tensors, **convert(options, torch.tensor))))
    result = {f"output {i}": o.detach().numpy() for i, o in enumerate(out)}
    rng = np.random.default_rng(1)
    loss = torch.zeros(())
    for o in (o for o in out if o.is_floating_point()):
        cotangents.append(rng.standard_normal(o.shape).astype(np.float32))
        if o.requires_grad:
            loss = loss + (o * torch.tensor(cotangents[-1])).sum()
    if loss.requires_grad:
        loss.backward()
        for i, t in enumerate(t for t in leaves(tensors) if isinstance(t, torch.Tensor) and t.requires_grad):
            result[f"gradient of input {i}"] = np.zeros(t.shape) if t.grad is None else t.grad.numpy()
        for name, p in f.named_parameters() if isinstance(f, torch.nn.Module) else ():
            result[f"gradient of {name}"] = np.zeros(p.shape) if p.grad is None else p.grad.numpy()
    for name, buffer in f.named_buffers() if isinstance(f, torch.nn.Module) else ():
        result[f"buffer {name}"] = buffer.numpy()
    return result


def run_ours(f: Any, inputs: tuple, options: dict, cotangents: list[np.ndarray], wanted: set[str]) -> dict[str, Any]:
    flat = list(leaves(inputs))
    places = [i for i, a in enumerate(flat) if is_float(a)]
    differentiable = [jnp.asarray(flat[i]) for i in places]
    options = convert(options, jnp.asarray)

    def loss(module: Any, arrays: list[jax.Array]) -> tuple[jax.Array, list[jax.Array]]:
        waiting = iter(arrays)
        given = convert(inputs, lambda a: next(waiting) if is_float(a) else jnp.asarray(a))
        out = list(leaves((f if module is None else module)(*given, **options)))
        floats = [o for o in out if jnp.issubdtype(o.dtype, jnp.floating)]
        return sum(((o * c).sum() for o, c in zip(floats, cotangents, strict=True)), jnp.zeros(())), out

    module = f if isinstance(f, nnx.Module) else None
    gradients: dict[str, Any] = {}
    if not any(name.startswith("gradient") for name in wanted):
        out = loss(module, differentiable)[1]
    elif module is None:
        found, out = jax.jit(jax.grad(lambda a: loss(None, a), has_aux=True))(differentiable)
        gradients = {f"gradient of input {i}": g for i, g in enumerate(found)}
    else:
        (of_module, found), out = nnx.jit(nnx.grad(loss, argnums=(0, 1), has_aux=True))(module, differentiable)
        gradients = {f"gradient of input {i}": g for i, g in enumerate(found)}
        for path, variable in nnx.to_flat_state(of_module):
            gradients["gradient of " + ".".join(map(str, path))] = variable[...]
    buffers = {
        f"buffer {name}": variable[...]
        for name, variable in (named_variables(module) if module is not None else ())
        if not isinstance(variable, nnx.Param)
    }
    return {**{f"output {i}": o for i, o in enumerate(out)}, **gradients, **buffers}


def compare(theirs: Any, ours: Any, *inputs: Any, modes: tuple[str, ...] = ("train", "eval"), **options: Any) -> None:
    """Outputs, gradients of float inputs and parameters, and buffers agree, in each mode and with the same weights.

    `inputs` and `options` are arrays or nested tuples of them; both sides are called as f(*inputs, **options).
    """
    weights = {k: v.clone() for k, v in theirs.state_dict().items()} if isinstance(theirs, torch.nn.Module) else {}
    for mode in modes if isinstance(theirs, torch.nn.Module) else ("call",):
        if isinstance(theirs, torch.nn.Module):
            theirs.load_state_dict(weights)
            theirs.zero_grad()
            getattr(theirs, mode)()
        if isinstance(ours, nnx.Module):
            load_state_dict(ours, weights)
            getattr(ours, mode)()
        cotangents: list[np.ndarray] = []
        want = run_theirs(theirs, inputs, options, cotangents)
        got = run_ours(ours, inputs, options, cotangents, set(want))
        assert want.keys() <= got.keys(), f"{mode}: missing {sorted(want.keys() - got.keys())}"
        assert sum(k.startswith("output") for k in got) == sum(k.startswith("output") for k in want)
        errors = {name: error(value, got[name]) for name, value in want.items()}
        assert not (bad := {k: e for k, e in errors.items() if not e < TOLERANCE}), f"{mode}: {bad}"


@pytest.fixture
def same() -> Callable[..., None]:
    torch.manual_seed(0)
    return compare


@pytest.fixture
def rngs() -> nnx.Rngs:
    return nnx.Rngs(0)


@pytest.fixture
def normal() -> Callable[..., np.ndarray]:
    """Standard normal float32 arrays of the given shapes."""
    rng = np.random.default_rng(0)
    return lambda *shape: rng.standard_normal(shape).astype(np.float32)
