"""Normalisation layers. Variances are computed in two passes, as torch does, not as E[x²] - E[x]²."""

import math

import jax.numpy as jnp
from flax import nnx
from jax import lax

from .conv import _tuple
from .linear import _array


def _normalize(x, mean, var, eps):
    return (x - mean) * lax.rsqrt(var + eps)


def _per_channel(array, ndim):
    """One value per channel, shaped to broadcast over (N, C, ...)."""
    return array.reshape((1, -1) + (1,) * (ndim - 2))


def _scale_and_shift(y, weight, bias):
    if weight is not None:
        y = y * _per_channel(weight, y.ndim)
    return y if bias is None else y + _per_channel(bias, y.ndim)


def _update_running(running, value, momentum):
    running[...] = (1 - momentum) * running[...] + momentum * lax.stop_gradient(value)


def batch_norm(input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    """Normalise each channel over the batch (training) or with the running statistics.

    In training the running statistics, if given, are updated in place and must therefore be Variables.
    """
    axes = (0, *range(2, input.ndim))
    if not training:
        mean, var = (_per_channel(a[...], input.ndim) for a in (running_mean, running_var))
        return _scale_and_shift(_normalize(input, mean, var, eps), weight, bias)
    count = input.size // input.shape[1]
    if count == 1:
        raise ValueError(f"batch_norm needs more than one value per channel in training, got shape {input.shape}")
    mean = input.mean(axes, keepdims=True)
    var = jnp.square(input - mean).mean(axes, keepdims=True)
    if running_mean is not None and count:
        _update_running(running_mean, mean.reshape(-1), momentum)
        _update_running(running_var, var.reshape(-1) * (count / (count - 1)), momentum)
    return _scale_and_shift(_normalize(input, mean, var, eps), weight, bias)


class _RunningNorm(nnx.Module):
    """Parameters and running statistics of batch and instance norm. train() and eval() set use_running_average."""

    def __init__(
        self,
        num_features,
        eps=1e-5,
        momentum=0.1,
        affine=True,
        track_running_stats=True,
        *,
        bias=True,
        rngs: nnx.Rngs | None = None,
    ):
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        self.use_running_average = False
        self.weight = nnx.Param(jnp.ones(num_features)) if affine else None
        self.bias = nnx.Param(jnp.zeros(num_features)) if affine and bias else None
        self.running_mean = nnx.BatchStat(jnp.zeros(num_features)) if track_running_stats else None
        self.running_var = nnx.BatchStat(jnp.ones(num_features)) if track_running_stats else None
        self.num_batches_tracked = nnx.BatchStat(jnp.zeros((), jnp.int32)) if track_running_stats else None


class _BatchNorm(_RunningNorm):
    """Batch norm; momentum=None keeps the mean over all batches seen."""

    def __call__(self, input):
        training = not (self.use_running_average and self.track_running_stats)
        momentum = self.momentum
        if training and self.track_running_stats:
            self.num_batches_tracked[...] += 1
            if momentum is None:
                momentum = 1 / self.num_batches_tracked[...]
        weight, bias = _array(self.weight), _array(self.bias)
        return batch_norm(input, self.running_mean, self.running_var, weight, bias, training, momentum, self.eps)


class BatchNorm1d(_BatchNorm):
    """Batch norm over (N, C) or (N, C, L)."""


class BatchNorm2d(_BatchNorm):
    """Batch norm over (N, C, H, W)."""


class BatchNorm3d(_BatchNorm):
    """Batch norm over (N, C, D, H, W)."""


def instance_norm(
    input,
    running_mean=None,
    running_var=None,
    weight=None,
    bias=None,
    use_input_stats=True,
    momentum=0.1,
    eps=1e-5,
):
    """Normalise each channel of each sample, or with the running statistics when use_input_stats is False.

    The running statistics, if given with use_input_stats, are updated in place and must be Variables.
    """
    if not use_input_stats:
        mean, var = (_per_channel(a[...], input.ndim) for a in (running_mean, running_var))
        return _scale_and_shift(_normalize(input, mean, var, eps), weight, bias)
    axes = tuple(range(2, input.ndim))
    mean = input.mean(axes, keepdims=True)
    var = jnp.square(input - mean).mean(axes, keepdims=True)
    if running_mean is not None:
        count = math.prod(input.shape[2:])
        _update_running(running_mean, mean.mean((0, *axes)), momentum)
        _update_running(running_var, var.mean((0, *axes)) * (count / (count - 1)), momentum)
    return _scale_and_shift(_normalize(input, mean, var, eps), weight, bias)


class _InstanceNorm(_RunningNorm):
    """Instance norm over `ndim` dimensions, with or without a batch dimension."""

    ndim: int

    def __init__(
        self,
        num_features,
        eps=1e-5,
        momentum=0.1,
        affine=False,
        track_running_stats=False,
        *,
        bias=True,
        rngs: nnx.Rngs | None = None,
    ):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, bias=bias)

    def __call__(self, input):
        batched = input.ndim == self.ndim + 2
        y = instance_norm(
            input if batched else input[None],
            self.running_mean,
            self.running_var,
            _array(self.weight),
            _array(self.bias),
            not (self.use_running_average and self.track_running_stats),
            self.momentum,
            self.eps,
        )
        return y if batched else y[0]


class InstanceNorm1d(_InstanceNorm):
    """Instance norm over (N, C, L)."""

    ndim = 1


class InstanceNorm2d(_InstanceNorm):
    """Instance norm over (N, C, H, W)."""

    ndim = 2


class InstanceNorm3d(_InstanceNorm):
    """Instance norm over (N, C, D, H, W)."""

    ndim = 3


def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    """Normalise over the last dimensions, those of normalized_shape."""
    axes = tuple(range(-len(normalized_shape), 0))
    mean = input.mean(axes, keepdims=True)
    var = jnp.square(input - mean).mean(axes, keepdims=True)
    y = _normalize(input, mean, var, eps)
    if weight is not None:
        y = y * weight
    return y if bias is None else y + bias


class LayerNorm(nnx.Module):
    """Normalises over the last dimensions, those of normalized_shape."""

    def __init__(self, normalized_shape, eps=1e-5, elementwise_affine=True, bias=True, *, rngs: nnx.Rngs | None = None):
        self.normalized_shape, self.eps, self.elementwise_affine = _tuple(normalized_shape, 1), eps, elementwise_affine
        self.weight = nnx.Param(jnp.ones(self.normalized_shape)) if elementwise_affine else None
        self.bias = nnx.Param(jnp.zeros(self.normalized_shape)) if elementwise_affine and bias else None

    def __call__(self, input):
        return layer_norm(input, self.normalized_shape, _array(self.weight), _array(self.bias), self.eps)


def rms_norm(input, normalized_shape, weight=None, eps=None):
    """Divide by the root mean square over the last dimensions; eps=None is the machine epsilon of the input."""
    axes = tuple(range(-len(normalized_shape), 0))
    eps = jnp.finfo(input.dtype).eps if eps is None else eps
    y = input * lax.rsqrt(jnp.square(input).mean(axes, keepdims=True) + eps)
    return y if weight is None else y * weight


class RMSNorm(nnx.Module):
    """Divides by the root mean square over the last dimensions, those of normalized_shape."""

    def __init__(self, normalized_shape, eps=None, elementwise_affine=True, *, rngs: nnx.Rngs | None = None):
        self.normalized_shape, self.eps, self.elementwise_affine = _tuple(normalized_shape, 1), eps, elementwise_affine
        self.weight = nnx.Param(jnp.ones(self.normalized_shape)) if elementwise_affine else None

    def __call__(self, input):
        return rms_norm(input, self.normalized_shape, _array(self.weight), self.eps)


def group_norm(input, num_groups, weight=None, bias=None, eps=1e-5):
    """Normalise each sample over groups of channels; weight and bias are per channel."""
    groups = input.reshape(input.shape[0], num_groups, math.prod(input.shape[1:]) // num_groups)
    mean = groups.mean(-1, keepdims=True)
    var = jnp.square(groups - mean).mean(-1, keepdims=True)
    return _scale_and_shift(_normalize(groups, mean, var, eps).reshape(input.shape), weight, bias)


class GroupNorm(nnx.Module):
    """Normalises each sample over groups of channels."""

    def __init__(self, num_groups, num_channels, eps=1e-5, affine=True, *, bias=True, rngs: nnx.Rngs | None = None):
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        self.weight = nnx.Param(jnp.ones(num_channels)) if affine else None
        self.bias = nnx.Param(jnp.zeros(num_channels)) if affine and bias else None

    def __call__(self, input):
        return group_norm(input, self.num_groups, _array(self.weight), _array(self.bias), self.eps)


def local_response_norm(input, size, alpha=1e-4, beta=0.75, k=1.0):
    """Divide by (k + alpha * mean of squares over `size` neighbouring channels) ** beta."""
    ones, none = (1,) * (input.ndim - 2), [(0, 0)] * (input.ndim - 2)
    pads = [(0, 0), (size // 2, (size - 1) // 2), *none]
    total = lax.reduce_window(jnp.square(input), 0.0, lax.add, (1, size, *ones), (1, 1, *ones), pads)
    return input / (k + alpha * total / size) ** beta


class LocalResponseNorm(nnx.Module):
    """Normalises over neighbouring channels."""

    def __init__(self, size, alpha=1e-4, beta=0.75, k=1.0, *, rngs: nnx.Rngs | None = None):
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def __call__(self, input):
        return local_response_norm(input, self.size, self.alpha, self.beta, self.k)
