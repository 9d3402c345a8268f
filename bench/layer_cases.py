"""What the speed table compares: each layer of the layer file, Flax's nearest one, and the same written by hand.

Sizes are those of a small network on one core. Flax's layers get their input channels last, as they want it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax import lax

Array = jax.Array
Call = Callable[..., Any]


@dataclass(frozen=True)
class Way:
    """One way to compute something. `module` holds the parameters (an nnx.Module, or a dict of arrays for code by
    hand); `call(module, *inputs)` computes; integer inputs are not differentiated."""

    module: Any
    call: Call
    inputs: tuple[Any, ...]


@dataclass(frozen=True)
class Case:
    name: str
    ours: Way
    flax: Way | None = None
    hand: Way | None = None


def normal(*shape: int, seed: int = 0) -> Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def apply(module: Any, *inputs: Any) -> Any:
    """Call a module; of a tuple of results (recurrent layers, attention) the first counts."""
    result = module(*inputs)
    return result[0] if isinstance(result, tuple) else result


def last(x: Array) -> Array:
    return jnp.moveaxis(x, 1, -1)


def cases(t: SimpleNamespace) -> Iterator[Case]:
    """All cases; `t` has the names of the layer file."""
    for group in (_linear, _convolutions, _norms, _pools, _pointwise, _sequences, _losses):
        yield from group(t)


def _linear(t: SimpleNamespace) -> Iterator[Case]:
    x, w, b = normal(64, 256), {"w": normal(256, 512), "b": normal(512)}, nnx.Rngs(0)
    yield Case(
        "Linear(256, 512)",
        Way(t.Linear(256, 512, rngs=b), apply, (x,)),
        Way(nnx.Linear(256, 512, rngs=b), apply, (x,)),
        Way(w, lambda p, x: x @ p["w"] + p["b"], (x,)),
    )
    ids = jnp.asarray(np.random.default_rng(0).integers(0, 1000, (64, 256)))
    yield Case(
        "Embedding(1000, 128)",
        Way(t.Embedding(1000, 128, rngs=b), apply, (ids,)),
        Way(nnx.Embed(1000, 128, rngs=b), apply, (ids,)),
        Way({"w": normal(1000, 128)}, lambda p, i: p["w"][i], (ids,)),
    )


_DIMENSIONS = {1: ("NCH", "OIH", "NCH"), 2: ("NCHW", "OIHW", "NCHW")}


def _conv(
    t: SimpleNamespace, label: str, x: Array, out: int, k: int, stride: int = 1, padding: int = 0, groups: int = 1
) -> Case:
    n, channels, rngs = x.ndim - 2, x.shape[1], nnx.Rngs(0)
    options = {"padding": padding, "rngs": rngs}
    pads = [(padding, padding)] * n

    def hand(p: Any, x: Array) -> Array:
        y = lax.conv_general_dilated(
            x, p["w"], (stride,) * n, pads, dimension_numbers=_DIMENSIONS[n], feature_group_count=groups
        )
        return y + p["b"].reshape(-1, *(1,) * n)

    native = nnx.Conv(channels, out, (k,) * n, stride, feature_group_count=groups, **options)
    ours = getattr(t, f"Conv{n}d")(channels, out, k, stride, groups=groups, **options)
    weights = {"w": normal(out, channels // groups, *(k,) * n), "b": normal(out)}
    return Case(label, Way(ours, apply, (x,)), Way(native, apply, (last(x),)), Way(weights, hand, (x,)))


def _convolutions(t: SimpleNamespace) -> Iterator[Case]:
    image = normal(4, 32, 32, 32)
    yield _conv(t, "Conv1d(32, 64, 5)", normal(8, 32, 128), 64, 5, padding=2)
    yield _conv(t, "Conv2d(32, 64, 3)", image, 64, 3, padding=1)
    yield _conv(t, "Conv2d(32, 64, 3, stride=2)", image, 64, 3, stride=2, padding=1)
    yield _conv(t, "Conv2d(32, 64, 1)", image, 64, 1)
    yield _conv(t, "Conv2d(32, 32, 3, groups=32)", image, 32, 3, padding=1, groups=32)
    rngs = nnx.Rngs(0)
    native = nnx.ConvTranspose(32, 32, (4, 4), 2, padding=((2, 2), (2, 2)), transpose_kernel=True, rngs=rngs)

    def hand(p: Any, x: Array) -> Array:
        w = jnp.flip(p["w"].swapaxes(0, 1), (2, 3))
        y = lax.conv_general_dilated(x, w, (1, 1), [(2, 2), (2, 2)], lhs_dilation=(2, 2))
        return y + p["b"][:, None, None]

    small = normal(4, 32, 16, 16)
    yield Case(
        "ConvTranspose2d(32, 32, 4, stride=2)",
        Way(t.ConvTranspose2d(32, 32, 4, 2, 1, rngs=rngs), apply, (small,)),
        Way(native, apply, (last(small),)),
        Way({"w": normal(32, 32, 4, 4), "b": normal(32)}, hand, (small,)),
    )


def _standard(x: Array, axes: tuple[int, ...]) -> Array:
    mean = x.mean(axes, keepdims=True)
    return (x - mean) * lax.rsqrt(jnp.square(x - mean).mean(axes, keepdims=True) + 1e-5)


def _norms(t: SimpleNamespace) -> Iterator[Case]:
    image, tokens, rngs = normal(8, 64, 32, 32), normal(16, 64, 256), nnx.Rngs(0)
    channels, features = {"w": normal(64), "b": normal(64)}, {"w": normal(256), "b": normal(256)}

    def shaped(p: Any, y: Array) -> Array:
        return y * p["w"][:, None, None] + p["b"][:, None, None]

    def by_group(x: Array) -> Array:
        return _standard(x.reshape(8, 8, -1), (2,)).reshape(x.shape)

    yield Case(
        "BatchNorm2d(64), train",
        Way(t.BatchNorm2d(64), apply, (image,)),
        Way(nnx.BatchNorm(64, use_fast_variance=False, rngs=rngs), apply, (last(image),)),
        Way(channels, lambda p, x: shaped(p, _standard(x, (0, 2, 3))), (image,)),
    )
    yield Case(
        "BatchNorm2d(64), eval",
        Way(t.eval_mode(t.BatchNorm2d(64)), apply, (image,)),
        Way(nnx.BatchNorm(64, use_running_average=True, rngs=rngs), apply, (last(image),)),
        Way(channels | {"m": normal(64), "v": jnp.ones(64)},
            lambda p, x: shaped(p, (x - p["m"][:, None, None]) * lax.rsqrt(p["v"] + 1e-5)[:, None, None]), (image,)),
    )  # fmt: skip
    yield Case(
        "InstanceNorm2d(64)",
        Way(t.InstanceNorm2d(64), apply, (image,)),
        Way(nnx.InstanceNorm(64, use_scale=False, use_bias=False, use_fast_variance=False, rngs=rngs),
            apply, (last(image),)),
        Way({}, lambda p, x: _standard(x, (2, 3)), (image,)),
    )  # fmt: skip
    yield Case(
        "GroupNorm(8, 64)",
        Way(t.GroupNorm(8, 64), apply, (image,)),
        Way(nnx.GroupNorm(64, 8, use_fast_variance=False, rngs=rngs), apply, (last(image),)),
        Way(channels, lambda p, x: shaped(p, by_group(x)), (image,)),
    )
    yield Case(
        "LayerNorm(256)",
        Way(t.LayerNorm(256), apply, (tokens,)),
        Way(nnx.LayerNorm(256, use_fast_variance=False, rngs=rngs), apply, (tokens,)),
        Way(features, lambda p, x: _standard(x, (-1,)) * p["w"] + p["b"], (tokens,)),
    )
    yield Case(
        "RMSNorm(256)",
        Way(t.RMSNorm(256), apply, (tokens,)),
        Way(nnx.RMSNorm(256, rngs=rngs), apply, (tokens,)),
        Way({"w": normal(256)},
            lambda p, x: x * lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6) * p["w"], (tokens,)),
    )  # fmt: skip


def _pools(t: SimpleNamespace) -> Iterator[Case]:
    image = normal(8, 32, 32, 32)
    tiles = lambda x: x.reshape(8, 32, 16, 2, 16, 2)  # noqa: E731
    ways: dict[str, tuple[Any, Call, Call]] = {
        "MaxPool2d(2)": (t.MaxPool2d(2), lambda m, x: nnx.max_pool(x, (2, 2), (2, 2)),
                         lambda p, x: tiles(x).max((3, 5))),
        "MaxPool2d(3, 2, 1)": (
            t.MaxPool2d(3, 2, 1), lambda m, x: nnx.max_pool(x, (3, 3), (2, 2), ((1, 1), (1, 1))),
            lambda p, x: lax.reduce_window(
                x, -jnp.inf, lax.max, (1, 1, 3, 3), (1, 1, 2, 2), ((0, 0), (0, 0), (1, 1), (1, 1))),
        ),
        "AvgPool2d(2)": (t.AvgPool2d(2), lambda m, x: nnx.avg_pool(x, (2, 2), (2, 2)),
                         lambda p, x: tiles(x).mean((3, 5))),
        "AdaptiveAvgPool2d(1)": (t.AdaptiveAvgPool2d(1), lambda m, x: x.mean((1, 2), keepdims=True),
                                 lambda p, x: x.mean((2, 3), keepdims=True)),
        "Upsample(scale_factor=2), nearest": (
            t.Upsample(scale_factor=2), lambda m, x: jax.image.resize(x, (8, 64, 64, 32), "nearest"),
            lambda p, x: x.repeat(2, 2).repeat(2, 3),
        ),
    }  # fmt: skip
    for name, (ours, flax, hand) in ways.items():
        yield Case(name, Way(ours, apply, (image,)), Way({}, flax, (last(image),)), Way({}, hand, (image,)))


def _pointwise(t: SimpleNamespace) -> Iterator[Case]:
    x, rngs = normal(64, 4096), nnx.Rngs(0)
    ways: dict[str, tuple[Any, Call, Call | None]] = {
        "ReLU()": (t.ReLU(), lambda m, x: nnx.relu(x), lambda p, x: jnp.where(x > 0, x, 0)),
        "GELU()": (t.GELU(), lambda m, x: nnx.gelu(x, approximate=False),
                   lambda p, x: 0.5 * x * (1 + lax.erf(x * 0.5**0.5))),
        "GELU(approximate='tanh')": (t.GELU("tanh"), lambda m, x: nnx.gelu(x), None),
        "SiLU()": (t.SiLU(), lambda m, x: nnx.silu(x), lambda p, x: x * jax.nn.sigmoid(x)),
        "LeakyReLU()": (t.LeakyReLU(), lambda m, x: nnx.leaky_relu(x), None),
        "ELU()": (t.ELU(), lambda m, x: nnx.elu(x), None),
        "Hardswish()": (t.Hardswish(), lambda m, x: nnx.hard_swish(x), None),
        "Mish()": (t.Mish(), lambda m, x: jax.nn.mish(x), None),
        "Softplus()": (t.Softplus(), lambda m, x: nnx.softplus(x), None),
        "Softmax(-1)": (t.Softmax(-1), lambda m, x: nnx.softmax(x), None),
    }  # fmt: skip
    for name, (ours, flax, hand) in ways.items():
        yield Case(name, Way(ours, apply, (x,)), Way({}, flax, (x,)), Way({}, hand, (x,)) if hand else None)
    yield Case("PReLU()", Way(t.PReLU(), apply, (x,)), Way(nnx.PReLU(), apply, (x,)))
    key = jax.random.key(0)

    def dropped(p: Any, x: Array) -> Array:
        return jnp.where(jax.random.bernoulli(key, 0.9, x.shape), x / 0.9, 0)

    yield Case(
        "Dropout(0.1), train",
        Way(t.Dropout(0.1, rngs=rngs), apply, (x,)),
        Way(nnx.Dropout(0.1, rngs=rngs), apply, (x,)),
        Way({}, dropped, (x,)),
    )


def _sequences(t: SimpleNamespace) -> Iterator[Case]:
    x, rngs = normal(8, 64, 128), nnx.Rngs(0)
    attention = nnx.MultiHeadAttention(8, 128, 128, decode=False, rngs=rngs)

    def attend(p: Any, x: Array) -> Array:
        q, k, v = jnp.split((x @ p["qkv"] + p["b"]).reshape(8, 64, 24, 16), 3, axis=2)
        weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) / 4, -1)
        return jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(8, 64, 128) @ p["out"] + p["c"]

    weights = {"qkv": normal(128, 384) / 11, "b": normal(384), "out": normal(128, 128) / 11, "c": normal(128)}
    ours = t.eval_mode(t.MultiheadAttention(128, 8, batch_first=True, rngs=rngs))
    yield Case(
        "MultiheadAttention(128, 8)",
        Way(ours, lambda m, x: m(x, x, x, need_weights=False)[0], (x,)),
        Way(attention, lambda m, x: m(x, deterministic=True), (x,)),
        Way(weights, attend, (x,)),
    )
    q = normal(8, 8, 64, 16)
    yield Case(
        "scaled_dot_product_attention",
        Way({}, lambda p, q: t.scaled_dot_product_attention(q, q, q), (q,)),
        Way({}, lambda p, q: jax.nn.dot_product_attention(q, q, q), (q.swapaxes(1, 2),)),
        Way({}, lambda p, q: jax.nn.softmax(q @ q.mT / 4, -1) @ q, (q,)),
    )
    cells = {"LSTM": nnx.OptimizedLSTMCell, "GRU": nnx.GRUCell, "RNN": nnx.SimpleCell}
    for name, cell in cells.items():
        layer = getattr(t, name)(128, 128, batch_first=True, rngs=rngs)
        yield Case(
            f"{name}(128, 128)",
            Way(layer, apply, (x,)),
            Way(nnx.RNN(cell(128, 128, rngs=rngs), rngs=rngs), apply, (x,)),
        )


def _losses(t: SimpleNamespace) -> Iterator[Case]:
    logits, y = normal(256, 1000), jnp.asarray(np.random.default_rng(0).integers(0, 1000, 256))
    yield Case(
        "CrossEntropyLoss()",
        Way(t.CrossEntropyLoss(), apply, (logits, y)),
        Way({}, lambda p, x, y: optax.softmax_cross_entropy_with_integer_labels(x, y).mean(), (logits, y)),
        Way({}, lambda p, x, y: -jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], 1).mean(), (logits, y)),
    )
