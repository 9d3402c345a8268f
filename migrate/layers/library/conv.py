"""Convolutions, channels first: input (N, C, ...) or (C, ...), weight (out, in / groups, ...)."""

import math

import jax.numpy as jnp
from flax import nnx
from jax import lax

from .linear import _array, _uniform

_PAD_MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def _tuple(value, n):
    if not isinstance(value, (tuple, list)):
        return (value,) * n
    return tuple(value) * n if len(value) == 1 else tuple(value)


def _same_or_pairs(padding, kernel_size, dilation):
    """(before, after) for each spatial dimension. An odd "same" padding has its larger half behind."""
    if padding == "valid":
        padding = 0
    if padding == "same":
        total = [d * (k - 1) for d, k in zip(dilation, kernel_size, strict=True)]
        return [(t // 2, t - t // 2) for t in total]
    return [(p, p) for p in _tuple(padding, len(kernel_size))]


def _convolve(input, weight, bias, stride, padding, dilation, groups):
    n = weight.ndim - 2
    stride, dilation = _tuple(stride, n), _tuple(dilation, n)
    batched = input.ndim == n + 2
    y = lax.conv_general_dilated(
        input if batched else input[None],
        weight,
        stride,
        _same_or_pairs(padding, weight.shape[2:], dilation),
        rhs_dilation=dilation,
        feature_group_count=groups,
    )
    if bias is not None:
        y = y + bias.reshape(-1, *(1,) * n)
    return y if batched else y[0]


def conv1d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """Convolution over one dimension."""
    return _convolve(input, weight, bias, stride, padding, dilation, groups)


def conv2d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """Convolution over two dimensions."""
    return _convolve(input, weight, bias, stride, padding, dilation, groups)


def conv3d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """Convolution over three dimensions."""
    return _convolve(input, weight, bias, stride, padding, dilation, groups)


class _Conv(nnx.Module):
    """Convolution over `ndim` dimensions."""

    ndim: int

    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        dilation=1,
        groups=1,
        bias=True,
        padding_mode="zeros",
        *,
        rngs: nnx.Rngs,
    ):
        n = self.ndim
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride, self.dilation = (_tuple(v, n) for v in (kernel_size, stride, dilation))
        self.padding = padding if isinstance(padding, str) else _tuple(padding, n)
        self.padding_mode = padding_mode
        bound = 1 / math.sqrt(in_channels // groups * math.prod(self.kernel_size))
        self.weight = nnx.Param(_uniform(rngs, (out_channels, in_channels // groups, *self.kernel_size), bound))
        self.bias = nnx.Param(_uniform(rngs, (out_channels,), bound)) if bias else None

    def __call__(self, input):
        padding = self.padding
        if self.padding_mode != "zeros":
            pairs = _same_or_pairs(padding, self.kernel_size, self.dilation)
            lead = [(0, 0)] * (input.ndim - self.ndim)
            input = jnp.pad(input, [*lead, *pairs], mode=_PAD_MODES[self.padding_mode])
            padding = 0
        bias = _array(self.bias)
        return _convolve(input, self.weight[...], bias, self.stride, padding, self.dilation, self.groups)


class Conv1d(_Conv):
    """Convolution over (N, C, L); weight (out, in / groups, k)."""

    ndim = 1


class Conv2d(_Conv):
    """Convolution over (N, C, H, W); weight (out, in / groups, kh, kw)."""

    ndim = 2


class Conv3d(_Conv):
    """Convolution over (N, C, D, H, W); weight (out, in / groups, kd, kh, kw)."""

    ndim = 3


def _convolve_transpose(input, weight, bias, stride, padding, output_padding, groups, dilation):
    """The gradient of a convolution with the same weight, which is stored as (in, out / groups, ...)."""
    n = weight.ndim - 2
    kernel_size = weight.shape[2:]
    stride, padding, output_padding, dilation = (_tuple(v, n) for v in (stride, padding, output_padding, dilation))
    batched = input.ndim == n + 2
    channels_in, channels_out = weight.shape[:2]
    kernel = weight.reshape(groups, channels_in // groups, channels_out, *kernel_size).swapaxes(1, 2)
    kernel = jnp.flip(kernel.reshape(-1, channels_in // groups, *kernel_size), range(2, n + 2))
    spans = [d * (k - 1) for d, k in zip(dilation, kernel_size, strict=True)]
    y = lax.conv_general_dilated(
        input if batched else input[None],
        kernel,
        (1,) * n,
        [(s - p, s - p + o) for s, p, o in zip(spans, padding, output_padding, strict=True)],
        lhs_dilation=stride,
        rhs_dilation=dilation,
        feature_group_count=groups,
    )
    if bias is not None:
        y = y + bias.reshape(-1, *(1,) * n)
    return y if batched else y[0]


def conv_transpose1d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    """Transposed convolution over one dimension; weight (in, out / groups, k)."""
    return _convolve_transpose(input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose2d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    """Transposed convolution over two dimensions; weight (in, out / groups, kh, kw)."""
    return _convolve_transpose(input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose3d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    """Transposed convolution over three dimensions; weight (in, out / groups, kd, kh, kw)."""
    return _convolve_transpose(input, weight, bias, stride, padding, output_padding, groups, dilation)


class _ConvTranspose(nnx.Module):
    """Transposed convolution over `ndim` dimensions."""

    ndim: int

    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        output_padding=0,
        groups=1,
        bias=True,
        dilation=1,
        *,
        rngs: nnx.Rngs,
    ):
        n = self.ndim
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride, self.dilation = (_tuple(v, n) for v in (kernel_size, stride, dilation))
        self.padding, self.output_padding = _tuple(padding, n), _tuple(output_padding, n)
        bound = 1 / math.sqrt(out_channels // groups * math.prod(self.kernel_size))
        self.weight = nnx.Param(_uniform(rngs, (in_channels, out_channels // groups, *self.kernel_size), bound))
        self.bias = nnx.Param(_uniform(rngs, (out_channels,), bound)) if bias else None

    def __call__(self, input, output_size=None):
        output_padding = self.output_padding
        if output_size is not None:
            sides = zip(
                input.shape[-self.ndim :], self.stride, self.padding, self.dilation, self.kernel_size, strict=True
            )
            least = [(i - 1) * s - 2 * p + d * (k - 1) + 1 for i, s, p, d, k in sides]
            output_padding = tuple(o - m for o, m in zip(output_size[-self.ndim :], least, strict=True))
        return _convolve_transpose(
            input,
            self.weight[...],
            _array(self.bias),
            self.stride,
            self.padding,
            output_padding,
            self.groups,
            self.dilation,
        )


class ConvTranspose1d(_ConvTranspose):
    """Transposed convolution over (N, C, L); weight (in, out / groups, k)."""

    ndim = 1


class ConvTranspose2d(_ConvTranspose):
    """Transposed convolution over (N, C, H, W); weight (in, out / groups, kh, kw)."""

    ndim = 2


class ConvTranspose3d(_ConvTranspose):
    """Transposed convolution over (N, C, D, H, W); weight (in, out / groups, kd, kh, kw)."""

    ndim = 3
