"""Initial values: functions of a key and a shape. Fans are those of torch: weight (out, in, ...)."""

import math

import jax
import jax.numpy as jnp


def calculate_gain(nonlinearity, param=None):
    """The factor that keeps the variance through a nonlinearity; `param` is the slope of leaky_relu."""
    if nonlinearity == "leaky_relu":
        return math.sqrt(2 / (1 + (0.01 if param is None else param) ** 2))
    gains = {"tanh": 5 / 3, "relu": math.sqrt(2), "selu": 3 / 4}
    return gains.get(nonlinearity, 1)


def _fans(shape):
    """Inputs and outputs of each unit of a weight (out, in, ...)."""
    if len(shape) < 2:
        raise ValueError(f"fan in and fan out need at least two dimensions, got shape {tuple(shape)}")
    field = math.prod(shape[2:])
    return shape[1] * field, shape[0] * field


def xavier_uniform(key, shape, gain=1.0):
    """Uniform with variance gain ** 2 * 2 / (fan_in + fan_out)."""
    bound = gain * math.sqrt(6 / sum(_fans(shape)))
    return jax.random.uniform(key, shape, minval=-bound, maxval=bound)


def xavier_normal(key, shape, gain=1.0):
    """Normal with variance gain ** 2 * 2 / (fan_in + fan_out)."""
    return gain * math.sqrt(2 / sum(_fans(shape))) * jax.random.normal(key, shape)


def _kaiming_std(shape, a, mode, nonlinearity):
    fan_in, fan_out = _fans(shape)
    return calculate_gain(nonlinearity, a) / math.sqrt({"fan_in": fan_in, "fan_out": fan_out}[mode])


def kaiming_uniform(key, shape, a=0, mode="fan_in", nonlinearity="leaky_relu"):
    """Uniform with variance gain ** 2 / fan."""
    bound = math.sqrt(3) * _kaiming_std(shape, a, mode, nonlinearity)
    return jax.random.uniform(key, shape, minval=-bound, maxval=bound)


def kaiming_normal(key, shape, a=0, mode="fan_in", nonlinearity="leaky_relu"):
    """Normal with variance gain ** 2 / fan."""
    return _kaiming_std(shape, a, mode, nonlinearity) * jax.random.normal(key, shape)


def trunc_normal(key, shape, mean=0.0, std=1.0, a=-2.0, b=2.0):
    """Normal, cut off below a and above b, which are values, not multiples of std."""
    return mean + std * jax.random.truncated_normal(key, (a - mean) / std, (b - mean) / std, shape)


def orthogonal(key, shape, gain=1.0):
    """An orthogonal matrix of (shape[0], everything else), or a part of one, times gain."""
    rows, columns = shape[0], math.prod(shape[1:])
    q, r = jnp.linalg.qr(jax.random.normal(key, (max(rows, columns), min(rows, columns))))
    q = q * jnp.sign(jnp.diagonal(r))
    return gain * (q if rows >= columns else q.T).reshape(shape)


def sparse(key, shape, sparsity, std=0.01):
    """Normal (rows, columns), with a share of each column set to zero."""
    key_values, key_zeros = jax.random.split(key)
    rank = jnp.argsort(jax.random.uniform(key_zeros, shape), axis=0)
    return jnp.where(rank < math.ceil(sparsity * shape[0]), 0, std * jax.random.normal(key_values, shape))


def dirac(shape, groups=1):
    """The convolution weight (out, in / groups, ...) that copies its input channels."""
    per_group = shape[0] // groups
    count = min(per_group, shape[1])
    out = jnp.arange(groups)[:, None] * per_group + jnp.arange(count)
    middle = tuple(n // 2 for n in shape[2:])
    return jnp.zeros(shape).at[(out, jnp.arange(count), *middle)].set(1)
