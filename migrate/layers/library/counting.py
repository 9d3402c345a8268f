"""Histograms, runs of equal values, slopes and order statistics, with torch's arguments."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from .tensor import _take


class Histogram(NamedTuple):
    """What is in each bin, and the edges of the bins."""

    hist: Any
    bin_edges: Any


class MinMax(NamedTuple):
    """The smallest and the largest value."""

    min: Any
    max: Any


def aminmax(input, *, dim=None, keepdim=False):
    """The smallest and the largest value, over everything or along a dimension."""
    axis = dim if input.ndim else None
    return MinMax(jnp.min(input, axis, keepdims=keepdim), jnp.max(input, axis, keepdims=keepdim))


def histogram(input, bins, *, range=None, weight=None, density=False):
    """How much is in each bin; `bins` is their number or their edges."""
    range = (0, 1) if range is None and not input.size else range
    return Histogram(*jnp.histogram(input, bins, range, weight, density))


def histogramdd(input, bins, *, range=None, weight=None, density=False):
    """How much is in each cell of a grid, for the points in the last dimension."""
    points = input.reshape(-1, input.shape[-1])
    range = (0, 1) * points.shape[-1] if range is None and not input.size else range
    spans = None if range is None else list(zip(range[::2], range[1::2], strict=True))
    weight = None if weight is None else weight.reshape(-1)
    hist, edges = jnp.histogramdd(points, bins, spans, weight, density)
    return Histogram(hist.astype(input.dtype), tuple(edges))


def unique_consecutive(input, return_inverse=False, return_counts=False, dim=None):
    """The input without what equals its predecessor; when asked for, which run each came from and how long runs are."""
    rows = input.reshape(-1) if dim is None else jnp.moveaxis(input, dim, 0)
    changes = (rows[1:] != rows[:-1]).any(tuple(range(1, rows.ndim)))
    new = jnp.append(True, changes) if len(rows) else jnp.zeros(0, bool)
    found = [rows[new] if dim is None else jnp.moveaxis(rows[new], 0, dim)]
    if return_inverse:
        inverse = jnp.cumsum(new) - 1
        found.append(inverse.reshape(input.shape) if dim is None else inverse)
    if return_counts:
        found.append(jnp.diff(jnp.append(jnp.flatnonzero(new), len(rows))))
    return tuple(found) if len(found) > 1 else found[0]


def nanmedian(input, dim=None, keepdim=False):
    """The lower median of what is not NaN: over everything its value, over a dimension the value and where it is."""
    if dim is None:
        middle = lax.stop_gradient(jnp.sort(input, axis=None)[jnp.maximum((~jnp.isnan(input)).sum() - 1, 0) // 2])
        equal = input == middle
        return jnp.where(equal.any(), jnp.where(equal, input, 0).sum() / jnp.maximum(equal.sum(), 1), middle)
    order = jnp.argsort(jnp.atleast_1d(input), dim)
    middle = (jnp.sum(~jnp.isnan(jnp.atleast_1d(input)), dim, keepdims=True) - 1) // 2
    return _take(input, jnp.take_along_axis(order, jnp.maximum(middle, 0), dim), dim, keepdim)


def _slope(f, spacing, dim, edge_order):
    f = jnp.moveaxis(f, dim, -1)
    step = jnp.broadcast_to(jnp.diff(spacing) if jnp.ndim(spacing) else spacing, f.shape[-1] - 1)
    slopes = jnp.diff(f) / step
    before, after = step[:-1], step[1:]
    inside = (after * slopes[..., :-1] + before * slopes[..., 1:]) / (before + after)
    first, last = slopes[..., :1], slopes[..., -1:]
    if edge_order == 2:
        first, last = 2 * first - inside[..., :1], 2 * last - inside[..., -1:]
    return jnp.moveaxis(jnp.concatenate([first, inside, last], -1), -1, dim)


def gradient(input, *, spacing=None, dim=None, edge_order=1):
    """Slopes along each dimension, by central differences; `spacing` is a step or the coordinates, one or one each."""
    dims = range(input.ndim) if dim is None else (dim,) if isinstance(dim, int) else dim
    steps = spacing if isinstance(spacing, (list, tuple)) else [1 if spacing is None else spacing] * len(dims)
    return tuple(_slope(input, s, d, edge_order) for s, d in zip(steps, dims, strict=True))
