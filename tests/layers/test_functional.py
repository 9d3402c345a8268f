"""Image, attention and tensor functions, and initialisers, against torch."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from jaxmigrate.layers.library import functional, init, tensor

IMAGES = {"linear": (2, 3, 7), "bilinear": (2, 3, 5, 6), "bicubic": (2, 3, 5, 6), "trilinear": (2, 2, 3, 4, 5)}


@pytest.mark.parametrize("mode", [*IMAGES, "nearest", "nearest-exact", "area"])
def test_interpolate(same, normal, mode):
    x = normal(*IMAGES.get(mode, (2, 3, 5, 6)))
    n = x.ndim - 2
    for size in ((8, 9, 7)[:n], (3, 4, 2)[:n], 1, 6):
        corners = [None, True, False] if mode in IMAGES else [None]
        for align_corners in corners:
            same(F.interpolate, functional.interpolate, x, size, mode=mode, align_corners=align_corners)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic", "area"])
def test_interpolate_by_a_factor(same, normal, mode):
    for factor in (2, 0.5, 1.3, (2.5, 0.7)):
        for recompute in (None, True):
            options = {"scale_factor": factor, "mode": mode, "recompute_scale_factor": recompute}
            same(F.interpolate, functional.interpolate, normal(2, 3, 5, 6), **options)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_interpolate_antialiased(same, normal, mode):
    for size in ((3, 4), (9, 8)):
        same(F.interpolate, functional.interpolate, normal(2, 3, 7, 6), size, mode=mode, antialias=True)


def test_upsample_layers(same, normal):
    x = normal(2, 3, 5, 6)
    for name, args in (("Upsample", (None, 2.0)), ("UpsamplingNearest2d", (7,)), ("UpsamplingBilinear2d", (None, 2))):
        same(getattr(nn, name)(*args), getattr(functional, name)(*args), x, modes=("train",))
    options = {"scale_factor": 2, "mode": "bilinear", "align_corners": True}
    same(nn.Upsample(**options), functional.Upsample(**options), x, modes=("train",))


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align_corners", [True, False])
def test_grid_sample(same, normal, mode, padding_mode, align_corners):
    grid = normal(2, 4, 3, 2)
    args = (mode, padding_mode, align_corners)
    if mode == "nearest":
        same(
            F.grid_sample,
            functional.grid_sample,
            normal(2, 3, 5, 6),
            mode=mode,
            grid=grid,
            padding_mode=padding_mode,
            align_corners=align_corners,
        )
    else:
        same(F.grid_sample, functional.grid_sample, normal(2, 3, 5, 6), grid, *args)
    if mode == "bilinear":
        same(F.grid_sample, functional.grid_sample, normal(2, 3, 3, 4, 5), normal(2, 2, 3, 2, 3), *args)


def test_affine_grid(same, normal):
    for align_corners in (True, False):
        same(F.affine_grid, functional.affine_grid, normal(2, 2, 3), (2, 3, 4, 5), align_corners)
        same(F.affine_grid, functional.affine_grid, normal(2, 3, 4), (2, 3, 4, 5, 6), align_corners)


def test_blocks_and_shuffles(same, normal):
    options = {"kernel_size": (3, 2), "dilation": 1, "padding": 1, "stride": 2}
    same(F.unfold, functional.unfold, normal(2, 3, 5, 6), **options)
    same(nn.Unfold(**options), functional.Unfold(**options), normal(3, 5, 6), modes=("train",))
    same(F.fold, functional.fold, normal(2, 18, 12), (5, 6), **options)
    same(nn.Fold((5, 6), **options), functional.Fold((5, 6), **options), normal(18, 12), modes=("train",))
    same(nn.PixelShuffle(2), functional.PixelShuffle(2), normal(2, 8, 3, 4), modes=("train",))
    same(nn.PixelUnshuffle(2), functional.PixelUnshuffle(2), normal(8, 6, 4), modes=("train",))
    same(nn.ChannelShuffle(3), functional.ChannelShuffle(3), normal(2, 6, 3, 4), modes=("train",))


def test_normalize_also_at_zero(same, normal):
    x = normal(3, 4)
    x[1] = 0
    same(F.normalize, functional.normalize, x)
    same(F.normalize, functional.normalize, x, p=1, dim=-1)
    same(F.normalize, functional.normalize, x, 3.0, 0, 0.5)


def test_one_hot(same):
    same(F.one_hot, functional.one_hot, np.array([[0, 3], [1, 1]]))
    same(F.one_hot, functional.one_hot, np.array([0, 3]), 6)


def test_attention(same, normal):
    q, k, v = normal(2, 4, 5, 8), normal(2, 4, 7, 8), normal(2, 4, 7, 6)
    f, g = F.scaled_dot_product_attention, functional.scaled_dot_product_attention
    same(f, g, q, k, v)
    same(f, g, q, k, v, scale=0.3, is_causal=True)
    same(f, g, q, k, v, attn_mask=normal(5, 7))
    mask = normal(2, 1, 5, 7) > 0
    mask[0, 0, 2] = False  # a row in which nothing takes part
    same(f, g, q, k, v, attn_mask=mask)
    same(f, g, q, k[:, :2], v[:, :2], enable_gqa=True)
    same(f, g, q[0, 0], k[0, 0], v[0, 0])


def test_attention_drops_weights():
    ones = jnp.ones((1, 200, 4))
    out = functional.scaled_dot_product_attention(ones, ones, ones, dropout_p=0.5, dropout_key=jax.random.key(0))
    assert 0.01 < float(out.std()) < 0.2 and abs(float(out.mean()) - 1) < 0.05


def test_absolute_clamp_std_at_kinks(same):
    x = np.array([-2, -1, 0, 0.5, 1, 2], np.float32)
    same(torch.abs, tensor.absolute, x)
    same(torch.clamp, tensor.clamp, x, -1, 1)
    same(torch.clamp, tensor.clamp, x, min=0.5)
    same(torch.clamp, tensor.clamp, x, None, 1)
    same(torch.clamp, tensor.clamp, x, 1, 0)
    same(torch.clamp, tensor.clamp, x, x[::-1].copy(), x[0] + np.ones_like(x))
    same(lambda x: torch.std(x, 0), lambda x: tensor.std(x, 0), np.ones((3, 2), np.float32))
    same(lambda x: x.std(), tensor.std, x)


@pytest.mark.parametrize("p", [0, 1, 2, 0.5, -1, -0.5, float("inf"), -float("inf")])
@pytest.mark.parametrize("dim", [None, 1, (0, 1)])
def test_norm_of_complex_numbers_and_over_zeros(p, dim):
    random = np.random.default_rng(0)
    with_zero = np.where(np.arange(12).reshape(3, 4) % 5, random.normal(size=(3, 4)), 0).astype(np.float32)
    for x in (with_zero, (with_zero + 1j * random.normal(size=(3, 4))).astype(np.complex64)):
        wanted = torch.linalg.vector_norm(torch.from_numpy(x), p, dim)
        np.testing.assert_allclose(tensor.norm(jnp.asarray(x), p, dim), wanted, rtol=1e-4)


@pytest.mark.parametrize("p", [2, 1, 3, 0.5, 0, float("inf"), -float("inf"), "fro"])
def test_norm(same, normal, p):
    x = normal(3, 4)
    same(torch.norm, tensor.norm, x, p)
    same(torch.norm, tensor.norm, x, p, 1)
    same(torch.norm, tensor.norm, x, p, (0, 1), True)
    if p in (2, 1, 3, "fro"):
        same(torch.norm, tensor.norm, np.zeros((3, 4), np.float32), p, 1)


def test_selections_along_a_dimension(same, normal):
    x = np.round(normal(4, 6))  # with ties
    for dim in (0, 1, -1):
        same(torch.max, tensor.max_with_indices, x, dim)
        same(torch.min, tensor.min_with_indices, x, dim, True)
        same(torch.cummax, tensor.cummax, x, dim)
        same(torch.cummin, tensor.cummin, x, dim)
        same(lambda *a: torch.mode(*a).values, lambda *a: tensor.mode(*a).values, x, dim)
        same(torch.sort, tensor.sort, x, dim=dim, stable=True)
    x = normal(4, 6)
    for dim in (0, 1):
        same(torch.topk, tensor.topk, x, 2, dim)
        same(torch.topk, tensor.topk, x, 2, dim, False)
        same(torch.kthvalue, tensor.kthvalue, x, 2, dim)
        same(torch.median, tensor.median, x, dim)
        same(torch.sort, tensor.sort, x, dim, True)
    same(torch.median, tensor.median, x)
    same(torch.median, tensor.median, np.array([1.0, 2, 2, 3], np.float32))
    pair = tensor.max_with_indices(jnp.asarray(x), 1)
    assert pair.values is pair[0] and pair.indices is pair[1]


def test_gather_and_scatter(same, normal):
    x, src = normal(4, 6, 3), normal(5, 6, 4)
    rng = np.random.default_rng(0)
    for dim in (0, 1, 2, -1):
        index = rng.integers(0, x.shape[dim], (3, 5, 2))
        same(torch.gather, tensor.gather, x, dim, index)
        same(torch.scatter_add, tensor.scatter_add, x, dim, index, src[:3, :5, :2].copy())
        same(torch.scatter, tensor.scatter, x, dim, index, 1.5)
        for reduce in ("sum", "prod", "mean", "amax", "amin"):
            for include_self in (True, False):
                with torch.no_grad():
                    args = torch.tensor(x), dim, torch.tensor(index), torch.tensor(src), reduce
                    want = torch.scatter_reduce(*args, include_self=include_self)
                got = (
                    tensor.scatter_reduce(x_, dim, index, src, reduce, include_self=include_self)
                    if (x_ := jnp.asarray(x)) is not None
                    else None
                )
                np.testing.assert_allclose(got, want, rtol=1e-6)
    index = np.array([[3, 0, 1], [1, 3, 0]])
    same(torch.scatter, tensor.scatter, normal(4, 5), 1, index, normal(2, 3))
    same(
        lambda x: x.gather(0, torch.tensor([[1, 0, 1]])),
        lambda x: tensor.gather(x, 0, jnp.array([[1, 0, 1]])),
        normal(3, 4),
    )


def test_index_writes(same, normal):
    index = np.array([0, 2, 2])
    for dim in (0, 1, -1):
        shape = [4, 4]
        shape[dim] = 3
        same(torch.index_add, tensor.index_add, normal(4, 4), dim, index, normal(*shape), alpha=2)
        same(torch.index_copy, tensor.index_copy, normal(4, 4), dim, np.array([0, 3, 1]), normal(*shape))
        same(torch.index_fill, tensor.index_fill, normal(4, 4), dim, index, -1.0)
    mask = normal(4) > 0
    same(torch.masked_scatter, tensor.masked_scatter, normal(3, 4), mask, normal(12))


def test_shapes(same, normal):
    x = normal(5, 6, 4)
    for size in (2, 6, [1, 3, 2]):
        same(torch.split, tensor.split, x, size, 1)
    for chunks in (1, 3, 4, 7):
        same(torch.chunk, tensor.chunk, x, chunks, -2)
    thin = normal(1, 3, 1)
    for args in ((), (0,), (1,), (-1,), ((0, 1),)):
        same(torch.squeeze, tensor.squeeze, thin, *args)
    same(lambda x: x.expand(2, -1, 5), lambda x: tensor.expand(x, 2, -1, 5), normal(3, 1))
    same(lambda x: x.expand([3, 4]), lambda x: tensor.expand(x, [3, 4]), normal(4))
    for dim in (0, 1, -1):
        same(torch.Tensor.unfold, tensor.windows, x, dim, 3, 2)
    same(torch.diag_embed, tensor.diag_embed, normal(2, 3))
    same(torch.diag_embed, tensor.diag_embed, normal(2, 3), -1, 0, 2)
    same(lambda x: torch.cartesian_prod(x, x[:2]), lambda x: tensor.cartesian_prod(x, x[:2]), normal(3))
    same(torch.combinations, tensor.combinations, normal(4))
    same(torch.combinations, tensor.combinations, normal(3), 2, True)
    rows = np.sort(normal(2, 5), -1)
    same(torch.searchsorted, tensor.searchsorted, rows, normal(2, 3), right=True)
    same(torch.searchsorted, tensor.searchsorted, rows[0], normal(2, 3))


def test_distances_also_at_zero(same, normal):
    x = normal(4, 3)
    for p in (2.0, 1.0, 3.0, float("inf")):
        same(torch.cdist, tensor.cdist, x, normal(2, 5, 3), p)
        same(F.pdist, tensor.pdist, x, p)
    same(lambda x: torch.cdist(x, x), lambda x: tensor.cdist(x, x), x)


def test_windows_and_stft(same, normal):
    for n in (1, 8):
        for periodic in (True, False):
            np.testing.assert_allclose(tensor.hann_window(n, periodic), torch.hann_window(n, periodic), atol=1e-6)
            np.testing.assert_allclose(tensor.hamming_window(n, periodic), torch.hamming_window(n, periodic), atol=1e-6)
    x, window = normal(2, 40), np.hanning(7)[:6].astype(np.float32)
    for options in ({}, {"center": False}, {"normalized": True}, {"onesided": False}, {"pad_mode": "constant"}):
        options = {"n_fft": 8, "hop_length": 4, "win_length": 6, "window": window, **options}
        same(lambda *a, **o: torch.view_as_real(torch.stft(*a, **o, return_complex=True)), _real_stft, x, **options)
    window = np.array(np.hanning(9)[:8], np.float32)
    for length in (None, 38, 44):
        same(partial(_there_and_back, torch), partial(_there_and_back, tensor), x, window, length)


def _real_stft(*args, **options):
    return tensor.stft(*args, **options, return_complex=False)


def _there_and_back(module, x, window, length):
    spectrum = module.stft(x, 8, 2, window=window, return_complex=True)
    return module.istft(spectrum, 8, 2, window=window, length=length)


SHAPES = [(60, 50), (64, 16, 3, 3)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("xavier_uniform", {"gain": 1.5}),
        ("xavier_normal", {}),
        ("kaiming_uniform", {"a": 5**0.5}),
        ("kaiming_normal", {"mode": "fan_out", "nonlinearity": "relu"}),
        ("trunc_normal", {"std": 0.02}),
        ("trunc_normal", {"mean": 1.0, "std": 2.0, "a": 0.0, "b": 2.0}),
    ],
)
def test_random_initialisers_have_torchs_distribution(name, options, shape):
    torch.manual_seed(0)
    want = getattr(nn.init, f"{name}_")(torch.empty(shape), **options).numpy()
    got = np.asarray(getattr(init, name)(jax.random.key(0), shape, **options))
    assert got.shape == shape
    spread = float(want.std())
    assert got.std() == pytest.approx(spread, rel=0.05)
    assert got.mean() == pytest.approx(float(want.mean()), abs=0.1 * spread)
    if "uniform" in name:
        assert np.abs(got).max() == pytest.approx(float(np.abs(want).max()), rel=0.01)


def test_structured_initialisers():
    for shape in ((6, 4), (4, 6), (4, 2, 3)):
        w = np.asarray(init.orthogonal(jax.random.key(0), shape, 2.0)).reshape(shape[0], -1)
        gram = w @ w.T if w.shape[0] <= w.shape[1] else w.T @ w
        np.testing.assert_allclose(gram, 4 * np.eye(len(gram)), atol=1e-5)
    w = np.asarray(init.sparse(jax.random.key(0), (10, 7), 0.25))
    assert ((w == 0).sum(0) == 3).all()
    for shape, groups in (((6, 2, 3), 3), ((4, 6, 3, 3), 1), ((4, 2, 3, 3, 3), 2)):
        np.testing.assert_array_equal(init.dirac(shape, groups), nn.init.dirac_(torch.empty(shape), groups))
    for name in ("linear", "conv2d", "sigmoid", "tanh", "relu", "leaky_relu", "selu"):
        assert init.calculate_gain(name) == pytest.approx(nn.init.calculate_gain(name))
    assert init.calculate_gain("leaky_relu", 0.2) == pytest.approx(nn.init.calculate_gain("leaky_relu", 0.2))
    with pytest.raises(ValueError, match="two dimensions"):
        init.xavier_normal(jax.random.key(0), (3,))
