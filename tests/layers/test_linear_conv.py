"""Linear layers and convolutions against torch."""

from __future__ import annotations

from itertools import product

import pytest
import torch.nn.functional as F
from torch import nn

from jaxmigrate.layers.library import conv, linear

SHAPES = {1: (11,), 2: (11, 9), 3: (7, 6, 5)}
CONV = [
    {},
    {"stride": 2, "padding": 1},
    {"padding": "same", "dilation": 2},
    {"padding": "same", "kernel_size": 4},
    {"padding": "valid"},
    {"groups": 2, "bias": False, "padding": 2},
    {"padding": 1, "padding_mode": "reflect"},
    {"padding": 2, "padding_mode": "circular"},
    {"padding": 1, "padding_mode": "replicate", "stride": 2},
    {"padding": "same", "padding_mode": "reflect", "kernel_size": 4},
]
TRANSPOSE = [
    {},
    {"stride": 2, "padding": 1, "output_padding": 1},
    {"stride": 2, "groups": 2},
    {"stride": 3, "dilation": 2, "padding": 3, "output_padding": 2, "bias": False},
]


@pytest.mark.parametrize("bias", [True, False])
def test_linear(same, rngs, normal, bias):
    same(nn.Linear(5, 3, bias=bias), linear.Linear(5, 3, bias=bias, rngs=rngs), normal(2, 4, 5))
    same(nn.Linear(5, 3, bias=bias), linear.Linear(5, 3, bias=bias, rngs=rngs), normal(5))
    same(nn.Bilinear(3, 4, 5, bias), linear.Bilinear(3, 4, 5, bias, rngs=rngs), normal(2, 3), normal(2, 4))


@pytest.mark.parametrize(("n", "options"), [*product(SHAPES, CONV)], ids=str)
def test_conv(same, rngs, normal, n, options):
    options = {"kernel_size": 3, **options}
    theirs, ours = getattr(nn, f"Conv{n}d"), getattr(conv, f"Conv{n}d")
    same(theirs(4, 6, **options), ours(4, 6, **options, rngs=rngs), normal(2, 4, *SHAPES[n]), modes=("train",))


@pytest.mark.parametrize("n", SHAPES)
def test_conv_without_batch_and_with_tuples(same, rngs, normal, n):
    options = {"kernel_size": (3, 2, 1)[:n], "padding": (1, 2, 0)[:n], "stride": (2, 1, 1)[:n]}
    theirs, ours = getattr(nn, f"Conv{n}d"), getattr(conv, f"Conv{n}d")
    same(theirs(4, 6, **options), ours(4, 6, **options, rngs=rngs), normal(4, *SHAPES[n]), modes=("train",))


@pytest.mark.parametrize(("n", "options"), [*product(SHAPES, TRANSPOSE)], ids=str)
def test_conv_transpose(same, rngs, normal, n, options):
    theirs, ours = getattr(nn, f"ConvTranspose{n}d"), getattr(conv, f"ConvTranspose{n}d")
    same(theirs(4, 6, 3, **options), ours(4, 6, 3, **options, rngs=rngs), normal(2, 4, *SHAPES[n]), modes=("train",))


def test_conv_transpose_output_size_and_no_batch(same, rngs, normal):
    theirs = nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1)
    ours = conv.ConvTranspose2d(4, 6, 3, stride=2, padding=1, rngs=rngs)
    same(theirs, ours, normal(2, 4, 5, 5), output_size=[10, 10], modes=("train",))
    same(theirs, ours, normal(4, 5, 5), modes=("train",))


@pytest.mark.parametrize("n", SHAPES)
def test_functions(same, normal, n):
    x, w, b = normal(2, 4, *SHAPES[n]), normal(6, 2, *(3,) * n), normal(6)
    same(getattr(F, f"conv{n}d"), getattr(conv, f"conv{n}d"), x, w, b, stride=2, padding=1, groups=2)
    x, w = normal(2, 6, *SHAPES[n]), normal(6, 2, *(3,) * n)
    name = f"conv_transpose{n}d"
    same(getattr(F, name), getattr(conv, name), x, w, normal(4), stride=2, padding=1, output_padding=1, groups=2)
    same(F.linear, linear.linear, normal(2, 4), normal(3, 4), normal(3))
    same(F.bilinear, linear.bilinear, normal(2, 3), normal(2, 4), normal(5, 3, 4), normal(5))


@pytest.mark.parametrize("name", ["Linear", "Conv2d", "ConvTranspose2d"])
def test_initial_weights_have_torchs_distribution(rngs, name):
    args = (300, 200) if name == "Linear" else (64, 32, 3)
    ours = getattr(linear if name == "Linear" else conv, name)(*args, rngs=rngs)
    theirs = getattr(nn, name)(*args)
    for parameter in ("weight", "bias"):
        want, got = getattr(theirs, parameter).detach(), getattr(ours, parameter)[...]
        assert want.shape == got.shape
        assert float(abs(got).max()) == pytest.approx(float(want.abs().max()), rel=0.1)
        assert float(got.std()) == pytest.approx(float(want.std(unbiased=False)), rel=0.2)
