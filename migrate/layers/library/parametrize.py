"""Weights that are computed from other parameters: weight norm, spectral norm, parametrizations."""

import functools

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from .base import ModuleDict


@functools.cache
def _computing(layer, name, compute):
    """The class `layer`, with an attribute `name` that is computed at each read."""
    return type(layer.__name__, (layer,), {name: property(compute), "__module__": layer.__module__})


def _compute(module, name, compute):
    """Let `compute(module)` give the attribute `name` of a module from now on."""
    if hasattr(module, name):
        delattr(module, name)
    object.__setattr__(module, "__class__", _computing(type(module), name, compute))


def _norm_except(value, dim):
    """The norm over all dimensions but one; over all when `dim` is None."""
    axes = None if dim is None else tuple(i for i in range(value.ndim) if i != dim % value.ndim)
    return jnp.sqrt(jnp.square(value).sum(axes, keepdims=dim is not None))


@functools.cache
def _from_g_and_v(name, dim):
    def compute(module):
        g, v = getattr(module, f"{name}_g")[...], getattr(module, f"{name}_v")[...]
        return v * (g / _norm_except(v, dim))

    return compute


def weight_norm(module, name="weight", dim=0):
    """Give a layer's weight as length `weight_g` times direction `weight_v`. Returns the layer."""
    weight = getattr(module, name)[...]
    setattr(module, f"{name}_g", nnx.Param(_norm_except(weight, dim)))
    setattr(module, f"{name}_v", nnx.Param(weight))
    _compute(module, name, _from_g_and_v(name, dim))
    return module


def remove_weight_norm(module, name="weight"):
    """Make a weight under weight_norm a parameter again. Returns the layer."""
    weight = getattr(module, name)
    object.__setattr__(module, "__class__", type(module).__mro__[1])
    delattr(module, f"{name}_g")
    delattr(module, f"{name}_v")
    setattr(module, name, nnx.Param(weight))
    return module


def _unit(vector, eps):
    return vector / jnp.maximum(jnp.linalg.norm(vector), eps)


def _power_iteration(matrix, u, v, steps, eps):
    """Left and right singular vectors of the largest singular value, better by some steps."""
    matrix = lax.stop_gradient(matrix)
    for _ in range(steps):
        u = _unit(matrix @ v, eps)
        v = _unit(matrix.T @ u, eps)
    return u, v


def _as_matrix(weight, dim):
    return jnp.moveaxis(weight, dim, 0).reshape(weight.shape[dim], -1)


def _draw_unit(rngs, size, eps):
    return _unit(jax.random.normal(rngs.params(), (size,)), eps)


class _Vector(nnx.Variable):
    """Singular vector of the power iteration: saved with the model, not trained."""


@functools.cache
def _from_orig(name, dim, steps, eps):
    def compute(module):
        weight = getattr(module, f"{name}_orig")[...]
        matrix = _as_matrix(weight, dim)
        u, v = getattr(module, f"{name}_u"), getattr(module, f"{name}_v")
        if not module.deterministic:
            for _ in range(steps):
                v[...] = _unit(lax.stop_gradient(matrix).T @ u[...], eps)
                u[...] = _unit(lax.stop_gradient(matrix) @ v[...], eps)
        return weight / (u[...] @ matrix @ v[...])

    return compute


def spectral_norm(module, name="weight", n_power_iterations=1, eps=1e-12, dim=None, *, rngs: nnx.Rngs):
    """Divide a layer's weight by its largest singular value, which each call in training follows. Returns the layer."""
    dim = (1 if "Transpose" in type(module).__name__ else 0) if dim is None else dim
    weight = getattr(module, name)[...]
    rows, columns = _as_matrix(weight, dim).shape
    setattr(module, f"{name}_orig", nnx.Param(weight))
    setattr(module, f"{name}_u", _Vector(_draw_unit(rngs, rows, eps)))
    setattr(module, f"{name}_v", _Vector(_draw_unit(rngs, columns, eps)))
    module.deterministic = False
    _compute(module, name, _from_orig(name, dim, n_power_iterations, eps))
    return module


@functools.cache
def _from_parametrization(name):
    return lambda module: module.parametrizations[name]()


class _Parametrization(nnx.Module):
    """Holds what a weight is computed from; calling it computes the weight."""

    def __init__(self, originals, functions):
        names = ["original"] if len(originals) == 1 else [f"original{i}" for i in range(len(originals))]
        for original, value in zip(names, originals, strict=True):
            setattr(self, original, nnx.Param(value))
        self.originals = tuple(names)
        for i, function in enumerate(functions):
            setattr(self, str(i), function)
        self.count = len(functions)

    def __call__(self):
        values = [getattr(self, name)[...] for name in self.originals]
        for i in range(self.count):
            values = [getattr(self, str(i))(*values)]
        return values[0]


class _WeightNorm(nnx.Module):
    def __init__(self, dim):
        self.dim = dim

    def __call__(self, g, v):
        return v * (g / _norm_except(v, self.dim))


class _SpectralNorm(nnx.Module):
    """train() and eval() set `deterministic`."""

    def __init__(self, weight, steps, eps, dim, rngs):
        self.steps, self.eps, self.dim, self.deterministic = steps, eps, dim, False
        if weight.ndim > 1:
            matrix = _as_matrix(weight, dim)
            u, v = (_draw_unit(rngs, size, eps) for size in matrix.shape)
            u, v = _power_iteration(matrix, u, v, 15, eps)
            self._u, self._v = _Vector(u), _Vector(v)

    def __call__(self, weight):
        if weight.ndim == 1:
            return _unit(weight, self.eps)
        matrix = _as_matrix(weight, self.dim)
        if not self.deterministic:
            self._u[...], self._v[...] = _power_iteration(matrix, self._u[...], self._v[...], self.steps, self.eps)
        return weight / (self._u[...] @ matrix @ self._v[...])


def register_parametrization(module, tensor_name, parametrization, *, unsafe=False, originals=None):
    """Compute a layer's weight by calling `parametrization` on the parameter that it was. Returns the layer.

    `originals` are the arrays to compute from, when they are not the weight itself.
    """
    held = vars(module).get("parametrizations")
    if held is not None and tensor_name in held:
        own = held[tensor_name]
        setattr(own, str(own.count), parametrization)
        own.count += 1
        return module
    weight = getattr(module, tensor_name)[...]
    if originals is None:
        undo = getattr(parametrization, "right_inverse", lambda value: value)
        originals = undo(weight)
        originals = originals if isinstance(originals, (list, tuple)) else [originals]
    own = _Parametrization(originals, [parametrization])
    if held is None:
        module.parametrizations = ModuleDict()
    module.parametrizations[tensor_name] = own
    _compute(module, tensor_name, _from_parametrization(tensor_name))
    return module


def parametrized_weight_norm(module, name="weight", dim=0):
    """weight_norm with the names of torch's parametrizations: original0 is the length, original1 the direction."""
    weight = getattr(module, name)[...]
    return register_parametrization(module, name, _WeightNorm(dim), originals=[_norm_except(weight, dim), weight])


def parametrized_spectral_norm(module, name="weight", n_power_iterations=1, eps=1e-12, dim=None, *, rngs: nnx.Rngs):
    """spectral_norm with the names of torch's parametrizations: `original`, `0._u`, `0._v`."""
    dim = (1 if "Transpose" in type(module).__name__ else 0) if dim is None else dim
    weight = getattr(module, name)[...]
    return register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, eps, dim, rngs))


def parameters_to_vector(parameters):
    """All parameters as one vector."""
    return jnp.concatenate([p[...].reshape(-1) for p in parameters])


def vector_to_parameters(vec, parameters):
    """Write the parts of a vector into parameters."""
    at = 0
    for parameter in parameters:
        parameter[...] = vec[at : at + parameter.size].reshape(parameter.shape)
        at += parameter.size
