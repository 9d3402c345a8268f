"""The windows of torch.signal.windows: symmetric, or periodic (one longer, without its last value)."""

import jax
import jax.numpy as jnp


def _span(M, sym):
    """The places of the window's values and the last place of the symmetric window that holds them."""
    return jnp.arange(M, dtype=float), max(M - 1 if sym else M, 1)


def window_general_cosine(M, *, a, sym=True):
    """A sum of cosines with alternating signs and the weights a."""
    places, last = _span(M, sym)
    if M == 1:
        return jnp.ones(1)
    weights = jnp.asarray(a) * (-1.0) ** jnp.arange(len(a))
    return (weights[:, None] * jnp.cos(2 * jnp.pi * jnp.arange(len(a))[:, None] * places / last)).sum(0)


def window_general_hamming(M, *, alpha=0.54, sym=True):
    """alpha minus (1 - alpha) times a cosine."""
    return window_general_cosine(M, a=[alpha, 1 - alpha], sym=sym)


def window_hamming(M, *, sym=True):
    """The Hamming window."""
    return window_general_hamming(M, sym=sym)


def window_hann(M, *, sym=True):
    """The Hann window."""
    return window_general_hamming(M, alpha=0.5, sym=sym)


def window_blackman(M, *, sym=True):
    """The Blackman window."""
    return window_general_cosine(M, a=[0.42, 0.5, 0.08], sym=sym)


def window_nuttall(M, *, sym=True):
    """The minimum 4-term Blackman-Harris window after Nuttall."""
    return window_general_cosine(M, a=[0.3635819, 0.4891775, 0.1365995, 0.0106411], sym=sym)


def window_bartlett(M, *, sym=True):
    """A triangle that starts at 0."""
    places, last = _span(M, sym)
    return jnp.ones(1) if M == 1 else 1 - jnp.abs(2 * places / last - 1)


def window_cosine(M, *, sym=True):
    """Half a period of the sine."""
    places, last = _span(M, sym)
    return jnp.ones(1) if M == 1 else jnp.sin(jnp.pi * (places + 0.5) / (last + 1))


def window_exponential(M, *, center=None, tau=1.0, sym=True):
    """A decay to both sides of the center."""
    places, last = _span(M, sym)
    if M == 1:
        return jnp.ones(1)
    return jnp.exp(-jnp.abs(places - (last / 2 if center is None else center)) / tau)


def window_gaussian(M, *, std=1.0, sym=True):
    """A bell curve."""
    places, last = _span(M, sym)
    return jnp.ones(1) if M == 1 else jnp.exp(-(((places - last / 2) / std) ** 2) / 2)


def window_kaiser(M, *, beta=12.0, sym=True):
    """The Kaiser window."""
    places, last = _span(M, sym)
    if M == 1:
        return jnp.ones(1)
    return jax.scipy.special.i0(beta * jnp.sqrt(1 - (2 * places / last - 1) ** 2)) / jax.scipy.special.i0(beta)
