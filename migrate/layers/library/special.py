"""Special functions whose JAX form differs from torch's in values or gradients."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .tensor import clamp


def _cotangent(x):
    """cot(pi x), by the distance to the nearest integer."""
    return 1 / jnp.tan(jnp.pi * (x - jnp.round(x)))


def digamma(input):
    """Derivative of log(gamma). By reflection below 0, since JAX's gradient is wrong there."""
    below = input < 0
    mirrored = jax.scipy.special.digamma(jnp.where(below, 1 - input, input))
    below_zero = jnp.where(
        input == jnp.round(input), jnp.nan, mirrored - jnp.pi * _cotangent(jnp.where(below, input, 0.5))
    )
    return jnp.where(below, below_zero, mirrored)


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


def logit(input, eps=None):
    """log(x / (1 - x)), of x cut to [eps, 1 - eps]; outside of [0, 1] its gradient is NaN as its value."""
    if eps is not None:
        return jax.scipy.special.logit(clamp(input, eps, 1 - eps))
    outside = (input < 0) | (input > 1)
    nan = jnp.sqrt(jnp.where(outside, -(input**2), 1))  # in value and gradient
    return jnp.where(outside, nan, jax.scipy.special.logit(jnp.where(outside, 0.5, input)))


def nextafter(input, other):
    """The next number after the input in the direction of other, with the gradient of the input."""
    return input - lax.stop_gradient(input) + jnp.nextafter(lax.stop_gradient(input), lax.stop_gradient(other))


def logsumexp(input, dim, keepdim=False):
    """The logarithm of the sum of exponentials over one or several dimensions, of which a 0-dim input has 0 and -1."""
    axis = tuple(dim) if isinstance(dim, (list, tuple)) else dim
    return jax.nn.logsumexp(input, axis if input.ndim else None, keepdims=keepdim)


def logcumsumexp(input, dim):
    """The logarithm of the running sum of exponentials along a dimension."""
    return lax.cumlogsumexp(input, axis=dim % input.ndim) if input.ndim else input


def _bessel_j(n, x):
    """J_n by Bessel's integral (a mean over 64 angles is exact to rounding there), far out by Hankel's expansion."""
    theta, far = (np.arange(64) + 0.5) * np.pi / 64, jnp.abs(x) > 50
    inside = jnp.cos(n * theta - jnp.where(far, 0, x)[..., None] * np.sin(theta)).mean(-1)
    size, m = jnp.where(far, jnp.abs(x), 50), 4 * n * n
    angle = size - (n / 2 + 0.25) * np.pi
    p, q = 1 - (m - 1) * (m - 9) / (2 * (8 * size) ** 2), (m - 1) / (8 * size)
    outside = jnp.sqrt(2 / (np.pi * size)) * (p * jnp.cos(angle) - q * jnp.sin(angle))
    return jnp.where(far, outside * jnp.sign(x) ** n, inside).astype(x.dtype)


def bessel_j0(input):
    """The Bessel function J0; that of jax.scipy.special is NaN at small arguments and wrong at large ones."""
    return _bessel_j(0, input)


def bessel_j1(input):
    """The Bessel function J1; that of jax.scipy.special is NaN at small arguments and wrong at large ones."""
    return _bessel_j(1, input)


def view_as_real(input):
    """The real and the imaginary parts side by side in a new last dimension."""
    return jnp.stack([input.real, input.imag], axis=-1)


def cumulative_trapezoid(y, x=None, *, dx=1, dim=-1):
    """The integral of y up to each point along a dimension, by the trapezoidal rule."""
    y = jnp.moveaxis(y, dim, -1)
    if x is not None:
        dx = jnp.diff(x if x.ndim == 1 else jnp.moveaxis(x, dim, -1))
    return jnp.moveaxis(jnp.cumsum((y[..., 1:] + y[..., :-1]) / 2 * dx, -1), -1, dim)


_OTHER_WAY = {None: "forward", "backward": "forward", "forward": "backward", "ortho": "ortho"}


def hfftn(input, s=None, dim=None, norm=None):
    """The real spectrum of a signal that is hermitian in its last dimension."""
    if s is not None and dim is None:
        dim = tuple(range(-len(s), 0))
    return jnp.fft.irfftn(jnp.conj(input), s, dim, norm=_OTHER_WAY[norm])


def ihfftn(input, s=None, dim=None, norm=None):
    """The inverse of hfftn: half of the hermitian signal of a real spectrum."""
    if s is not None and dim is None:
        dim = tuple(range(-len(s), 0))
    return jnp.conj(jnp.fft.rfftn(input, s, dim, norm=_OTHER_WAY[norm]))


def hfft2(input, s=None, dim=(-2, -1), norm=None):
    """hfftn over two dimensions."""
    return hfftn(input, s, dim, norm)


def ihfft2(input, s=None, dim=(-2, -1), norm=None):
    """ihfftn over two dimensions."""
    return ihfftn(input, s, dim, norm)
