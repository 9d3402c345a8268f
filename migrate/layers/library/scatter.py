"""Copies of a tensor in which a part is replaced: torch's scatter forms of views, and combining writes."""

import jax.numpy as jnp

from .tensor import _along, scatter_reduce


def select_scatter(input, src, dim, index):
    """A copy of the input with src in the place of input.select(dim, index)."""
    return _along(input, dim, index).set(src)


def slice_scatter(input, src, dim=0, start=None, end=None, step=1):
    """A copy of the input with src in the place of input[start:end:step] along a dimension."""
    return _along(input, dim, slice(start, end, step)).set(src)


def diagonal_scatter(input, src, offset=0, dim1=0, dim2=1):
    """A copy of the input with src on a diagonal of two of its dimensions."""
    moved = jnp.moveaxis(input, (dim1, dim2), (-2, -1))
    places = jnp.arange(src.shape[-1])
    rows, columns = places + max(-offset, 0), places + max(offset, 0)
    return jnp.moveaxis(moved.at[..., rows, columns].set(src), (-2, -1), (dim1, dim2))


def _strided(size, stride, storage_offset):
    """The places in memory of the elements of a view."""
    grid = jnp.indices(size, sparse=True) if size else ()
    return sum((g * s for g, s in zip(grid, stride, strict=True)), jnp.full(size, storage_offset or 0))


def as_strided(input, size, stride, storage_offset=0):
    """The elements at these places in the memory of a contiguous tensor."""
    return input.reshape(-1)[_strided(tuple(size), stride, storage_offset)]


def as_strided_scatter(input, src, size, stride, storage_offset=0):
    """A copy of the input with src at these places in the memory of a contiguous tensor."""
    places = _strided(tuple(size), stride, storage_offset)
    return input.reshape(-1).at[places].set(src).reshape(input.shape)


def index_reduce(input, dim, index, source, reduce, *, include_self=True):
    """As index_copy, but values for one place are combined: "prod", "mean", "amax" or "amin"."""
    if not input.ndim:
        return index_reduce(input.reshape(1), 0, index, source.reshape(1), reduce, include_self=include_self)[0]
    shape = [1] * input.ndim
    shape[dim] = -1
    places = jnp.broadcast_to(index.reshape(shape), source.shape)
    return scatter_reduce(input, dim, places, source, reduce, include_self=include_self)
