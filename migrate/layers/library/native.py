"""The second dialect, `--layers nnx`: Flax's own layers, with torch's arguments, initial values and channel order.

These definitions take the place of the library's of the same name. Their weights have Flax's names and layouts; the
functions below go on speaking torch's.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from .base import NonPersistentBuffer, _attributes
from .conv import _PAD_MODES, _same_or_pairs, _tuple


def torch_uniform(fan_in):
    """Initialiser of torch's weights and biases: uniform within 1 / sqrt(fan_in)."""
    bound = 1 / math.sqrt(fan_in) if fan_in else 0.0
    return lambda key, shape, dtype=jnp.float32: jax.random.uniform(key, shape, dtype, -bound, bound)


class Linear(nnx.Linear):
    """nnx.Linear with torch's arguments and initial values."""

    def __init__(self, in_features, out_features, bias=True, *, rngs: nnx.Rngs):
        init = torch_uniform(in_features)
        super().__init__(in_features, out_features, use_bias=bias, kernel_init=init, bias_init=init, rngs=rngs)


class Embedding(nnx.Embed):
    """nnx.Embed with torch's arguments and initial values."""

    def __init__(self, num_embeddings, embedding_dim, *, rngs: nnx.Rngs):
        super().__init__(num_embeddings, embedding_dim, embedding_init=nnx.initializers.normal(1.0), rngs=rngs)


class LayerNorm(nnx.LayerNorm):
    """nnx.LayerNorm with torch's arguments, over the last dimension."""

    def __init__(self, normalized_shape, eps=1e-5, elementwise_affine=True, bias=True, *, rngs: nnx.Rngs):
        (features,) = _tuple(normalized_shape, 1)
        super().__init__(
            features,
            epsilon=eps,
            use_scale=elementwise_affine,
            use_bias=elementwise_affine and bias,
            use_fast_variance=False,
            rngs=rngs,
        )


class RMSNorm(nnx.RMSNorm):
    """nnx.RMSNorm with torch's arguments, over the last dimension."""

    def __init__(self, normalized_shape, eps, elementwise_affine=True, *, rngs: nnx.Rngs):
        (features,) = _tuple(normalized_shape, 1)
        super().__init__(features, epsilon=eps, use_scale=elementwise_affine, rngs=rngs)


class GroupNorm(nnx.GroupNorm):
    """nnx.GroupNorm with torch's arguments, over (N, C, ...)."""

    def __init__(self, num_groups, num_channels, eps=1e-5, affine=True, *, bias=True, rngs: nnx.Rngs):
        super().__init__(
            num_channels,
            num_groups,
            epsilon=eps,
            use_scale=affine,
            use_bias=affine and bias,
            use_fast_variance=False,
            rngs=rngs,
        )

    def __call__(self, input):
        return jnp.moveaxis(super().__call__(jnp.moveaxis(input, 1, -1)), -1, 1)


class _ChannelsFirstConv(nnx.Conv):
    """nnx.Conv with torch's arguments, channels first, over `ndim` dimensions; kernel (..., in / groups, out)."""

    ndim: int

    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        dilation=1,
        groups=1,
        bias=True,
        padding_mode="zeros",
        *,
        rngs: nnx.Rngs,
    ):
        kernel_size, stride, dilation = (_tuple(v, self.ndim) for v in (kernel_size, stride, dilation))
        init = torch_uniform(in_channels // groups * math.prod(kernel_size))
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding=tuple(_same_or_pairs(padding, kernel_size, dilation)),
            kernel_dilation=dilation,
            feature_group_count=groups,
            use_bias=bias,
            kernel_init=init,
            bias_init=init,
            rngs=rngs,
        )
        self.border = None
        if padding_mode != "zeros":
            self.border, self.padding, self.padding_mode = self.padding, "VALID", _PAD_MODES[padding_mode]

    def __call__(self, input):
        x = jnp.moveaxis(input, -1 - self.ndim, -1)
        if self.border is not None:
            lead = ((0, 0),) * (x.ndim - self.ndim - 1)
            x = jnp.pad(x, (*lead, *self.border, (0, 0)), mode=self.padding_mode)
        return jnp.moveaxis(super().__call__(x), -1, -1 - self.ndim)


class Conv1d(_ChannelsFirstConv):
    """nnx.Conv over (N, C, L)."""

    ndim = 1


class Conv2d(_ChannelsFirstConv):
    """nnx.Conv over (N, C, H, W)."""

    ndim = 2


class Conv3d(_ChannelsFirstConv):
    """nnx.Conv over (N, C, D, H, W)."""

    ndim = 3


class _ChannelsFirstConvTranspose(nnx.ConvTranspose):
    """nnx.ConvTranspose with torch's arguments, channels first, over `ndim` dimensions; kernel (..., out, in)."""

    ndim: int

    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        output_padding=0,
        groups=1,
        bias=True,
        dilation=1,
        *,
        rngs: nnx.Rngs,
    ):
        if groups != 1:
            raise ValueError("nnx.ConvTranspose has no groups")
        sizes = (kernel_size, stride, padding, output_padding, dilation)
        kernel_size, stride, padding, output_padding, dilation = (_tuple(v, self.ndim) for v in sizes)
        spans = [d * (k - 1) for d, k in zip(dilation, kernel_size, strict=True)]
        init = torch_uniform(out_channels * math.prod(kernel_size))
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding=tuple((s - p, s - p + o) for s, p, o in zip(spans, padding, output_padding, strict=True)),
            kernel_dilation=dilation,
            use_bias=bias,
            kernel_init=init,
            bias_init=init,
            transpose_kernel=True,
            rngs=rngs,
        )

    def __call__(self, input):
        x = jnp.moveaxis(input, -1 - self.ndim, -1)
        return jnp.moveaxis(super().__call__(x), -1, -1 - self.ndim)


class ConvTranspose1d(_ChannelsFirstConvTranspose):
    """nnx.ConvTranspose over (N, C, L)."""

    ndim = 1


class ConvTranspose2d(_ChannelsFirstConvTranspose):
    """nnx.ConvTranspose over (N, C, H, W)."""

    ndim = 2


class ConvTranspose3d(_ChannelsFirstConvTranspose):
    """nnx.ConvTranspose over (N, C, D, H, W)."""

    ndim = 3


_TRANSPOSED = (nnx.Linear, nnx.Conv, nnx.ConvTranspose)
_RENAMED = (*_TRANSPOSED, nnx.Embed, nnx.LayerNorm, nnx.RMSNorm, nnx.GroupNorm)


def _as_torch(module, name, variable):
    """Torch's name of a module's own variable, and the order of axes that makes it torch's array (None: as it is)."""
    if not isinstance(module, _RENAMED) or name not in ("kernel", "scale", "embedding"):
        return name, None
    ndim = variable.ndim
    return "weight", (ndim - 1, ndim - 2, *range(ndim - 2)) if isinstance(module, _TRANSPOSED) else None


def _named(module, prefix=""):
    own = [(name, value) for name, value in _attributes(module) if isinstance(value, nnx.Variable)]
    for name, variable in sorted(own, key=lambda pair: not isinstance(pair[1], nnx.Param)):
        torch_name, axes = _as_torch(module, name, variable)
        yield prefix + torch_name, variable, axes
    for name, value in _attributes(module):
        if isinstance(value, nnx.Module):
            yield from _named(value, f"{prefix}{name}.")


def named_variables(module, prefix=""):
    """Yield (torch's dotted name, Variable): a module's parameters, then its buffers, then those of its children.

    A shared Variable comes under each of its names. Random streams are left out.
    """
    for name, variable, _ in _named(module, prefix):
        yield name, variable


def torch_axes(module):
    """By torch's name, the order of axes that makes a variable torch's array, where Flax's layout is another one."""
    return {name: axes for name, _, axes in _named(module) if axes is not None}


def state_dict(module):
    """All parameters and saved buffers by torch's names, in torch's layouts, as NumPy arrays."""
    saved = ((name, v, axes) for name, v, axes in _named(module) if not isinstance(v, NonPersistentBuffer))
    return {name: np.transpose(v[...], axes) if axes else np.asarray(v[...]) for name, v, axes in saved}


def load_state_dict(module, state_dict, strict=True):
    """Copy torch's arrays (or CPU tensors) into the variables, in Flax's layouts; shared ones stay shared.

    Returns the names that the state_dict lacks and those that the module lacks. Raises ValueError, before anything is
    copied, when a shape differs, and if `strict` when a name is missing or unexpected.
    """
    own = {name: v for name, v, _ in _named(module) if not isinstance(v, NonPersistentBuffer)}
    orders = torch_axes(module)
    values = {name: np.asarray(state_dict[name]) for name in own if name in state_dict}
    for name, axes in orders.items():
        if name in values and values[name].ndim == len(axes):
            values[name] = values[name].transpose(np.argsort(axes))
    missing = [name for name in own if name not in state_dict]
    unexpected = [name for name in state_dict if name not in own]
    wrong = [f"{n}: {v.shape} given, {own[n].shape} needed" for n, v in values.items() if v.shape != own[n].shape]
    problems = {"missing": missing if strict else [], "unexpected": unexpected if strict else [], "shape": wrong}
    if any(problems.values()):
        raise ValueError("\n".join(f"{kind}: {', '.join(names)}" for kind, names in problems.items() if names))
    for name, value in values.items():
        own[name][...] = jnp.array(value, own[name].dtype)
    return missing, unexpected
