"""Normalisation, embedding and dropout layers against torch."""

from __future__ import annotations

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from flax import nnx
from torch import nn

from jaxmigrate.layers.library import dropout, embedding, norm

SHAPES = {1: (11,), 2: (6, 9), 3: (4, 6, 5)}
BATCH_NORM = [
    {},
    {"momentum": 0.3, "eps": 1e-3},
    {"affine": False},
    {"track_running_stats": False},
    {"momentum": None},
    {"bias": False},
]
INSTANCE_NORM = [{}, {"affine": True}, {"affine": True, "track_running_stats": True}]
LAYER_NORM = [{}, {"eps": 1e-6}, {"elementwise_affine": False}, {"bias": False}]


@pytest.mark.parametrize(("n", "options"), [*product(SHAPES, BATCH_NORM)], ids=str)
def test_batch_norm(same, normal, n, options):
    theirs, ours = getattr(nn, f"BatchNorm{n}d"), getattr(norm, f"BatchNorm{n}d")
    same(theirs(4, **options), ours(4, **options), normal(3, 4, *SHAPES[n]) * 3 + 5)


def test_batch_norm_of_features(same, normal):
    same(nn.BatchNorm1d(4), norm.BatchNorm1d(4), normal(6, 4))


def test_batch_norm_statistics_over_steps(normal):
    theirs, ours = nn.BatchNorm2d(3, momentum=None), norm.BatchNorm2d(3, momentum=None)
    for _ in range(4):
        x = normal(2, 3, 4, 4) + 2
        theirs(torch.tensor(x))
        ours(jnp.asarray(x))
    np.testing.assert_allclose(ours.running_mean[...], theirs.running_mean, rtol=1e-5)
    np.testing.assert_allclose(ours.running_var[...], theirs.running_var, rtol=1e-5)
    assert int(ours.num_batches_tracked[...]) == 4


def test_batch_norm_of_one_value_is_an_error():
    with pytest.raises(ValueError, match="more than one value"):
        norm.BatchNorm1d(4)(jnp.ones((1, 4)))


def test_functional_norms(same, normal):
    x, w, b = normal(3, 4, 5), normal(4), normal(4)
    mean, var = normal(4), np.abs(normal(4)) + 0.1
    same(F.batch_norm, norm.batch_norm, x, running_mean=mean, running_var=var, weight=w, bias=b)
    same(F.batch_norm, norm.batch_norm, x, None, None, w, b, True)
    same(F.instance_norm, norm.instance_norm, x, weight=w, bias=b)
    same(F.group_norm, norm.group_norm, x, 2, w, b)
    same(F.layer_norm, norm.layer_norm, x, (4, 5), normal(4, 5), normal(4, 5))
    same(F.rms_norm, norm.rms_norm, x, (5,), normal(5))


@pytest.mark.parametrize(("n", "options"), [*product(SHAPES, INSTANCE_NORM)], ids=str)
def test_instance_norm(same, normal, n, options):
    theirs, ours = getattr(nn, f"InstanceNorm{n}d"), getattr(norm, f"InstanceNorm{n}d")
    same(theirs(4, **options), ours(4, **options), normal(3, 4, *SHAPES[n]) * 3 + 5)
    same(theirs(4, **options), ours(4, **options), normal(4, *SHAPES[n]))


@pytest.mark.parametrize("options", LAYER_NORM, ids=str)
def test_layer_norm(same, normal, options):
    same(nn.LayerNorm(6, **options), norm.LayerNorm(6, **options), normal(2, 3, 6) + 4)
    same(nn.LayerNorm((3, 6), **options), norm.LayerNorm((3, 6), **options), normal(2, 3, 6) + 4)


def test_layer_norm_far_from_zero(same, normal):
    same(nn.LayerNorm(64), norm.LayerNorm(64), normal(2, 64) + 100, modes=("eval",))


def test_other_norms(same, normal):
    same(nn.RMSNorm(6), norm.RMSNorm(6), normal(2, 3, 6))
    same(nn.RMSNorm(6, eps=1e-6), norm.RMSNorm(6, eps=1e-6), normal(2, 3, 6) * 1e-3)
    same(nn.GroupNorm(2, 6), norm.GroupNorm(2, 6), normal(2, 6, 4, 5) + 4)
    same(nn.GroupNorm(3, 6, affine=False), norm.GroupNorm(3, 6, affine=False), normal(2, 6, 4))
    for size in (4, 5):
        same(nn.LocalResponseNorm(size), norm.LocalResponseNorm(size), normal(2, 8, 4, 4))


@pytest.mark.parametrize(
    "options",
    [{}, {"padding_idx": 0}, {"padding_idx": -1}, {"max_norm": 1.0}, {"scale_grad_by_freq": True, "padding_idx": 1}],
    ids=str,
)
def test_embedding(same, rngs, options):
    ids = np.random.default_rng(0).integers(0, 7, (2, 9))
    same(nn.Embedding(7, 3, **options), embedding.Embedding(7, 3, **options, rngs=rngs), ids)


def test_embedding_starts_as_in_torch(rngs):
    weight = embedding.Embedding(500, 40, padding_idx=3, rngs=rngs).weight[...]
    assert not weight[3].any()
    assert float(weight.std()) == pytest.approx(1, rel=0.02)


def test_embedding_function(same, normal):
    ids = np.array([[0, 2], [4, 2]])
    same(lambda w: F.embedding(torch.tensor(ids), w, -3), lambda w: embedding.embedding(ids, w, -3), normal(5, 3))


@pytest.mark.parametrize("mode", ["mean", "sum", "max"])
def test_embedding_bag(same, rngs, mode):
    ids = np.random.default_rng(0).integers(0, 7, (4, 5))
    for options in ({}, {"padding_idx": 2}):
        theirs = nn.EmbeddingBag(7, 3, mode=mode, **options)
        ours = embedding.EmbeddingBag(7, 3, mode=mode, **options, rngs=rngs)
        same(theirs, ours, ids)
        same(theirs, ours, ids.reshape(-1)[:9], np.array([0, 3, 3, 7]))
    if mode == "sum":
        weights = np.random.default_rng(1).random((4, 5), np.float32)
        ours = embedding.EmbeddingBag(7, 3, mode="sum", rngs=rngs)
        same(nn.EmbeddingBag(7, 3, mode="sum"), ours, ids, per_sample_weights=weights, modes=("train",))


CHANNELS = {
    "Dropout1d": (400, 5, 6),
    "Dropout2d": (40, 50, 3, 4),
    "Dropout3d": (40, 50, 2, 3, 2),
    "FeatureAlphaDropout": (40, 50, 3),
}


@pytest.mark.parametrize("name", ["Dropout", "AlphaDropout", *CHANNELS])
def test_dropout_has_torchs_distribution(rngs, name):
    shape = CHANNELS.get(name, (200, 100))
    theirs, ours = getattr(nn, name)(0.3), getattr(dropout, name)(0.3, rngs=rngs)
    want, got = theirs(torch.ones(shape)).numpy(), np.asarray(ours(jnp.ones(shape)))
    levels = np.unique(np.round(want, 5))
    np.testing.assert_allclose(np.unique(np.round(got, 5)), levels, atol=2e-5)
    assert np.isclose(got, levels[0], atol=1e-4).mean() == pytest.approx(0.3, abs=0.03)
    if name in CHANNELS:
        rest = tuple(range(2, len(shape)))
        assert (got.std(rest) < 1e-6).all()
    ours.eval()
    np.testing.assert_array_equal(ours(jnp.ones(shape)), np.ones(shape))


@pytest.mark.parametrize("shape", [(6, 40), (3, 6, 40)])
def test_dropout1d_and_2d_mask_the_channels_of_small_inputs(rngs, shape):
    for name in ("Dropout1d", "Dropout2d") if len(shape) == 3 else ("Dropout1d",):
        out = np.asarray(getattr(dropout, name)(0.5, rngs=rngs)(jnp.ones(shape)))
        assert (out.std(-1) == 0).all() and len(np.unique(out)) == 2


def test_dropout_draws_anew_and_keeps_its_rate(rngs):
    layer = dropout.Dropout(p=0.5, rngs=rngs)
    call = nnx.jit(lambda m, x: m(x))
    first, second = call(layer, jnp.ones(64)), call(layer, jnp.ones(64))
    assert layer.p == 0.5 and not np.array_equal(first, second)
    layer.p = 1.0
    assert not layer(jnp.ones(8)).any()
    with pytest.raises(ValueError, match="between 0 and 1"):
        dropout.Dropout(1.5, rngs=rngs)


def test_dropout_functions():
    key, x = jax.random.key(0), jnp.ones((50, 20, 4))
    for name in ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"):
        f = getattr(dropout, name)
        assert f(x, key, 0.5, False) is x and f(x, key, 0.0, True) is x
        assert 0.4 < np.isclose(f(x, key, 0.5, True), f(x, key, 0.5, True).min()).mean() < 0.6
