"""Initialisers that are handed on as values: they write into a parameter, as torch's functions of these names do."""

import jax
import jax.numpy as jnp

from .init import (
    dirac,
    kaiming_normal,
    kaiming_uniform,
    orthogonal,
    sparse,
    trunc_normal,
    xavier_normal,
    xavier_uniform,
)


def zeros_(tensor, *, rngs=None):
    """Fill a parameter with zeros."""
    tensor[...] = jnp.zeros(tensor.shape)
    return tensor


def ones_(tensor, *, rngs=None):
    """Fill a parameter with ones."""
    tensor[...] = jnp.ones(tensor.shape)
    return tensor


def constant_(tensor, val, *, rngs=None):
    """Fill a parameter with one value."""
    tensor[...] = jnp.full(tensor.shape, val, jnp.float32)
    return tensor


def eye_(tensor, *, rngs=None):
    """Fill a matrix with the identity."""
    tensor[...] = jnp.eye(*tensor.shape)
    return tensor


def dirac_(tensor, groups=1, *, rngs=None):
    """Fill a convolution weight so that it copies its input channels."""
    tensor[...] = dirac(tensor.shape, groups)
    return tensor


def uniform_(tensor, a=0.0, b=1.0, *, rngs):
    """Fill a parameter from the uniform distribution over [a, b)."""
    tensor[...] = jax.random.uniform(rngs.params(), tensor.shape, minval=a, maxval=b)
    return tensor


def normal_(tensor, mean=0.0, std=1.0, *, rngs):
    """Fill a parameter from a normal distribution."""
    tensor[...] = mean + std * jax.random.normal(rngs.params(), tensor.shape)
    return tensor


def trunc_normal_(tensor, mean=0.0, std=1.0, a=-2.0, b=2.0, *, rngs):
    """Fill a parameter from a normal distribution that is cut off below a and above b."""
    tensor[...] = trunc_normal(rngs.params(), tensor.shape, mean, std, a, b)
    return tensor


def xavier_uniform_(tensor, gain=1.0, *, rngs):
    """Fill a weight by Glorot's rule, uniform."""
    tensor[...] = xavier_uniform(rngs.params(), tensor.shape, gain)
    return tensor


def xavier_normal_(tensor, gain=1.0, *, rngs):
    """Fill a weight by Glorot's rule, normal."""
    tensor[...] = xavier_normal(rngs.params(), tensor.shape, gain)
    return tensor


def kaiming_uniform_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu", *, rngs):
    """Fill a weight by He's rule, uniform."""
    tensor[...] = kaiming_uniform(rngs.params(), tensor.shape, a, mode, nonlinearity)
    return tensor


def kaiming_normal_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu", *, rngs):
    """Fill a weight by He's rule, normal."""
    tensor[...] = kaiming_normal(rngs.params(), tensor.shape, a, mode, nonlinearity)
    return tensor


def orthogonal_(tensor, gain=1, *, rngs):
    """Fill a weight with an orthogonal matrix, or a part of one."""
    tensor[...] = orthogonal(rngs.params(), tensor.shape, gain)
    return tensor


def sparse_(tensor, sparsity, std=0.01, *, rngs):
    """Fill a matrix with normal values, a share of each column with zeros."""
    tensor[...] = sparse(rngs.params(), tensor.shape, sparsity, std)
    return tensor
