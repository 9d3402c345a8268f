"""Padding of the last dimensions."""

import jax.numpy as jnp
from flax import nnx
from jax import lax

from .conv import _PAD_MODES


def _cropped(input, pairs):
    """The input without what negative padding takes away."""
    return input[tuple(slice(max(-lo, 0), n - max(-hi, 0)) for (lo, hi), n in zip(pairs, input.shape, strict=True))]


def pad(input, pad, mode="constant", value=None):
    """Pad (or crop, where negative) from the last dimension backwards: pad = (left, right, top, bottom, ...)."""
    pairs = list(zip(pad[::2], pad[1::2], strict=True))[::-1]
    pairs = [(0, 0)] * (input.ndim - len(pairs)) + pairs
    grown = [(max(lo, 0), max(hi, 0)) for lo, hi in pairs]
    if mode == "circular":  # what is left goes round; the other modes repeat what is taken away, too
        return jnp.pad(_cropped(input, pairs), grown, mode="wrap")
    if mode != "constant":
        return _cropped(jnp.pad(input, grown, mode=_PAD_MODES[mode]), pairs)
    fill = jnp.asarray(0 if value is None else value, input.dtype)
    return lax.pad(input, fill, [(lo, hi, 0) for lo, hi in pairs])


class _Pad(nnx.Module):
    """Padding of the last `ndim` dimensions; one number is used on every side."""

    ndim: int
    mode = "constant"

    def __init__(self, padding, *, rngs: nnx.Rngs | None = None):
        self.padding = (padding,) * (2 * self.ndim) if isinstance(padding, int) else tuple(padding)

    def __call__(self, input):
        return pad(input, self.padding, self.mode)


class _ConstantPad(_Pad):
    """Padding with a value."""

    def __init__(self, padding, value, *, rngs: nnx.Rngs | None = None):
        super().__init__(padding)
        self.value = value

    def __call__(self, input):
        return pad(input, self.padding, value=self.value)


class ConstantPad1d(_ConstantPad):
    """Pads (..., L) with a value."""

    ndim = 1


class ConstantPad2d(_ConstantPad):
    """Pads (..., H, W) with a value."""

    ndim = 2


class ConstantPad3d(_ConstantPad):
    """Pads (..., D, H, W) with a value."""

    ndim = 3


class ZeroPad1d(_Pad):
    """Pads (..., L) with zeros."""

    ndim = 1


class ZeroPad2d(_Pad):
    """Pads (..., H, W) with zeros."""

    ndim = 2


class ZeroPad3d(_Pad):
    """Pads (..., D, H, W) with zeros."""

    ndim = 3


class ReflectionPad1d(_Pad):
    """Pads (..., L) with its mirror image, the edge not repeated."""

    ndim = 1
    mode = "reflect"


class ReflectionPad2d(_Pad):
    """Pads (..., H, W) with its mirror image, the edge not repeated."""

    ndim = 2
    mode = "reflect"


class ReflectionPad3d(_Pad):
    """Pads (..., D, H, W) with its mirror image, the edge not repeated."""

    ndim = 3
    mode = "reflect"


class ReplicationPad1d(_Pad):
    """Pads (..., L) with its edge values."""

    ndim = 1
    mode = "replicate"


class ReplicationPad2d(_Pad):
    """Pads (..., H, W) with its edge values."""

    ndim = 2
    mode = "replicate"


class ReplicationPad3d(_Pad):
    """Pads (..., D, H, W) with its edge values."""

    ndim = 3
    mode = "replicate"


class CircularPad1d(_Pad):
    """Pads (..., L) with values from the other end."""

    ndim = 1
    mode = "circular"


class CircularPad2d(_Pad):
    """Pads (..., H, W) with values from the other end."""

    ndim = 2
    mode = "circular"


class CircularPad3d(_Pad):
    """Pads (..., D, H, W) with values from the other end."""

    ndim = 3
    mode = "circular"
