"""Pooling to a given output size."""

import math

import jax.numpy as jnp
import numpy as np
from flax import nnx

from .conv import _tuple


def _output_sizes(input, n, output_size):
    """The sizes asked for; None keeps that of the input."""
    sizes = zip(_tuple(output_size, n), input.shape[-n:], strict=True)
    return [size if out is None else out for out, size in sizes]


def _adaptive_windows(size, out):
    """Positions (out, k) of the cells of each window, and which of them count."""
    starts = np.arange(out) * size // out
    ends = -(-(np.arange(out) + 1) * size // out)
    cells = starts[:, None] + np.arange((ends - starts).max())
    inside = cells < ends[:, None]
    return np.where(inside, cells, starts[:, None]), inside


def _adaptive_avg_pool(input, n, output_size):
    for axis, out in zip(range(-n, 0), _output_sizes(input, n, output_size), strict=True):
        axis += input.ndim
        size = input.shape[axis]
        if size % out == 0:
            input = input.reshape(*input.shape[:axis], out, size // out, *input.shape[axis + 1 :]).mean(axis + 1)
            continue
        cells, inside = _adaptive_windows(size, out)
        inside = inside.reshape(inside.shape + (1,) * (input.ndim - axis - 1))
        input = jnp.where(inside, jnp.take(input, cells, axis), 0).sum(axis + 1) / inside.sum(1)
    return input


def adaptive_avg_pool1d(input, output_size):
    """Mean over windows of (..., L), as many as output_size says."""
    return _adaptive_avg_pool(input, 1, output_size)


def adaptive_avg_pool2d(input, output_size):
    """Mean over windows of (..., H, W), as many as output_size says; None keeps a dimension."""
    return _adaptive_avg_pool(input, 2, output_size)


def adaptive_avg_pool3d(input, output_size):
    """Mean over windows of (..., D, H, W), as many as output_size says; None keeps a dimension."""
    return _adaptive_avg_pool(input, 3, output_size)


class _AdaptiveAvgPool(nnx.Module):
    """Mean over as many windows as output_size says; None keeps a dimension."""

    ndim: int

    def __init__(self, output_size, *, rngs: nnx.Rngs | None = None):
        self.output_size = output_size

    def __call__(self, input):
        return _adaptive_avg_pool(input, self.ndim, self.output_size)


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """Mean over windows of (..., L)."""

    ndim = 1


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """Mean over windows of (..., H, W)."""

    ndim = 2


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """Mean over windows of (..., D, H, W)."""

    ndim = 3


def _adaptive_max_pool(input, n, output_size, return_indices):
    """One dimension after the other, the last one first, so that ties go to the first cell, as in torch."""
    index = jnp.broadcast_to(jnp.arange(math.prod(input.shape[-n:])).reshape(input.shape[-n:]), input.shape)
    for axis, out in reversed(list(zip(range(-n, 0), _output_sizes(input, n, output_size), strict=True))):
        axis += input.ndim
        cells, _ = _adaptive_windows(input.shape[axis], out)
        values, index = jnp.take(input, cells, axis), jnp.take(index, cells, axis)
        best = jnp.argmax(values, axis + 1, keepdims=True)
        input, index = (jnp.take_along_axis(a, best, axis + 1).squeeze(axis + 1) for a in (values, index))
    return (input, index) if return_indices else input


def adaptive_max_pool1d(input, output_size, return_indices=False):
    """Maximum over windows of (..., L), as many as output_size says; with return_indices also where."""
    return _adaptive_max_pool(input, 1, output_size, return_indices)


def adaptive_max_pool2d(input, output_size, return_indices=False):
    """Maximum over windows of (..., H, W), as many as output_size says; with return_indices also where."""
    return _adaptive_max_pool(input, 2, output_size, return_indices)


def adaptive_max_pool3d(input, output_size, return_indices=False):
    """Maximum over windows of (..., D, H, W), as many as output_size says; with return_indices also where."""
    return _adaptive_max_pool(input, 3, output_size, return_indices)


class _AdaptiveMaxPool(nnx.Module):
    """Maximum over as many windows as output_size says; None keeps a dimension."""

    ndim: int

    def __init__(self, output_size, return_indices=False, *, rngs: nnx.Rngs | None = None):
        self.output_size, self.return_indices = output_size, return_indices

    def __call__(self, input):
        return _adaptive_max_pool(input, self.ndim, self.output_size, self.return_indices)


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """Maximum over windows of (..., L)."""

    ndim = 1


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """Maximum over windows of (..., H, W)."""

    ndim = 2


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """Maximum over windows of (..., D, H, W)."""

    ndim = 3
