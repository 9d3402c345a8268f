"""Tensor operations that take more than a line of JAX, with torch's arguments and torch's gradients."""

import itertools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


class ValuesAndIndices(NamedTuple):
    """What a selection along a dimension gives."""

    values: Any
    indices: Any


def sign(input):
    """-1, 0 or 1; 0 for NaN, where JAX has NaN. Of a complex number its direction."""
    return input if input.dtype == bool else jnp.where(jnp.isnan(input), 0, jnp.sign(input)).astype(input.dtype)


def sum_to_size(input, *size):
    """The input summed over the dimensions along which an array of that size would be broadcast to it."""
    size = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size
    lead = input.ndim - len(size)
    ones = [i + lead for i, n in enumerate(size) if n == 1]
    return input.sum((*range(lead), *ones)).reshape(size)


def absolute(input):
    """|x| with gradient 0 at 0, where JAX has 1."""
    return (input * jnp.conj(lax.stop_gradient(jnp.sign(input)))).real


def clamp(input, min=None, max=None):
    """x between min and max, with gradient 1 at the bounds, where JAX has one half."""
    if min is not None:
        input = jnp.where(input < min, min, input)
    return input if max is None else jnp.where(input > max, max, input)


def div_trunc(input, other):
    """input / other rounded towards zero; exact for integers."""
    dtype = jnp.result_type(input, other)
    if jnp.issubdtype(dtype, jnp.integer):
        return lax.div(*jnp.broadcast_arrays(jnp.asarray(input, dtype), jnp.asarray(other, dtype)))
    return jnp.trunc(input / other)


def norm(input, p=2, dim=None, keepdim=False):
    """p-norm of the elements over all or some dimensions; where it is 0, its gradient is 0, not NaN."""
    axis = None if not input.ndim else tuple(dim) or None if isinstance(dim, (list, tuple)) else dim
    if p == "nuc":
        return jnp.linalg.norm(input, "nuc", (-2, -1) if axis is None else axis, keepdims=keepdim)
    if p in (math.inf, -math.inf):
        reduce = jnp.max if p > 0 else jnp.min
        return reduce(absolute(input), axis, keepdims=keepdim)
    if p == 0:
        return (input != 0).astype(input.dtype).sum(axis, keepdims=keepdim)
    if p == 1:
        return absolute(input).sum(axis, keepdims=keepdim)
    if p in (2, "fro"):
        p, powers = 2, (input * jnp.conj(input)).real
    else:
        zero = input == 0
        powers = jnp.where(zero, 0 if p > 0 else jnp.inf, jnp.abs(jnp.where(zero, 1, input)) ** p)
    total = powers.sum(axis, keepdims=keepdim)
    positive = jnp.where(total == 0, 1, total)
    return jnp.where(total == 0, 0, jnp.sqrt(positive) if p == 2 else positive ** (1 / p))


def std(input, dim=None, *, correction=1, keepdim=False, where=None):
    """Standard deviation (of what is under the mask `where`); where it is 0, its gradient is 0, not NaN."""
    axis = tuple(dim) or None if isinstance(dim, (list, tuple)) else dim
    var = jnp.var(input, axis, ddof=correction, keepdims=keepdim, where=where)
    return jnp.where(var == 0, 0, jnp.sqrt(jnp.where(var == 0, 1, var)))


def _take(input, indices, dim, keepdim):
    """The selected values and their indices; the gradient goes to the selected elements alone."""
    if not input.ndim:
        return ValuesAndIndices(input, jnp.zeros((), int))
    values = jnp.take_along_axis(input, indices, dim)
    pair = ValuesAndIndices(values, indices)
    return pair if keepdim else ValuesAndIndices(*(a.squeeze(dim) for a in pair))


def max_with_indices(input, dim, keepdim=False):
    """Maximum over a dimension and where it is; of equal values the first gets the gradient."""
    return _take(input, jnp.argmax(jnp.atleast_1d(input), dim, keepdims=True), dim, keepdim)


def min_with_indices(input, dim, keepdim=False):
    """Minimum over a dimension and where it is; of equal values the first gets the gradient."""
    return _take(input, jnp.argmin(jnp.atleast_1d(input), dim, keepdims=True), dim, keepdim)


def max_of(input, dim=None, keepdim=False):
    """torch.max: of all, over a dimension (and where it is), or elementwise of two tensors (`dim` is the other)."""
    if dim is None:
        return jnp.max(input)
    along = isinstance(dim, (int, np.integer))
    return max_with_indices(input, dim, keepdim) if along else jnp.maximum(input, dim)


def min_of(input, dim=None, keepdim=False):
    """torch.min: of all, over a dimension (and where it is), or elementwise of two tensors (`dim` is the other)."""
    if dim is None:
        return jnp.min(input)
    along = isinstance(dim, (int, np.integer))
    return min_with_indices(input, dim, keepdim) if along else jnp.minimum(input, dim)


def sort(input, dim=-1, descending=False, stable=True):
    """Sorted values along a dimension and where they were."""
    return _take(input, jnp.argsort(jnp.atleast_1d(input), dim, stable=stable, descending=descending), dim, True)


def topk(input, k, dim=-1, largest=True):
    """The k largest (or smallest) values along a dimension, in order, and where they are."""
    order = jnp.argsort(jnp.atleast_1d(input), dim, descending=largest)
    return _take(input, lax.slice_in_dim(order, 0, k, axis=dim), dim, True)


def kthvalue(input, k, dim=-1, keepdim=False):
    """The k-th smallest value along a dimension (k counts from 1) and where it is."""
    order = jnp.argsort(jnp.atleast_1d(input), dim)
    return _take(input, lax.slice_in_dim(order, k - 1, k, axis=dim), dim, keepdim)


def median(input, dim=None, keepdim=False):
    """The lower median: over everything its value, over a dimension the value and where it is."""
    if dim is not None:
        return kthvalue(input, (jnp.atleast_1d(input).shape[dim] + 1) // 2, dim, keepdim)
    middle = lax.stop_gradient(jnp.sort(input, axis=None)[(input.size - 1) // 2])
    equal = input == middle
    return jnp.where(equal, input, 0).sum() / equal.sum() if jnp.issubdtype(input.dtype, jnp.floating) else middle


def mode(input, dim=-1, keepdim=False):
    """The most frequent value along a dimension, the smallest of several, and its last place."""
    moved = jnp.moveaxis(jnp.atleast_1d(input), dim, -1)
    equal = moved[..., :, None] == moved[..., None, :]
    count = equal.sum(-1)
    candidates = jnp.where(count == count.max(-1, keepdims=True), moved, moved.max(-1, keepdims=True))
    smallest = candidates.min(-1, keepdims=True)
    last = moved.shape[-1] - 1 - jnp.argmax((moved == smallest)[..., ::-1], -1)
    return _take(input, jnp.expand_dims(last, dim), dim, keepdim)


def _running(input, dim, better):
    if not input.ndim:
        return _take(input, None, dim, True)
    dim %= input.ndim
    size = input.shape[dim]
    index = lax.broadcasted_iota(jnp.int32, input.shape, dim)

    def later(a, b):
        keep_b = better(b[0], a[0])
        return jnp.where(keep_b, b[0], a[0]), jnp.where(keep_b, b[1], a[1])

    _, index = lax.associative_scan(later, (lax.stop_gradient(input), index), axis=dim)
    return _take(input, jnp.minimum(index, size - 1), dim, True)


def cummax(input, dim):
    """Largest value so far along a dimension and where it is, the latest of equal ones."""
    return _running(input, dim, lambda new, old: new >= old)


def cummin(input, dim):
    """Smallest value so far along a dimension and where it is, the latest of equal ones."""
    return _running(input, dim, lambda new, old: new <= old)


def _grid(index, dim):
    """Index arrays that address input[..., index[i, j, ...], ...] with `index` at the place of `dim`."""
    grid = list(jnp.indices(index.shape, sparse=True))
    if grid:
        grid[dim] = index
    return tuple(grid)


def _like_index(src, index):
    """The part of src that lies under the index."""
    return src[tuple(slice(n) for n in index.shape)] if jnp.ndim(src) else src


def gather(input, dim, index):
    """out[i][j] = input[index[i][j]][j] for dim 0, and so on; the index may be smaller than the input."""
    return input[_grid(index, dim)] if input.ndim else input.reshape(1)[index]


def _target(input, dim, index):
    """What scatter writes to."""
    return input.at[_grid(index, dim)] if input.ndim else input.reshape(1).at[index]


def scatter(input, dim, index, src):
    """A copy of the input with src (an array or a number) written to input[index[i][j]][j] for dim 0, and so on."""
    return _target(input, dim, index).set(_like_index(src, index)).reshape(input.shape)


def scatter_add(input, dim, index, src):
    """As scatter, but src is added; repeated places add up."""
    return _target(input, dim, index).add(_like_index(src, index)).reshape(input.shape)


def scatter_reduce(input, dim, index, src, reduce, *, include_self=True):
    """As scatter, but values for one place are combined: "sum", "prod", "mean", "amax" or "amin"."""
    if not input.ndim:
        one = (a.reshape(1) for a in (index, src))
        return scatter_reduce(input.reshape(1), 0, *one, reduce, include_self=include_self)[0]
    places, src = _grid(index, dim), _like_index(src, index)
    if not include_self:
        info = jnp.finfo if jnp.issubdtype(input.dtype, jnp.floating) else jnp.iinfo
        neutral = {"sum": 0, "mean": 0, "prod": 1, "amax": info(input.dtype).min, "amin": info(input.dtype).max}
        input = input.at[places].set(neutral[reduce])
    if reduce == "mean":
        count = jnp.full(input.shape, int(include_self), jnp.int32).at[places].add(1)
        total, count = input.at[places].add(src), jnp.maximum(count, 1)
        return total / count if jnp.issubdtype(input.dtype, jnp.floating) else total // count
    if reduce == "prod":  # JAX has no gradient of a scattered product
        return input * _product_by_place(input, dim, index, src)
    ref = input.at[places]
    return {"sum": ref.add, "amax": ref.max, "amin": ref.min}[reduce](src)


def _product_by_place(input, dim, index, src):
    """For each element of the input, the product of what is written there."""
    src, index = (jnp.moveaxis(jnp.broadcast_to(a, index.shape), dim, -1) for a in (src, index))
    here = index[..., None, :] == jnp.arange(input.shape[dim])[:, None]
    product = jnp.moveaxis(jnp.where(here, src[..., None, :], 1).prod(-1), -1, dim)
    return jnp.pad(product, [(0, n - m) for n, m in zip(input.shape, product.shape, strict=True)], constant_values=1)


def _along(input, dim, index):
    """The places of the input at the indices along a dimension, to be written to."""
    if not input.ndim:
        return input.reshape(1).at[index]
    return input.at[(slice(None),) * (dim % input.ndim) + (index,)]


def index_add(input, dim, index, source, *, alpha=1):
    """A copy of the input with alpha * source added at the indices along a dimension; repeated ones add up."""
    return _along(input, dim, index).add(alpha * source).reshape(input.shape)


def index_copy(input, dim, index, source):
    """A copy of the input with source written at the indices along a dimension."""
    return _along(input, dim, index).set(source).reshape(input.shape)


def index_fill(input, dim, index, value):
    """A copy of the input with a number written at the indices along a dimension."""
    return _along(input, dim, index).set(value).reshape(input.shape)


def masked_select(input, mask):
    """The elements where the mask is true, as a vector; both broadcast. Its length depends on values: no jit."""
    input, mask = jnp.broadcast_arrays(input, mask)
    return input[mask]


def masked_scatter(input, mask, source):
    """A copy of the input with the elements of source, in order, where the mask is true."""
    input = jnp.broadcast_to(input, jnp.broadcast_shapes(input.shape, mask.shape))
    mask = jnp.broadcast_to(mask, input.shape)
    order = jnp.maximum(jnp.cumsum(mask.reshape(-1)) - 1, 0)
    return jnp.where(mask, source.reshape(-1)[order].reshape(input.shape), input)


def split(tensor, split_size_or_sections, dim=0):
    """A tuple of parts of one size, the last perhaps smaller, or of the sizes in a list."""
    if isinstance(split_size_or_sections, int):
        points = range(split_size_or_sections, tensor.shape[dim], split_size_or_sections)
    else:
        points = np.cumsum(split_size_or_sections)[:-1]
    return tuple(jnp.split(tensor, list(map(int, points)), dim))


def chunk(input, chunks, dim=0):
    """A tuple of at most that many parts, all of one size but the last."""
    return split(input, max(-(-input.shape[dim] // chunks), 1), dim)


def squeeze(input, dim=None):
    """The input without its dimensions of size 1, or without those of the given ones that have size 1."""
    dims = range(input.ndim) if dim is None else (dim,) if isinstance(dim, int) else dim
    return input.squeeze(tuple(d % input.ndim for d in dims if input.shape[d] == 1)) if input.ndim else input


def expand(input, *sizes):
    """The input broadcast to the sizes; -1 keeps that of the input."""
    sizes = sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
    own = (None,) * (len(sizes) - input.ndim) + input.shape
    return jnp.broadcast_to(input, tuple(n if s == -1 else s for s, n in zip(sizes, own, strict=True)))


def windows(input, dimension, size, step):
    """Tensor.unfold: all windows of a size along a dimension, which become a new last dimension."""
    if not input.ndim:
        return input.reshape(1)[:size]
    dimension %= input.ndim
    starts = np.arange(0, input.shape[dimension] - size + 1, step)
    taken = jnp.take(input, starts[:, None] + np.arange(size), dimension)
    return jnp.moveaxis(taken, dimension + 1, -1)


def diag_embed(input, offset=0, dim1=-2, dim2=-1):
    """Matrices, in dimensions dim1 and dim2, whose diagonal is the last dimension of the input."""
    size = input.shape[-1] + abs(offset)
    rows = np.arange(input.shape[-1]) + max(-offset, 0)
    out = jnp.zeros((*input.shape[:-1], size, size), input.dtype).at[..., rows, rows + offset].set(input)
    return jnp.moveaxis(out, (-2, -1), (dim1, dim2))


def meshgrid(*tensors, indexing="ij"):
    """Coordinate matrices of vectors (or numbers), given one by one or in a list."""
    tensors = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors
    return tuple(jnp.meshgrid(*map(jnp.atleast_1d, tensors), indexing=indexing))


def cartesian_prod(*tensors):
    """All combinations of the elements of 1-D tensors, as rows."""
    if len(tensors) == 1:
        return tensors[0]
    return jnp.stack(jnp.meshgrid(*tensors, indexing="ij"), -1).reshape(-1, len(tensors))


def combinations(input, r=2, with_replacement=False):
    """All combinations of r elements of a 1-D tensor, as rows."""
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = list(choose(range(input.shape[0]), r))
    return input[np.array(rows, int).reshape(len(rows), r)]


def searchsorted(sorted_sequence, input, right=False, sorter=None):
    """Where each value would be inserted; a sequence with more dimensions is searched row by row. `sorter` sorts it."""
    if sorter is not None:
        sorted_sequence = jnp.take_along_axis(sorted_sequence, sorter, -1)
    side = "right" if right else "left"
    if sorted_sequence.ndim == 1:
        return jnp.searchsorted(sorted_sequence, input, side=side)
    rows, values = sorted_sequence.reshape(-1, sorted_sequence.shape[-1]), input.reshape(-1, input.shape[-1])
    return jax.vmap(lambda s, v: jnp.searchsorted(s, v, side=side))(rows, values).reshape(input.shape)


def cdist(x1, x2, p=2.0):
    """p-norm distances between all rows of x1 and all rows of x2."""
    return norm(x1[..., :, None, :] - x2[..., None, :, :], p, -1)


def pdist(input, p=2.0):
    """p-norm distances between all pairs of rows, as a vector."""
    i, j = np.triu_indices(input.shape[0], 1)
    return norm(input[i] - input[j], p, -1)


def hann_window(window_length, periodic=True):
    """0.5 - 0.5 * cos(2 * pi * n / N); N is the length, or one less if not periodic."""
    return _cosine_window(window_length, periodic, 0.5, 0.5)


def hamming_window(window_length, periodic=True, alpha=0.54, beta=0.46):
    """alpha - beta * cos(2 * pi * n / N); N is the length, or one less if not periodic."""
    return _cosine_window(window_length, periodic, alpha, beta)


def _cosine_window(window_length, periodic, alpha, beta):
    if window_length == 1:
        return jnp.ones(1)
    return alpha - beta * jnp.cos(2 * jnp.pi * jnp.arange(window_length) / (window_length - (not periodic)))


def _padded_window(window, win_length, n_fft):
    """The window (or ones) of win_length, centred in n_fft zeros."""
    win_length = n_fft if win_length is None else win_length
    window = jnp.ones(win_length) if window is None else window
    before = (n_fft - win_length) // 2
    return jnp.pad(window, (before, n_fft - win_length - before))


def stft(
    input,
    n_fft,
    hop_length=None,
    win_length=None,
    window=None,
    center=True,
    pad_mode="reflect",
    normalized=False,
    onesided=None,
    return_complex=None,
):
    """Short-time Fourier transform of (..., L): (..., frequencies, frames), and (..., 2) behind them if not complex."""
    hop_length = n_fft // 4 if hop_length is None else hop_length
    window = _padded_window(window, win_length, n_fft)
    if center:
        side = n_fft // 2
        mode = {"reflect": "reflect", "constant": "constant", "replicate": "edge", "circular": "wrap"}[pad_mode]
        input = jnp.pad(input, [(0, 0)] * (input.ndim - 1) + [(side, side)], mode=mode)
    frames = windows(input, -1, n_fft, hop_length) * window
    onesided = not jnp.iscomplexobj(frames) if onesided is None else onesided
    spectrum = (jnp.fft.rfft if onesided else jnp.fft.fft)(frames, norm="ortho" if normalized else "backward")
    spectrum = spectrum.swapaxes(-1, -2)
    return jnp.stack([spectrum.real, spectrum.imag], -1) if return_complex is False else spectrum


def istft(
    input,
    n_fft,
    hop_length=None,
    win_length=None,
    window=None,
    center=True,
    normalized=False,
    onesided=None,
    length=None,
    return_complex=False,
):
    """Inverse of stft by overlap-add: input (..., frequencies, frames), result (..., L)."""
    hop_length = n_fft // 4 if hop_length is None else hop_length
    window = _padded_window(window, win_length, n_fft)
    onesided = input.shape[-2] == n_fft // 2 + 1 if onesided is None else onesided
    inverse = jnp.fft.irfft if onesided else jnp.fft.ifft
    frames = inverse(input.swapaxes(-1, -2), n=n_fft, norm="ortho" if normalized else "backward")
    frames = (frames if return_complex else frames.real) * window
    count = frames.shape[-2]
    places = np.arange(count)[:, None] * hop_length + np.arange(n_fft)
    total = n_fft + hop_length * (count - 1)
    signal = jnp.zeros((*frames.shape[:-2], total), frames.dtype).at[..., places].add(frames)
    weight = jnp.zeros(total).at[places].add(jnp.broadcast_to(window**2, places.shape))
    start = n_fft // 2 if center else 0
    end = total - start if length is None else start + length
    part = signal[..., start : min(end, total)] / weight[start : min(end, total)]
    return jnp.pad(part, [(0, 0)] * (part.ndim - 1) + [(0, max(end - total, 0))])


def scalar_beside(scalar, x):
    """`scalar` in the type that torch gives it beside `x`: a 0-dim tensor does not widen floats with dimensions."""
    both_float = jnp.issubdtype(scalar.dtype, jnp.floating) and jnp.issubdtype(x.dtype, jnp.floating)
    return scalar.astype(x.dtype) if both_float and scalar.ndim == 0 and x.ndim else scalar


def legacy_tensor(*data, dtype):
    """torch.FloatTensor(…) of something that may be sizes (an array with any values) or values."""
    if all(isinstance(size, (int, np.integer)) for size in data):
        return jnp.empty(data, dtype)
    if isinstance(data[0], tuple):
        raise TypeError("torch takes its own shapes for sizes and other tuples for values: say which this is")
    return jnp.array(*data, dtype=dtype)


def device_of(name):
    """The jax.Device that torch's name of one means: "cuda:1" and 1 are the second GPU. A device is itself."""
    if not isinstance(name, (str, int)):
        return name
    platform, _, index = str(name).partition(":")
    if platform.isdigit():
        platform, index = "cuda", platform
    return jax.devices({"xpu": "gpu", "mps": "METAL"}.get(platform, platform))[int(index or 0)]
