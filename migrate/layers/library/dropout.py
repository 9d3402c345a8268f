"""Dropout. train() and eval() set the attribute `deterministic`."""

import math

import jax
import jax.numpy as jnp
from flax import nnx


def _keep(key, p, shape):
    return jax.random.bernoulli(key, 1 - p, shape)


def _drop(input, key, p, shape):
    """Zero with probability p, one draw for each element of `shape`, and scale what is kept by 1 / (1 - p)."""
    if p == 1:
        return jnp.zeros_like(input)
    return jnp.where(_keep(key, p, shape), input / (1 - p), 0).astype(input.dtype)


def dropout(input, key, p=0.5, training=True):
    """Zero elements with probability p and scale the others by 1 / (1 - p)."""
    return _drop(input, key, p, input.shape) if training and p > 0 else input


def _channel_shape(input, ndim):
    """The shape of a mask over the channels of (N, C, ...), or of (C, ...) with `ndim` dimensions after C."""
    lead = 1 if input.ndim == ndim + 1 and ndim != 2 else 2  # torch reads a 3-D input of dropout2d as (N, C, L)
    return input.shape[:lead] + (1,) * (input.ndim - lead)


def dropout1d(input, key, p=0.5, training=True):
    """Zero whole channels of (N, C, L) or (C, L) with probability p."""
    return _drop(input, key, p, _channel_shape(input, 1)) if training and p > 0 else input


def dropout2d(input, key, p=0.5, training=True):
    """Zero whole channels of (N, C, H, W) with probability p."""
    return _drop(input, key, p, _channel_shape(input, 2)) if training and p > 0 else input


def dropout3d(input, key, p=0.5, training=True):
    """Zero whole channels of (N, C, D, H, W) or (C, D, H, W) with probability p."""
    return _drop(input, key, p, _channel_shape(input, 3)) if training and p > 0 else input


_ALPHA = 1.7580993408473766  # minus the limit of SELU at -infinity


def _alpha_drop(input, key, p, shape):
    """Set to -_ALPHA with probability p, then scale and shift so that mean 0 and variance 1 stay (arXiv:1706.02515)."""
    if p == 1:
        return jnp.zeros_like(input)
    a = 1 / math.sqrt((_ALPHA**2 * p + 1) * (1 - p))
    return (a * jnp.where(_keep(key, p, shape), input, -_ALPHA) + a * _ALPHA * p).astype(input.dtype)


def alpha_dropout(input, key, p=0.5, training=False):
    """Dropout that keeps the mean and variance of standardised input."""
    return _alpha_drop(input, key, p, input.shape) if training and p > 0 else input


def feature_alpha_dropout(input, key, p=0.5, training=False):
    """alpha_dropout of whole channels of (N, C, ...)."""
    shape = input.shape[:2] + (1,) * (input.ndim - 2)
    return _alpha_drop(input, key, p, shape) if training and p > 0 else input


class _Dropout(nnx.Module):
    """Rate and random stream of the dropout layers."""

    def __init__(self, p=0.5, *, rngs: nnx.Rngs):
        if not 0 <= p <= 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p, self.deterministic, self.rngs = p, False, rngs.dropout.fork()

    @property
    def _off(self):
        return self.deterministic or self.p == 0


class Dropout(_Dropout):
    """Zeroes elements with probability p and scales the others by 1 / (1 - p)."""

    def __call__(self, input):
        return input if self._off else dropout(input, self.rngs(), self.p)


class Dropout1d(_Dropout):
    """Zeroes whole channels of (N, C, L) or (C, L)."""

    def __call__(self, input):
        return input if self._off else dropout1d(input, self.rngs(), self.p)


class Dropout2d(_Dropout):
    """Zeroes whole channels of (N, C, H, W)."""

    def __call__(self, input):
        return input if self._off else dropout2d(input, self.rngs(), self.p)


class Dropout3d(_Dropout):
    """Zeroes whole channels of (N, C, D, H, W) or (C, D, H, W)."""

    def __call__(self, input):
        return input if self._off else dropout3d(input, self.rngs(), self.p)


class AlphaDropout(_Dropout):
    """Dropout that keeps the mean and variance of standardised input, for SELU networks."""

    def __call__(self, input):
        return input if self._off else alpha_dropout(input, self.rngs(), self.p, training=True)


class FeatureAlphaDropout(_Dropout):
    """AlphaDropout of whole channels of (N, C, ...)."""

    def __call__(self, input):
        return input if self._off else feature_alpha_dropout(input, self.rngs(), self.p, training=True)
