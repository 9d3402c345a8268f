"""Activations, padding and pooling against torch."""

from __future__ import annotations

from itertools import product

import jax
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from flax import nnx
from torch import nn

from jaxmigrate.layers.library import activation, adaptive, fractional, padding, pooling

SHAPES = {1: (11,), 2: (11, 8), 3: (7, 6, 5)}
# Kinks of all the functions, and values around them.
KINKS = np.array([-4, -3, -2, -1, -0.5, -0.2, 0, 0.1, 0.5, 1, 2, 3, 6, 7, 25], np.float32)
PLAIN = [
    "ReLU",
    "ReLU6",
    "Sigmoid",
    "Tanh",
    "SiLU",
    "Mish",
    "SELU",
    "Hardswish",
    "Hardsigmoid",
    "LogSigmoid",
    "Softsign",
    "Tanhshrink",
    "GELU",
    "LeakyReLU",
    "ELU",
    "CELU",
    "Hardtanh",
    "Hardshrink",
    "Softshrink",
    "Softplus",
    "Softmax",
    "LogSoftmax",
    "Softmin",
]
OPTIONS = [
    ("GELU", {"approximate": "tanh"}),
    ("LeakyReLU", {"negative_slope": 0.2}),
    ("ELU", {"alpha": 2.0}),
    ("CELU", {"alpha": 0.5}),
    ("Hardtanh", {"min_val": -2.0, "max_val": 3.0}),
    ("Hardshrink", {"lambd": 1.0}),
    ("Softshrink", {"lambd": 1.0}),
    ("Threshold", {"threshold": 0.1, "value": 20.0}),
    ("Softplus", {"beta": 2.0, "threshold": 6.0}),
]
POOL = [
    {"kernel_size": 2},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": 3, "stride": 2, "ceil_mode": True},
    {"kernel_size": 2, "stride": 3, "padding": 1, "ceil_mode": True},
]
MAX_POOL = [
    *POOL,
    {"kernel_size": 2, "dilation": 2, "stride": 1},
    {"kernel_size": 3, "stride": 2, "padding": 1, "return_indices": True},
]
AVG_POOL = [*POOL, *({**o, "count_include_pad": False} for o in POOL[1:])]


@pytest.mark.parametrize(("name", "options"), [*((n, {}) for n in PLAIN), *OPTIONS], ids=str)
def test_activation(same, rngs, name, options):
    same(getattr(nn, name)(**options), getattr(activation, name)(**options, rngs=rngs), KINKS, modes=("train",))


@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax", "Softmin", "GLU"])
def test_activation_over_a_dimension(same, normal, name):
    same(getattr(nn, name)(dim=1), getattr(activation, name)(dim=1), normal(2, 4, 3), modes=("train",))
    if name != "GLU":
        for shape in ((3, 4), (2, 3, 4), (2, 3, 4, 5)):
            same(getattr(nn, name)(), getattr(activation, name)(), normal(*shape), modes=("train",))


def test_activation_with_channels(same, normal):
    same(nn.Softmax2d(), activation.Softmax2d(), normal(2, 3, 4, 5), modes=("train",))
    same(nn.Softmax2d(), activation.Softmax2d(), normal(3, 4, 5), modes=("train",))
    same(nn.PReLU(), activation.PReLU(), normal(2, 3, 4))
    same(nn.PReLU(), activation.PReLU(), KINKS)
    same(nn.PReLU(3), activation.PReLU(3), normal(2, 3, 4))


def test_activation_functions(same, normal):
    for name in ("leaky_relu", "hardtanh", "hardshrink", "softshrink", "tanhshrink", "softplus", "elu", "celu", "gelu"):
        same(getattr(F, name), getattr(activation, name), KINKS)
    same(F.threshold, activation.threshold, KINKS, 0.1, 20.0)
    same(F.prelu, activation.prelu, normal(2, 3, 4), normal(3))
    for name in ("softmax", "log_softmax", "softmin"):
        same(getattr(F, name), getattr(activation, name), normal(2, 3), 0)


def test_rrelu(same, rngs, normal):
    same(nn.RReLU(), activation.RReLU(rngs=rngs), KINKS, modes=("eval",))
    x = -np.ones(4000, np.float32)
    slopes = -np.asarray(activation.RReLU(0.1, 0.3, rngs=rngs)(x))
    assert slopes.min() >= 0.1 and slopes.max() <= 0.3 and abs(slopes.mean() - 0.2) < 0.01


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_pad(same, normal, mode):
    same(F.pad, padding.pad, normal(2, 3, 5, 6), (1, 2, 3, 0), mode=mode)
    same(F.pad, padding.pad, normal(2, 3, 5), [2, 1], mode=mode)


def test_pad_constant_and_crop(same, normal):
    same(F.pad, padding.pad, normal(3, 4), (1, 1), value=-1.0)
    same(F.pad, padding.pad, normal(3, 4), (-1, 1))
    same(F.pad, padding.pad, normal(3, 4), (-1, -2, 1, -1), "constant", 2.0)
    for mode in ("replicate", "reflect", "circular"):
        same(F.pad, padding.pad, normal(2, 3, 6), (-1, 2), mode)
        same(F.pad, padding.pad, normal(2, 3, 6), (2, -2), mode)
    same(F.pad, padding.pad, normal(2, 3, 4), (-4, 5), "replicate")


@pytest.mark.parametrize(
    ("n", "kind"), [*product(SHAPES, ["Constant", "Zero", "Reflection", "Replication", "Circular"])]
)
def test_padding_layers(same, normal, n, kind):
    theirs, ours = getattr(nn, f"{kind}Pad{n}d"), getattr(padding, f"{kind}Pad{n}d")
    value = (1.5,) if kind == "Constant" else ()
    x = normal(2, 3, *SHAPES[n])
    same(theirs(2, *value), ours(2, *value), x, modes=("train",))
    sides = (1, 2, 0, 1, 2, 1)[: 2 * n]
    same(theirs(sides, *value), ours(sides, *value), x, modes=("train",))


@pytest.mark.parametrize(("n", "options"), [*product(SHAPES, MAX_POOL)], ids=str)
def test_max_pool_with_ties(same, normal, n, options):
    theirs, ours = getattr(nn, f"MaxPool{n}d"), getattr(pooling, f"MaxPool{n}d")
    x = np.maximum(normal(2, 3, *SHAPES[n]), 0)
    same(theirs(**options), ours(**options), x, modes=("eval",))
    same(getattr(F, f"max_pool{n}d"), getattr(pooling, f"max_pool{n}d"), x[0], **options)


@pytest.mark.parametrize(("n", "options"), [*product(SHAPES, AVG_POOL)], ids=str)
def test_avg_pool(same, normal, n, options):
    theirs, ours = getattr(nn, f"AvgPool{n}d"), getattr(pooling, f"AvgPool{n}d")
    same(theirs(**options), ours(**options), normal(2, 3, *SHAPES[n]), modes=("eval",))
    same(getattr(F, f"avg_pool{n}d"), getattr(pooling, f"avg_pool{n}d"), normal(3, *SHAPES[n]), **options)


def test_avg_pool_divisor(same, normal):
    same(nn.AvgPool2d(2, divisor_override=3), pooling.AvgPool2d(2, divisor_override=3), normal(2, 3, 6, 6))


@pytest.mark.parametrize(("n", "size"), [*product(SHAPES, [1, 2, 3, 4, None])])
def test_adaptive_pools(same, normal, n, size):
    size = (size,) * n if size is None and n > 1 else size or SHAPES[n][0]
    theirs, ours = getattr(nn, f"AdaptiveAvgPool{n}d"), getattr(adaptive, f"AdaptiveAvgPool{n}d")
    same(theirs(size), ours(size), normal(2, 3, *SHAPES[n]), modes=("eval",))
    theirs, ours = getattr(nn, f"AdaptiveMaxPool{n}d"), getattr(adaptive, f"AdaptiveMaxPool{n}d")
    ties = np.maximum(normal(2, 3, *SHAPES[n]) - 0.5, 0)
    same(theirs(size, return_indices=True), ours(size, return_indices=True), ties, modes=("eval",))


def test_lp_pool(same, normal):
    x = np.abs(normal(2, 3, 8)) + 0.1
    same(nn.LPPool1d(3, 2), pooling.LPPool1d(3, 2), x, modes=("eval",))
    x = np.abs(normal(2, 3, 8, 7)) + 0.1
    same(nn.LPPool2d(2, 3, 2), pooling.LPPool2d(2, 3, 2), x, modes=("eval",))
    same(nn.LPPool2d(2.0, 3, ceil_mode=True), pooling.LPPool2d(2.0, 3, ceil_mode=True), x, modes=("eval",))


@pytest.mark.parametrize("n", SHAPES)
def test_max_unpool(same, normal, n):
    x = normal(2, 3, *(6, 8, 4)[:n])
    values, indices = getattr(pooling, f"max_pool{n}d")(x, 2, return_indices=True)
    values, indices = np.array(values), np.array(indices, np.int64)
    theirs, ours = getattr(nn, f"MaxUnpool{n}d")(2), getattr(pooling, f"MaxUnpool{n}d")(2)
    same(theirs, ours, values, indices, modes=("eval",))


@pytest.mark.parametrize("n", [2, 3])
def test_fractional_max_pool(same, normal, rngs, n):
    x, samples = normal(2, 3, *(9, 7, 8)[-n:]), np.random.default_rng(0).uniform(size=(2, 3, n)).astype(np.float32)
    theirs, ours = getattr(F, f"fractional_max_pool{n}d"), getattr(fractional, f"fractional_max_pool{n}d")
    for options in ({"output_size": (3, 4, 5)[-n:]}, {"output_ratio": (0.5, 0.6, 0.4)[-n:]}, {"output_size": 1}):
        options |= {"return_indices": True}
        same(
            lambda x, o=options: theirs(x, 2, **o, _random_samples=torch.from_numpy(samples)),
            lambda x, o=options: ours(x, jax.random.key(0), 2, **o, _random_samples=samples),
            x,
        )
    layer = getattr(fractional, f"FractionalMaxPool{n}d")(2, output_size=5, rngs=rngs)
    first, second = layer(x[0]), layer(x[0])
    assert first.shape == second.shape == (3, *(5,) * n) and not np.array_equal(first, second)


def test_activations_are_built_by_name(rngs):
    for name in (*PLAIN, "PReLU", "RReLU", "GLU", "Softmax2d"):
        assert isinstance(getattr(activation, name)(rngs=rngs), nnx.Module)
