"""Activations. Where a function has no derivative, the gradient is torch's."""

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax


def leaky_relu(input, negative_slope=0.01):
    """x, or negative_slope * x below zero. The gradient at 0 is the slope, as in torch."""
    return jnp.where(input > 0, input, negative_slope * input)


def prelu(input, weight):
    """leaky_relu whose slope is `weight`: one for all, or one for each channel."""
    weight = weight.reshape((1, -1) + (1,) * (input.ndim - 2) if input.ndim > 1 else (-1,) * input.ndim)
    return jnp.where(input > 0, input, weight * input)


def gelu(input, approximate="none"):
    """x * Phi(x), with the error function unless approximate="tanh"."""
    if approximate == "tanh":
        return jax.nn.gelu(input, approximate=True)
    x = input.astype(jnp.promote_types(input.dtype, jnp.float32))  # torch computes half types in float32 too
    return (0.5 * x * (1 + lax.erf(x * 0.5**0.5))).astype(input.dtype)


def hardtanh(input, min_val=-1.0, max_val=1.0):
    """x between the bounds. The gradient at a bound is 0, as in torch."""
    inside = (input > min_val) & (input < max_val)
    return jnp.where(inside, input, lax.stop_gradient(jnp.clip(input, min_val, max_val)))


def hardshrink(input, lambd=0.5):
    """0 between -lambd and lambd, x elsewhere."""
    return jnp.where((input >= -lambd) & (input <= lambd), 0, input)


def softshrink(input, lambd=0.5):
    """0 between -lambd and lambd, x moved towards 0 by lambd elsewhere."""
    return jnp.where(
        input > lambd, input - lambd, jnp.where(input < -lambd, input + lambd, 0 * lax.stop_gradient(input))
    )


def tanhshrink(input):
    """x - tanh(x)."""
    return input - jnp.tanh(input)


def threshold(input, threshold, value):
    """x above the threshold, `value` elsewhere; NaN stays."""
    return jnp.where(input <= threshold, value, input).astype(input.dtype)


def softplus(input, beta=1.0, threshold=20.0):
    """log(1 + exp(beta * x)) / beta, and x itself where beta * x is above the threshold."""
    return jnp.where(input * beta > threshold, input, jax.nn.softplus(input * beta) / beta)


def elu(input, alpha=1.0):
    """x, or alpha * (exp(x) - 1) below zero."""
    negative = alpha * jnp.expm1(jnp.where(input > 0, 0, input))
    return jnp.where(input > 0, input, negative)


def celu(input, alpha=1.0):
    """x, or alpha * (exp(x / alpha) - 1) below zero."""
    negative = alpha * jnp.expm1(jnp.where(input > 0, 0, input) / alpha)
    return jnp.where(input > 0, input, negative)


def softmax(input, dim=None, dtype=None):
    """Softmax over `dim`; None is dimension 0 of a 0-, 1- or 3-dimensional input and 1 of any other."""
    input = input if dtype is None else input.astype(dtype)
    return jax.nn.softmax(jnp.atleast_1d(input), axis=_softmax_dim(input, dim)).reshape(input.shape)


def log_softmax(input, dim=None, dtype=None):
    """Logarithm of the softmax over `dim`; None as in softmax."""
    input = input if dtype is None else input.astype(dtype)
    return jax.nn.log_softmax(jnp.atleast_1d(input), axis=_softmax_dim(input, dim)).reshape(input.shape)


def softmin(input, dim=None, dtype=None):
    """Softmax of -x over `dim`; None as in softmax."""
    return softmax(-input, dim, dtype)


def _softmax_dim(input, dim):
    return (0 if input.ndim in (0, 1, 3) else 1) if dim is None else dim


def rrelu(input, key, lower=1 / 8, upper=1 / 3, training=False):
    """leaky_relu with a slope drawn for each element between lower and upper; their mean when not training."""
    slope = jax.random.uniform(key, input.shape, input.dtype, lower, upper) if training else (lower + upper) / 2
    return jnp.where(input > 0, input, slope * input)


class ReLU(nnx.Module):
    """max(x, 0)."""

    def __init__(self, *, rngs: nnx.Rngs | None = None):
        pass

    def __call__(self, input):
        return jax.nn.relu(input)


class ReLU6(nnx.Module):
    """min(max(x, 0), 6)."""

    def __init__(self, *, rngs: nnx.Rngs | None = None):
        pass

    def __call__(self, input):
        return jax.nn.relu6(input)


class Sigmoid(nnx.Module):
    """1 / (1 + exp(-x))."""

    def __init__(self, *, rngs: nnx.Rngs | None = None):
        pass

    def __call__(self, input):
        return jax.nn.sigmoid(input)


class Tanh(nnx.Module):
    """Hyperbolic tangent."""

    def __init__(self, *, rngs: nnx.Rngs | None = None):
        pass

    def __call__(self, input):
        return jnp.tanh(input)


class SiLU(nnx.Module):
    """x * sigmoid(x)."""

    def __init__(self, *, rngs: nnx.Rngs | None = None):
        pass

    def __call__(self, input):
        return jax.nn.silu(input)


class Mish(nnx.Module):
    """x * tanh(softplus(x))."""

    def __init__(self, *, rngs: nnx.Rngs | None = None):
        pass

    def __call__(self, input):
        return jax.nn.mish(input)


class SELU(nnx.Module):
    """Self-normalising exponential linear unit."""

    def __init__(self, *, rngs: nnx.Rngs | None = None):
        pass

    def __call__(self, input):
        return jax.nn.selu(input)


class Hardswish(nnx.Module):
    """x * min(max(x + 3, 0), 6) / 6."""

    def __init__(self, *, rngs: nnx.Rngs | None = None):
        pass

    def __call__(self, input):
        return jax.nn.hard_silu(input)


class Hardsigmoid(nnx.Module):
    """min(max(x + 3, 0), 6) / 6."""

    def __init__(self, *, rngs: nnx.Rngs | None = None):
        pass

    def __call__(self, input):
        return jax.nn.hard_sigmoid(input)


class LogSigmoid(nnx.Module):
    """log(sigmoid(x))."""

    def __init__(self, *, rngs: nnx.Rngs | None = None):
        pass

    def __call__(self, input):
        return jax.nn.log_sigmoid(input)


class Softsign(nnx.Module):
    """x / (1 + |x|)."""

    def __init__(self, *, rngs: nnx.Rngs | None = None):
        pass

    def __call__(self, input):
        return jax.nn.soft_sign(input)


class Tanhshrink(nnx.Module):
    """x - tanh(x)."""

    def __init__(self, *, rngs: nnx.Rngs | None = None):
        pass

    def __call__(self, input):
        return tanhshrink(input)


class Softmax2d(nnx.Module):
    """Softmax over the channels of (N, C, H, W) or (C, H, W)."""

    def __init__(self, *, rngs: nnx.Rngs | None = None):
        pass

    def __call__(self, input):
        return jax.nn.softmax(input, axis=-3)


class GELU(nnx.Module):
    """x * Phi(x), with the error function unless approximate="tanh"."""

    def __init__(self, approximate="none", *, rngs: nnx.Rngs | None = None):
        self.approximate = approximate

    def __call__(self, input):
        return gelu(input, self.approximate)


class LeakyReLU(nnx.Module):
    """x, or negative_slope * x below zero."""

    def __init__(self, negative_slope=0.01, *, rngs: nnx.Rngs | None = None):
        self.negative_slope = negative_slope

    def __call__(self, input):
        return leaky_relu(input, self.negative_slope)


class ELU(nnx.Module):
    """x, or alpha * (exp(x) - 1) below zero."""

    def __init__(self, alpha=1.0, *, rngs: nnx.Rngs | None = None):
        self.alpha = alpha

    def __call__(self, input):
        return elu(input, self.alpha)


class CELU(nnx.Module):
    """x, or alpha * (exp(x / alpha) - 1) below zero."""

    def __init__(self, alpha=1.0, *, rngs: nnx.Rngs | None = None):
        self.alpha = alpha

    def __call__(self, input):
        return celu(input, self.alpha)


class Hardtanh(nnx.Module):
    """x between min_val and max_val."""

    def __init__(self, min_val=-1.0, max_val=1.0, *, rngs: nnx.Rngs | None = None):
        self.min_val, self.max_val = min_val, max_val

    def __call__(self, input):
        return hardtanh(input, self.min_val, self.max_val)


class Hardshrink(nnx.Module):
    """0 between -lambd and lambd, x elsewhere."""

    def __init__(self, lambd=0.5, *, rngs: nnx.Rngs | None = None):
        self.lambd = lambd

    def __call__(self, input):
        return hardshrink(input, self.lambd)


class Softshrink(nnx.Module):
    """0 between -lambd and lambd, x moved towards 0 by lambd elsewhere."""

    def __init__(self, lambd=0.5, *, rngs: nnx.Rngs | None = None):
        self.lambd = lambd

    def __call__(self, input):
        return softshrink(input, self.lambd)


class Threshold(nnx.Module):
    """x above the threshold, `value` elsewhere."""

    def __init__(self, threshold, value, *, rngs: nnx.Rngs | None = None):
        self.threshold, self.value = threshold, value

    def __call__(self, input):
        return threshold(input, self.threshold, self.value)


class Softplus(nnx.Module):
    """log(1 + exp(beta * x)) / beta."""

    def __init__(self, beta=1.0, threshold=20.0, *, rngs: nnx.Rngs | None = None):
        self.beta, self.threshold = beta, threshold

    def __call__(self, input):
        return softplus(input, self.beta, self.threshold)


class Softmax(nnx.Module):
    """Softmax over `dim`."""

    def __init__(self, dim=None, *, rngs: nnx.Rngs | None = None):
        self.dim = dim

    def __call__(self, input):
        return softmax(input, self.dim)


class LogSoftmax(nnx.Module):
    """Logarithm of the softmax over `dim`."""

    def __init__(self, dim=None, *, rngs: nnx.Rngs | None = None):
        self.dim = dim

    def __call__(self, input):
        return log_softmax(input, self.dim)


class Softmin(nnx.Module):
    """Softmax of -x over `dim`."""

    def __init__(self, dim=None, *, rngs: nnx.Rngs | None = None):
        self.dim = dim

    def __call__(self, input):
        return softmin(input, self.dim)


class GLU(nnx.Module):
    """The first half along `dim` times the sigmoid of the second."""

    def __init__(self, dim=-1, *, rngs: nnx.Rngs | None = None):
        self.dim = dim

    def __call__(self, input):
        return jax.nn.glu(input, self.dim)


class PReLU(nnx.Module):
    """leaky_relu whose slope is learnt: one for all, or one for each channel."""

    def __init__(self, num_parameters=1, init=0.25, *, rngs: nnx.Rngs | None = None):
        self.num_parameters, self.init = num_parameters, init
        self.weight = nnx.Param(jnp.full(num_parameters, init))

    def __call__(self, input):
        return prelu(input, self.weight[...])


class RReLU(nnx.Module):
    """leaky_relu with a random slope for each element in training; train() and eval() set `deterministic`."""

    def __init__(self, lower=1 / 8, upper=1 / 3, *, rngs: nnx.Rngs):
        self.lower, self.upper, self.deterministic, self.rngs = lower, upper, False, rngs.dropout.fork()

    def __call__(self, input):
        return rrelu(input, self.rngs(), self.lower, self.upper, not self.deterministic)
