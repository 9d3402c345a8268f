"""Fractional max pooling: windows of one size whose places are drawn at random."""

import jax
import jax.numpy as jnp
from flax import nnx

from .conv import _tuple


def _starts(sample, size, kernel, out):
    """Where the `out` windows along one dimension start, by Graham's sequence (arXiv:1412.6071) with a random shift."""
    if out == 1:
        return jnp.array([size - kernel])
    step = (size - kernel) / (out - 1)
    starts = jnp.floor((jnp.arange(out) + sample) * step) - jnp.floor(sample * step)
    return starts.astype(int).at[-1].set(size - kernel)


def _fractional_max_pool(input, n, key, kernel_size, output_size, output_ratio, return_indices, samples):
    sizes, kernel = input.shape[-n:], _tuple(kernel_size, n)
    if output_size is None:
        output_size = [int(size * ratio) for size, ratio in zip(sizes, _tuple(output_ratio, n), strict=True)]
    outs = _tuple(output_size, n)
    planes = input.reshape(-1, *sizes)
    samples = jax.random.uniform(key, (planes.shape[0], n)) if samples is None else samples.reshape(-1, n)
    if n == 2:  # torch gives the first sample to the last dimension
        samples = samples[:, ::-1]

    def pool(plane, sample):
        places = 0
        for d in range(n):
            along = _starts(sample[d], sizes[d], kernel[d], outs[d])[:, None] + jnp.arange(kernel[d])
            places = places * sizes[d] + jnp.expand_dims(along, [i for i in range(2 * n) if i % n != d])
        places = places.reshape(*outs, -1)
        windows = plane.reshape(-1)[places]
        best = jnp.argmax(windows, -1, keepdims=True)
        return [jnp.take_along_axis(a, best, -1)[..., 0] for a in (windows, places)]

    out, index = (a.reshape(*input.shape[:-n], *outs) for a in jax.vmap(pool)(planes, samples))
    return (out, index) if return_indices else out


def fractional_max_pool2d(
    input, key, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None
):
    """Maximum over randomly placed windows of (..., H, W); with return_indices also where in H * W it is."""
    return _fractional_max_pool(input, 2, key, kernel_size, output_size, output_ratio, return_indices, _random_samples)


def fractional_max_pool3d(
    input, key, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None
):
    """Maximum over randomly placed windows of (..., D, H, W); with return_indices also where in D * H * W it is."""
    return _fractional_max_pool(input, 3, key, kernel_size, output_size, output_ratio, return_indices, _random_samples)


class _FractionalMaxPool(nnx.Module):
    """What both sizes share."""

    ndim: int

    def __init__(
        self,
        kernel_size,
        output_size=None,
        output_ratio=None,
        return_indices=False,
        _random_samples=None,
        *,
        rngs: nnx.Rngs,
    ):
        self.kernel_size, self.output_size, self.output_ratio = kernel_size, output_size, output_ratio
        self.return_indices, self._random_samples = return_indices, nnx.data(_random_samples)
        self.rngs = rngs.dropout.fork()

    def __call__(self, input):
        return _fractional_max_pool(
            input,
            self.ndim,
            self.rngs(),
            self.kernel_size,
            self.output_size,
            self.output_ratio,
            self.return_indices,
            self._random_samples,
        )


class FractionalMaxPool2d(_FractionalMaxPool):
    """Maximum over randomly placed windows of (N, C, H, W) or (C, H, W)."""

    ndim = 2


class FractionalMaxPool3d(_FractionalMaxPool):
    """Maximum over randomly placed windows of (N, C, D, H, W) or (C, D, H, W)."""

    ndim = 3
