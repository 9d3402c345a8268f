"""Special functions whose JAX form differs from torch's in values or gradients."""

import jax
import jax.numpy as jnp
import numpy as np


def _cotangent(x):
    """cot(pi x), by the distance to the nearest integer."""
    return 1 / jnp.tan(jnp.pi * (x - jnp.round(x)))


def digamma(input):
    """Derivative of log(gamma). By reflection below 0, since JAX's gradient is wrong there."""
    below = input < 0
    mirrored = jax.scipy.special.digamma(jnp.where(below, 1 - input, input))
    return jnp.where(below, mirrored - jnp.pi * _cotangent(jnp.where(below, input, 0.5)), mirrored)


def polygamma(n, input):
    """n-th derivative of digamma. By reflection below 0, where JAX's values are wrong."""
    if n == 0:
        return digamma(input)
    below = input < 0
    mirrored = jax.scipy.special.polygamma(n, jnp.where(below, 1 - input, input))
    derivative = np.polynomial.Polynomial([0, 1])  # of cot(pi x) in powers of itself, by steps of (cot)' = -(1 + cot^2)
    for _ in range(n):
        derivative = np.polynomial.Polynomial([-1, 0, -1]) * derivative.deriv()
    powers = jnp.polyval(jnp.asarray(derivative.coef[::-1], input.dtype), _cotangent(jnp.where(below, input, 0.5)))
    return jnp.where(below, (-1) ** n * mirrored - jnp.pi ** (n + 1) * powers, mirrored)


def view_as_real(input):
    """The real and the imaginary parts side by side in a new last dimension."""
    return jnp.stack([input.real, input.imag], axis=-1)


def cumulative_trapezoid(y, x=None, *, dx=1, dim=-1):
    """The integral of y up to each point along a dimension, by the trapezoidal rule."""
    y = jnp.moveaxis(y, dim, -1)
    if x is not None:
        dx = jnp.diff(x if x.ndim == 1 else jnp.moveaxis(x, dim, -1))
    return jnp.moveaxis(jnp.cumsum((y[..., 1:] + y[..., :-1]) / 2 * dx, -1), -1, dim)
