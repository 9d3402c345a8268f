"""Pooling over the last dimensions of (N, C, ...) or (C, ...)."""

import math

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from .conv import _tuple


def _windows(input, n, kernel_size, stride, padding, dilation, ceil_mode):
    """Window, strides, padding and dilation over the last n dimensions, for lax.reduce_window."""
    kernel = _tuple(kernel_size, n)
    stride = kernel if stride is None or stride == () else _tuple(stride, n)
    padding, dilation = _tuple(padding, n), _tuple(dilation, n)
    pads = []
    for size, k, s, p, d in zip(input.shape[-n:], kernel, stride, padding, dilation, strict=True):
        span = size + 2 * p - d * (k - 1) - 1
        out = (-(-span // s) if ceil_mode else span // s) + 1
        if ceil_mode and (out - 1) * s >= size + p:  # a window may not start in the padding behind
            out -= 1
        pads.append((p, max((out - 1) * s + d * (k - 1) + 1 - size - p, 0)))
    lead = input.ndim - n
    ones = (1,) * lead
    return ones + kernel, ones + stride, [(0, 0)] * lead + pads, ones + dilation


def _max_pool(input, n, kernel_size, stride, padding, dilation, ceil_mode, return_indices):
    window, strides, pads, dilation = _windows(input, n, kernel_size, stride, padding, dilation, ceil_mode)
    least = -jnp.inf if jnp.issubdtype(input.dtype, jnp.floating) else jnp.iinfo(input.dtype).min
    if not return_indices and set(dilation) == {1}:  # JAX has no gradient for a dilated reduce_window
        return lax.reduce_window(input, least, lax.max, window, strides, pads)
    flat = input.reshape(*input.shape[:-n], -1)
    index = jnp.broadcast_to(jnp.arange(flat.shape[-1]).reshape(input.shape[-n:]), input.shape)

    def larger_or_first(a, b):
        take_a = (a[0] > b[0]) | ((a[0] == b[0]) & (a[1] < b[1]))
        return tuple(jnp.where(take_a, u, v) for u, v in zip(a, b, strict=True))

    start = (jnp.asarray(least, input.dtype), jnp.iinfo(index.dtype).max)
    operands = (lax.stop_gradient(input), index)
    _, index = lax.reduce_window(operands, start, larger_or_first, window, strides, pads, window_dilation=dilation)
    out = jnp.take_along_axis(flat, index.reshape(*input.shape[:-n], -1), -1).reshape(index.shape)
    return (out, index) if return_indices else out


def max_pool1d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    """Maximum over windows of (..., L); with return_indices also where it was found."""
    return _max_pool(input, 1, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool2d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    """Maximum over windows of (..., H, W); with return_indices also where in H * W it was found."""
    return _max_pool(input, 2, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool3d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    """Maximum over windows of (..., D, H, W); with return_indices also where in D * H * W it was found."""
    return _max_pool(input, 3, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


class _MaxPool(nnx.Module):
    """Maximum over windows of `ndim` dimensions."""

    ndim: int

    def __init__(
        self,
        kernel_size,
        stride=None,
        padding=0,
        dilation=1,
        return_indices=False,
        ceil_mode=False,
        *,
        rngs: nnx.Rngs | None = None,
    ):
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.dilation = padding, dilation
        self.return_indices, self.ceil_mode = return_indices, ceil_mode

    def __call__(self, input):
        geometry = self.kernel_size, self.stride, self.padding, self.dilation
        return _max_pool(input, self.ndim, *geometry, self.ceil_mode, self.return_indices)


class MaxPool1d(_MaxPool):
    """Maximum over windows of (..., L)."""

    ndim = 1


class MaxPool2d(_MaxPool):
    """Maximum over windows of (..., H, W)."""

    ndim = 2


class MaxPool3d(_MaxPool):
    """Maximum over windows of (..., D, H, W)."""

    ndim = 3


def _avg_pool(input, n, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override=None):
    window, strides, pads, _ = _windows(input, n, kernel_size, stride, padding, 1, ceil_mode)
    total = lax.reduce_window(input, 0.0, lax.add, window, strides, pads)
    if divisor_override:
        return total / divisor_override
    if all(lo == hi and (count_include_pad or lo == 0) for lo, hi in pads):
        return total / math.prod(window)
    # Count the cells of each window: the real ones and, if asked, the padding, but not what ceil_mode adds behind it.
    window, strides, pads = window[-n:], strides[-n:], pads[-n:]
    cells = jnp.ones(input.shape[-n:], input.dtype)
    if count_include_pad:
        cells = jnp.pad(cells, [(lo, lo) for lo, _ in pads], constant_values=1)
        pads = [(0, hi - lo) for lo, hi in pads]
    return total / lax.reduce_window(cells, 0.0, lax.add, window, strides, pads)


def avg_pool1d(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True):
    """Mean over windows of (..., L)."""
    return _avg_pool(input, 1, kernel_size, stride, padding, ceil_mode, count_include_pad)


def avg_pool2d(
    input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None
):
    """Mean over windows of (..., H, W)."""
    return _avg_pool(input, 2, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def avg_pool3d(
    input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None
):
    """Mean over windows of (..., D, H, W)."""
    return _avg_pool(input, 3, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


class _AvgPool(nnx.Module):
    """Mean over windows of `ndim` dimensions."""

    ndim: int

    def __init__(
        self,
        kernel_size,
        stride=None,
        padding=0,
        ceil_mode=False,
        count_include_pad=True,
        divisor_override=None,
        *,
        rngs: nnx.Rngs | None = None,
    ):
        self.kernel_size, self.stride, self.padding = kernel_size, kernel_size if stride is None else stride, padding
        self.ceil_mode, self.count_include_pad, self.divisor_override = ceil_mode, count_include_pad, divisor_override

    def __call__(self, input):
        geometry = self.kernel_size, self.stride, self.padding, self.ceil_mode
        return _avg_pool(input, self.ndim, *geometry, self.count_include_pad, self.divisor_override)


class AvgPool1d(_AvgPool):
    """Mean over windows of (..., L)."""

    ndim = 1

    def __init__(
        self,
        kernel_size,
        stride=None,
        padding=0,
        ceil_mode=False,
        count_include_pad=True,
        *,
        rngs: nnx.Rngs | None = None,
    ):
        super().__init__(kernel_size, stride, padding, ceil_mode, count_include_pad)


class AvgPool2d(_AvgPool):
    """Mean over windows of (..., H, W)."""

    ndim = 2


class AvgPool3d(_AvgPool):
    """Mean over windows of (..., D, H, W)."""

    ndim = 3


def _lp_pool(input, n, norm_type, kernel_size, stride, ceil_mode):
    count = math.prod(_tuple(kernel_size, n))
    total = _avg_pool(input**norm_type, n, kernel_size, stride, 0, ceil_mode, True) * count
    # The factor changes no value: it makes the gradient of an all-zero window NaN, which it is in torch.
    return (total * (total != 0)) ** (1 / norm_type)


def lp_pool1d(input, norm_type, kernel_size, stride=None, ceil_mode=False):
    """p-norm over windows of (..., L)."""
    return _lp_pool(input, 1, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(input, norm_type, kernel_size, stride=None, ceil_mode=False):
    """p-norm over windows of (..., H, W)."""
    return _lp_pool(input, 2, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(input, norm_type, kernel_size, stride=None, ceil_mode=False):
    """p-norm over windows of (..., D, H, W)."""
    return _lp_pool(input, 3, norm_type, kernel_size, stride, ceil_mode)


class _LPPool(nnx.Module):
    """p-norm over windows of `ndim` dimensions."""

    ndim: int

    def __init__(self, norm_type, kernel_size, stride=None, ceil_mode=False, *, rngs: nnx.Rngs | None = None):
        self.norm_type, self.kernel_size, self.stride, self.ceil_mode = norm_type, kernel_size, stride, ceil_mode

    def __call__(self, input):
        return _lp_pool(input, self.ndim, self.norm_type, self.kernel_size, self.stride, self.ceil_mode)


class LPPool1d(_LPPool):
    """p-norm over windows of (..., L)."""

    ndim = 1


class LPPool2d(_LPPool):
    """p-norm over windows of (..., H, W)."""

    ndim = 2


class LPPool3d(_LPPool):
    """p-norm over windows of (..., D, H, W)."""

    ndim = 3


def _place(values, indices, size):
    """Each row's values at their indices in a row of zeros; where two meet, both get the gradient, as in torch."""

    @jax.custom_vjp
    def place(values, indices):
        rows = jnp.arange(values.shape[0])[:, None]
        return jnp.zeros((values.shape[0], size), values.dtype).at[rows, indices].set(values)

    place.defvjp(
        lambda values, indices: (place(values, indices), indices),
        lambda indices, ct: (jnp.take_along_axis(ct, indices, 1), None),
    )
    return place(values, indices)


def _max_unpool(input, n, indices, kernel_size, stride, padding, output_size):
    kernel = _tuple(kernel_size, n)
    stride, padding = kernel if stride is None else _tuple(stride, n), _tuple(padding, n)
    sides = zip(input.shape[-n:], stride, padding, kernel, strict=True)
    least = [(i - 1) * s - 2 * p + k for i, s, p, k in sides]
    sizes = tuple(least if output_size is None else output_size[-n:])
    flat = indices.reshape(-1, math.prod(indices.shape[-n:]))
    return _place(input.reshape(flat.shape), flat, math.prod(sizes)).reshape(*input.shape[:-n], *sizes)


def max_unpool1d(input, indices, kernel_size, stride=None, padding=0, output_size=None):
    """Put each value of a max_pool1d back where it was found, zeros elsewhere."""
    return _max_unpool(input, 1, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(input, indices, kernel_size, stride=None, padding=0, output_size=None):
    """Put each value of a max_pool2d back where it was found, zeros elsewhere."""
    return _max_unpool(input, 2, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(input, indices, kernel_size, stride=None, padding=0, output_size=None):
    """Put each value of a max_pool3d back where it was found, zeros elsewhere."""
    return _max_unpool(input, 3, indices, kernel_size, stride, padding, output_size)


class _MaxUnpool(nnx.Module):
    """Puts each value of a max pool over `ndim` dimensions back where it was found."""

    ndim: int

    def __init__(self, kernel_size, stride=None, padding=0, *, rngs: nnx.Rngs | None = None):
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding

    def __call__(self, input, indices, output_size=None):
        return _max_unpool(input, self.ndim, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool1d(_MaxUnpool):
    """Undoes a MaxPool1d."""

    ndim = 1


class MaxUnpool2d(_MaxUnpool):
    """Undoes a MaxPool2d."""

    ndim = 2


class MaxUnpool3d(_MaxUnpool):
    """Undoes a MaxPool3d."""

    ndim = 3
