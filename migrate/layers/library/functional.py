"""Functions of torch.nn.functional on images, attention and vectors, and the layers made of them."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax

from .adaptive import _adaptive_avg_pool
from .conv import _tuple
from .dropout import dropout
from .tensor import norm


def one_hot(tensor, num_classes=-1):
    """Integer one-hot vectors; -1 takes the largest index to find their length, which jit does not allow."""
    num_classes = int(tensor.max()) + 1 if num_classes == -1 else num_classes
    return jax.nn.one_hot(tensor, num_classes, dtype=int)


def normalize(input, p=2.0, dim=1, eps=1e-12):
    """The input divided by its p-norm over a dimension, which is taken as at least eps."""
    return input / jnp.maximum(norm(input, p, dim, True), eps)


def scaled_dot_product_attention(
    query,
    key,
    value,
    attn_mask=None,
    dropout_p=0.0,
    is_causal=False,
    scale=None,
    enable_gqa=False,
    *,
    dropout_key=None,
):
    """softmax(query @ key.T * scale + mask) @ value over (..., L, E).

    A boolean mask is True where a position takes part; a float mask is added. A row in which none takes part gives 0.
    `dropout_key` is needed when dropout_p is above 0.
    """
    if enable_gqa:
        key, value = (jnp.repeat(a, query.shape[-3] // a.shape[-3], -3) for a in (key, value))
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = query @ key.swapaxes(-1, -2) * scale
    if is_causal:
        attn_mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    if attn_mask is None:
        weights = jax.nn.softmax(scores, -1)
    else:
        scores = jnp.where(attn_mask, scores, -jnp.inf) if attn_mask.dtype == bool else scores + attn_mask
        blocked = jnp.isneginf(scores).all(-1, keepdims=True)
        weights = jnp.where(blocked, 0, jax.nn.softmax(jnp.where(blocked, 0, scores), -1))
    if dropout_p > 0:
        weights = dropout(weights, dropout_key, dropout_p)
    return weights @ value


def pixel_shuffle(input, upscale_factor):
    """(..., C * r * r, H, W) to (..., C, H * r, W * r)."""
    *lead, channels, height, width = input.shape
    r = upscale_factor
    x = input.reshape(*lead, channels // r**2, r, r, height, width)
    x = jnp.moveaxis(x, (-4, -3), (-3, -1))
    return x.reshape(*lead, channels // r**2, height * r, width * r)


def pixel_unshuffle(input, downscale_factor):
    """(..., C, H * r, W * r) to (..., C * r * r, H, W)."""
    *lead, channels, height, width = input.shape
    r = downscale_factor
    x = input.reshape(*lead, channels, height // r, r, width // r, r)
    x = jnp.moveaxis(x, (-3, -1), (-4, -3))
    return x.reshape(*lead, channels * r**2, height // r, width // r)


def channel_shuffle(input, groups):
    """The channels of (N, C, ...) interleaved from that many groups."""
    x = input.reshape(input.shape[0], groups, -1, *input.shape[2:])
    return x.swapaxes(1, 2).reshape(input.shape)


class PixelShuffle(nnx.Module):
    """(..., C * r * r, H, W) to (..., C, H * r, W * r)."""

    def __init__(self, upscale_factor, *, rngs: nnx.Rngs | None = None):
        self.upscale_factor = upscale_factor

    def __call__(self, input):
        return pixel_shuffle(input, self.upscale_factor)


class PixelUnshuffle(nnx.Module):
    """(..., C, H * r, W * r) to (..., C * r * r, H, W)."""

    def __init__(self, downscale_factor, *, rngs: nnx.Rngs | None = None):
        self.downscale_factor = downscale_factor

    def __call__(self, input):
        return pixel_unshuffle(input, self.downscale_factor)


class ChannelShuffle(nnx.Module):
    """Interleaves groups of channels."""

    def __init__(self, groups, *, rngs: nnx.Rngs | None = None):
        self.groups = groups

    def __call__(self, input):
        return channel_shuffle(input, self.groups)


def unfold(input, kernel_size, dilation=1, padding=0, stride=1):
    """The blocks of (N, C, H, W) or (C, H, W) as columns: (N, C * kh * kw, blocks)."""
    kernel, dilation, padding, stride = (_tuple(v, 2) for v in (kernel_size, dilation, padding, stride))
    x = input if input.ndim == 4 else input[None]
    pads = [(p, p) for p in padding]
    patches = lax.conv_general_dilated_patches(x, kernel, stride, pads, rhs_dilation=dilation)
    columns = patches.reshape(*patches.shape[:2], math.prod(patches.shape[2:]))
    return columns if input.ndim == 4 else columns[0]


def fold(input, output_size, kernel_size, dilation=1, padding=0, stride=1):
    """The sum of the blocks in the columns of (N, C * kh * kw, blocks) or (C * kh * kw, blocks), as images."""
    columns = input if input.ndim == 3 else input[None]
    channels = columns.shape[1] // math.prod(_tuple(kernel_size, 2))
    image = jax.ShapeDtypeStruct((columns.shape[0], channels, *_tuple(output_size, 2)), columns.dtype)
    (x,) = jax.linear_transpose(lambda x: unfold(x, kernel_size, dilation, padding, stride), image)(columns)
    return x if input.ndim == 3 else x[0]


class Unfold(nnx.Module):
    """The blocks of images as columns."""

    def __init__(self, kernel_size, dilation=1, padding=0, stride=1, *, rngs: nnx.Rngs | None = None):
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def __call__(self, input):
        return unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)


class Fold(nnx.Module):
    """Images as the sum of their blocks."""

    def __init__(self, output_size, kernel_size, dilation=1, padding=0, stride=1, *, rngs: nnx.Rngs | None = None):
        self.output_size, self.kernel_size = output_size, kernel_size
        self.dilation, self.padding, self.stride = dilation, padding, stride

    def __call__(self, input):
        return fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)


def _source(out, ratio, size, align_corners):
    """Where each output position lies in an input of `size` cells, in float32 as torch computes it."""
    if align_corners:
        return np.arange(out, dtype=np.float32) * np.float32((size - 1) / max(out - 1, 1))
    return (np.arange(out, dtype=np.float32) + np.float32(0.5)) * ratio - np.float32(0.5)


def _cubic_weights(t):
    """Weights of the four cells around each position, at fraction t behind the second, for a = -0.75."""
    a = -0.75
    d = jnp.stack([t + 1, t, 1 - t, 2 - t], -1)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((d - 5) * d + 8) * d * a - 4 * a
    return jnp.where(d <= 1, near, far)


def _resample(x, axis, out, ratio, mode, align_corners):
    """Interpolate one dimension: `ratio` is the input step for one output step."""
    size = x.shape[axis]
    if mode in ("nearest", "nearest-exact"):
        half = np.float32(0.5 if mode == "nearest-exact" else 0)
        index = ((np.arange(out, dtype=np.float32) + half) * ratio).astype(int)
        return jnp.take(x, np.minimum(index, size - 1), axis)
    position = _source(out, ratio, size, align_corners)
    if mode == "bicubic":
        first = np.floor(position)
        cells, weights = first[:, None] + np.arange(-1, 3), _cubic_weights(position - first)
    else:
        position = np.maximum(position, 0)
        first = np.minimum(np.floor(position), size - 1)
        cells, weights = first[:, None] + np.arange(2), np.stack([1 - (position - first), position - first], -1)
    taken = jnp.take(x, np.clip(cells, 0, size - 1).astype(int), axis)
    return (taken * weights.reshape(weights.shape + (1,) * (x.ndim - axis - 1)).astype(x.dtype)).sum(axis + 1)


def interpolate(
    input,
    size=None,
    scale_factor=None,
    mode="nearest",
    align_corners=None,
    recompute_scale_factor=None,
    antialias=False,
):
    """Resize the dimensions behind (N, C): nearest, nearest-exact, linear, bilinear, trilinear, bicubic or area."""
    n = input.ndim - 2
    inside = input.shape[2:]
    factors = None if scale_factor is None else _tuple(scale_factor, n)
    sizes = _tuple(size, n) if factors is None else [math.floor(i * f) for i, f in zip(inside, factors, strict=True)]
    if mode == "area":
        return _adaptive_avg_pool(input, n, tuple(sizes))
    if factors is None or recompute_scale_factor:
        ratios = [np.float32(i) / np.float32(o) for i, o in zip(inside, sizes, strict=True)]
    else:
        ratios = [np.float32(1 / f) for f in factors]
    if antialias:
        if align_corners:
            raise ValueError("interpolate has no antialias=True with align_corners=True")
        method = {"bilinear": "linear", "bicubic": "cubic"}[mode]
        scale, shape = jnp.array([1 / r for r in ratios]), (*input.shape[:2], *sizes)
        return jax.image.scale_and_translate(input, shape, range(2, n + 2), scale, jnp.zeros(n), method)
    for axis, (out, ratio) in enumerate(zip(sizes, ratios, strict=True), start=2):
        input = _resample(input, axis, out, ratio, mode, align_corners)
    return input


class Upsample(nnx.Module):
    """interpolate as a layer."""

    def __init__(
        self,
        size=None,
        scale_factor=None,
        mode="nearest",
        align_corners=None,
        recompute_scale_factor=None,
        *,
        rngs: nnx.Rngs | None = None,
    ):
        self.size, self.scale_factor, self.mode = size, scale_factor, mode
        self.align_corners, self.recompute_scale_factor = align_corners, recompute_scale_factor

    def __call__(self, input):
        return interpolate(
            input, self.size, self.scale_factor, self.mode, self.align_corners, self.recompute_scale_factor
        )


class UpsamplingNearest2d(nnx.Module):
    """Nearest neighbour interpolation of (N, C, H, W)."""

    def __init__(self, size=None, scale_factor=None, *, rngs: nnx.Rngs | None = None):
        self.size, self.scale_factor = size, scale_factor

    def __call__(self, input):
        return interpolate(input, self.size, self.scale_factor)


class UpsamplingBilinear2d(nnx.Module):
    """Bilinear interpolation of (N, C, H, W) with aligned corners."""

    def __init__(self, size=None, scale_factor=None, *, rngs: nnx.Rngs | None = None):
        self.size, self.scale_factor = size, scale_factor

    def __call__(self, input):
        return interpolate(input, self.size, self.scale_factor, "bilinear", align_corners=True)


def affine_grid(theta, size, align_corners=False):
    """Sampling positions for grid_sample from matrices (N, 2, 3) or (N, 3, 4), for images of `size` (N, C, ...)."""

    def line(n):
        return jnp.linspace(-1, 1, n) if align_corners else (jnp.arange(n) * 2 + 1) / n - 1

    axes = jnp.meshgrid(*(line(n) for n in size[2:]), indexing="ij")
    base = jnp.stack([*axes[::-1], jnp.ones_like(axes[0])], -1)
    return jnp.einsum("...k,nck->n...c", base, theta)


def _reflect(x, low, high):
    """x mirrored at low and high until it lies between them."""
    if high == low:
        return jnp.zeros_like(x)
    span = high - low
    x = jnp.abs(x - low)
    turns, rest = jnp.floor(x / span), jnp.fmod(x, span)
    return jnp.where(turns % 2 == 0, rest + low, high - rest)


def _bring_inside(x, size, padding_mode, align_corners):
    if padding_mode == "reflection":
        x = _reflect(x, 0, size - 1) if align_corners else _reflect(x, -0.5, size - 0.5)
    return x if padding_mode == "zeros" else jnp.clip(x, 0, size - 1)


def _read_cells(image, cells):
    """image[c, *cells] for integer positions, and 0 outside."""
    sizes = image.shape[1:]
    inside = math.prod((c >= 0) & (c < n) for c, n in zip(cells, sizes, strict=True))
    index = tuple(jnp.clip(c, 0, n - 1).astype(int) for c, n in zip(cells, sizes, strict=True))
    return jnp.where(inside, image[(slice(None), *index)], 0)


def grid_sample(input, grid, mode="bilinear", padding_mode="zeros", align_corners=False):
    """Values of (N, C, H, W) or (N, C, D, H, W) at the positions of a grid (N, ..., 2 or 3) that spans -1 to 1."""
    sizes = input.shape[2:]

    def place(x, size):
        return (x + 1) / 2 * (size - 1) if align_corners else ((x + 1) * size - 1) / 2

    def sample(image, grid):
        at = [place(grid[..., -1 - i], n) for i, n in enumerate(sizes)]
        if mode != "bicubic":
            at = [_bring_inside(x, n, padding_mode, align_corners) for x, n in zip(at, sizes, strict=True)]
        if mode == "nearest":
            return _read_cells(image, [jnp.round(x) for x in at])
        first = [jnp.floor(x) for x in at]
        if mode == "bilinear":
            steps, weights = (0, 1), [jnp.stack([1 - (x - f), x - f], -1) for x, f in zip(at, first, strict=True)]
        else:
            steps, weights = (-1, 0, 1, 2), [_cubic_weights(x - f) for x, f in zip(at, first, strict=True)]
        total = 0
        for corner in np.ndindex(*(len(steps),) * len(sizes)):
            cells = [f + steps[i] for f, i in zip(first, corner, strict=True)]
            if mode == "bicubic":
                cells = [_bring_inside(c, n, padding_mode, align_corners) for c, n in zip(cells, sizes, strict=True)]
            weight = math.prod(w[..., i] for w, i in zip(weights, corner, strict=True))
            total = total + _read_cells(image, cells) * weight
        return total

    return jax.vmap(sample)(input, grid)
