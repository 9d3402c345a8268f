"""Linear layers."""

import math

import jax
import jax.numpy as jnp
from flax import nnx


def _uniform(rngs, shape, bound):
    return jax.random.uniform(rngs.params(), shape, minval=-bound, maxval=bound)


def _array(variable):
    """The array of a parameter or buffer that may be None."""
    return None if variable is None else variable[...]


def linear(input, weight, bias=None):
    """input @ weight.T + bias, with the weight as (out_features, in_features)."""
    y = input @ weight.T
    return y if bias is None else y + bias


class Linear(nnx.Module):
    """Fully connected layer on the last dimension; weight (out_features, in_features)."""

    def __init__(self, in_features, out_features, bias=True, *, rngs: nnx.Rngs):
        self.in_features, self.out_features = in_features, out_features
        bound = 1 / math.sqrt(in_features) if in_features else 0.0
        self.weight = nnx.Param(_uniform(rngs, (out_features, in_features), bound))
        self.bias = nnx.Param(_uniform(rngs, (out_features,), bound)) if bias else None

    def __call__(self, input):
        return linear(input, self.weight[...], _array(self.bias))


def bilinear(input1, input2, weight, bias=None):
    """input1 @ weight[o] @ input2 for each output feature o."""
    y = jnp.einsum("...i,oij,...j->...o", input1, weight, input2)
    return y if bias is None else y + bias


class Bilinear(nnx.Module):
    """Bilinear form of two inputs; weight (out_features, in1_features, in2_features)."""

    def __init__(self, in1_features, in2_features, out_features, bias=True, *, rngs: nnx.Rngs):
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        bound = 1 / math.sqrt(in1_features)
        self.weight = nnx.Param(_uniform(rngs, (out_features, in1_features, in2_features), bound))
        self.bias = nnx.Param(_uniform(rngs, (out_features,), bound)) if bias else None

    def __call__(self, input1, input2):
        return bilinear(input1, input2, self.weight[...], _array(self.bias))
