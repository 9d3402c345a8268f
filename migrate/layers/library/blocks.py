"""What vision models import from timm.layers, torchvision.ops and torch.nn.modules.utils."""

from collections.abc import Iterable

import jax
import jax.numpy as jnp
from flax import nnx

from .activation import GELU
from .base import Identity
from .conv import Conv2d
from .dropout import Dropout
from .linear import Linear


def ntuple(x, n):
    """An iterable as a tuple, anything else n times."""
    return tuple(x) if isinstance(x, Iterable) else (x,) * n


def _repeated(x, n):
    return (x,) * n if isinstance(x, str) else ntuple(x, n)


def to_1tuple(x):
    """An iterable as a tuple, anything else as a tuple of one."""
    return _repeated(x, 1)


def to_2tuple(x):
    """An iterable as a tuple, anything else twice."""
    return _repeated(x, 2)


def to_3tuple(x):
    """An iterable as a tuple, anything else three times."""
    return _repeated(x, 3)


def drop_path(x, key, drop_prob=0.0, training=False, scale_by_keep=True):
    """Zero whole samples with probability drop_prob, and scale the others by 1 / (1 - drop_prob)."""
    if drop_prob == 0 or not training:
        return x
    keep = 1 - drop_prob
    mask = jax.random.bernoulli(key, keep, x.shape[:1] + (1,) * (x.ndim - 1))
    return jnp.where(mask, x / keep if keep > 0 and scale_by_keep else x, 0)


class DropPath(nnx.Module):
    """Zeroes whole samples: stochastic depth for the branch of a residual block (arXiv:1603.09382)."""

    def __init__(self, drop_prob=0.0, scale_by_keep=True, *, rngs: nnx.Rngs):
        self.drop_prob, self.scale_by_keep = drop_prob, scale_by_keep
        self.deterministic, self.rngs = False, rngs.dropout.fork()

    def __call__(self, x):
        if self.deterministic or not self.drop_prob:
            return x
        return drop_path(x, self.rngs(), self.drop_prob, True, self.scale_by_keep)


def stochastic_depth(input, key, p, mode, training=True):
    """Zero the whole batch (mode "batch") or whole samples ("row") with probability p; scale what is kept."""
    if not 0 <= p <= 1:
        raise ValueError(f"drop probability has to be between 0 and 1, but got {p}")
    if mode not in ("batch", "row"):
        raise ValueError(f"mode has to be either 'batch' or 'row', but got {mode}")
    if not training or p == 0:
        return input
    count = input.shape[0] if mode == "row" else 1
    mask = jax.random.bernoulli(key, 1 - p, (count,) + (1,) * (input.ndim - 1))
    return jnp.where(mask, input / (1 - p) if p < 1 else input, 0)


class StochasticDepth(nnx.Module):
    """stochastic_depth as a layer."""

    def __init__(self, p, mode, *, rngs: nnx.Rngs):
        self.p, self.mode = p, mode
        self.deterministic, self.rngs = False, rngs.dropout.fork()

    def __call__(self, input):
        return input if self.deterministic else stochastic_depth(input, self.rngs(), self.p, self.mode)


class Permute(nnx.Module):
    """Puts the dimensions in another order."""

    def __init__(self, dims, *, rngs: nnx.Rngs | None = None):
        self.dims = tuple(dims)

    def __call__(self, x):
        return jnp.permute_dims(x, self.dims)


class Mlp(nnx.Module):
    """Two linear layers (1x1 convolutions with use_conv) with an activation and dropout between: timm's Mlp."""

    def __init__(
        self,
        in_features,
        hidden_features=None,
        out_features=None,
        act_layer=GELU,
        norm_layer=None,
        bias=True,
        drop=0.0,
        use_conv=False,
        *,
        rngs: nnx.Rngs,
    ):
        hidden, out = hidden_features or in_features, out_features or in_features
        (bias1, bias2), (drop1, drop2) = to_2tuple(bias), to_2tuple(drop)
        shape = {"kernel_size": 1} if use_conv else {}
        layer = Conv2d if use_conv else Linear
        self.fc1 = layer(in_features, hidden, bias=bias1, rngs=rngs, **shape)
        self.act = act_layer(rngs=rngs)
        self.drop1 = Dropout(drop1, rngs=rngs)
        self.norm = Identity() if norm_layer is None else norm_layer(hidden, rngs=rngs)
        self.fc2 = layer(hidden, out, bias=bias2, rngs=rngs, **shape)
        self.drop2 = Dropout(drop2, rngs=rngs)

    def __call__(self, x):
        x = self.norm(self.drop1(self.act(self.fc1(x))))
        return self.drop2(self.fc2(x))
