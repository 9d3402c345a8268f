"""Weight norm, spectral norm, parametrizations, new initial values: against torch, under jit and grad too."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from torch import nn
from torch.nn.utils import parametrizations, spectral_norm, weight_norm

from jaxmigrate.layers.library import base, conv, linear, norm, parametrize, recurrent

X = {nn.Linear: (3, 4), nn.Conv2d: (2, 4, 5, 5), nn.ConvTranspose1d: (2, 4, 5)}
OURS = {nn.Linear: linear.Linear, nn.Conv2d: conv.Conv2d, nn.ConvTranspose1d: conv.ConvTranspose1d}
ARGUMENTS: dict[type[nn.Module], tuple[int, ...]] = {
    nn.Linear: (4, 6), nn.Conv2d: (4, 6, 3), nn.ConvTranspose1d: (4, 6, 3),
}  # fmt: skip
NORMS = {
    "weight": (weight_norm, lambda layer: parametrize.weight_norm(layer)),
    "weight, all": (lambda m: weight_norm(m, dim=None), lambda layer: parametrize.weight_norm(layer, dim=None)),
    "weight, new": (parametrizations.weight_norm, lambda layer: parametrize.parametrized_weight_norm(layer)),
    "spectral": (spectral_norm, lambda layer: parametrize.spectral_norm(layer, rngs=nnx.Rngs(0))),
    "spectral, new": (
        parametrizations.spectral_norm,
        lambda layer: parametrize.parametrized_spectral_norm(layer, rngs=nnx.Rngs(0)),
    ),
}


@pytest.mark.filterwarnings("ignore:.*weight_norm.*deprecated")
@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("layer", OURS)
def test_values_state_and_gradients(layer: type[nn.Module], name: str) -> None:
    theirs, ours = NORMS[name]
    torch.manual_seed(0)
    original: Any = theirs(layer(*ARGUMENTS[layer]))
    model: Any = ours(OURS[layer](*ARGUMENTS[layer], rngs=nnx.Rngs(0)))
    base.load_state_dict(model, {k: v.numpy() for k, v in original.state_dict().items()})
    x = torch.randn(X[layer])
    step = nnx.jit(nnx.value_and_grad(lambda model, x: (model(x) ** 2).sum()))
    for mode in ("train", "train", "eval"):
        getattr(original, mode)()
        getattr(model, mode)()
        original.zero_grad()
        loss = original(x).square().sum()
        loss.backward()
        value, grads = step(model, jnp.asarray(x.numpy()))
        np.testing.assert_allclose(value, loss.item(), rtol=2e-5)
        own = dict(base.named_variables(nnx.merge(nnx.graphdef(model), grads, nnx.state(model, nnx.Not(nnx.Param)))))
        for key, parameter in original.named_parameters():
            np.testing.assert_allclose(own[key][...], parameter.grad.numpy(), rtol=1e-4, atol=1e-4)
        state = base.state_dict(model)
        for key, tensor in original.state_dict().items():
            np.testing.assert_allclose(state[key], tensor.numpy(), rtol=1e-5, atol=1e-5)


def test_a_parametrization_of_ones_own() -> None:
    class Symmetric(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.triu() + x.triu(1).transpose(-1, -2)

    class OwnSymmetric(nnx.Module):
        def __call__(self, x: Any) -> Any:
            return jnp.triu(x) + jnp.triu(x, 1).swapaxes(-1, -2)

    original = nn.Linear(4, 4)
    nn.utils.parametrize.register_parametrization(original, "weight", Symmetric())
    model: Any = parametrize.register_parametrization(linear.Linear(4, 4, rngs=nnx.Rngs(0)), "weight", OwnSymmetric())
    base.load_state_dict(model, {k: v.numpy() for k, v in original.state_dict().items()})
    x = torch.randn(2, 4)
    np.testing.assert_allclose(model(jnp.asarray(x.numpy())), original(x).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_weight_norm_can_be_removed() -> None:
    layer: Any = linear.Linear(4, 6, rngs=nnx.Rngs(0))
    before = layer.weight[...]
    again = parametrize.remove_weight_norm(parametrize.weight_norm(layer))
    assert type(again) is linear.Linear and isinstance(again.weight, nnx.Param)
    np.testing.assert_allclose(again.weight[...], before, rtol=1e-6)


RESET: list[Callable[[], Any]] = [
    lambda: linear.Linear(300, 200, rngs=nnx.Rngs(0)),
    lambda: linear.Linear(300, 200, bias=False, rngs=nnx.Rngs(0)),
    lambda: conv.Conv2d(30, 40, 3, padding_mode="reflect", padding=1, rngs=nnx.Rngs(0)),
    lambda: recurrent.LSTM(50, 40, 2, bidirectional=True, rngs=nnx.Rngs(0)),
]


@pytest.mark.parametrize("make", RESET)
def test_reset_draws_from_the_same_distribution(make: Callable[[], Any]) -> None:
    layer = make()
    before = {k: np.array(v) for k, v in base.state_dict(layer).items()}
    base.reset_parameters(layer, rngs=nnx.Rngs(1))
    after = base.state_dict(layer)
    assert list(after) == list(before)
    for key, values in after.items():
        assert not np.array_equal(values, before[key])
        assert np.abs(values).max() == pytest.approx(np.abs(before[key]).max(), rel=0.1)
        assert values.std() == pytest.approx(before[key].std(), rel=0.15)


def test_reset_of_running_statistics() -> None:
    layer: Any = norm.BatchNorm1d(3)
    fresh = copy.deepcopy(base.state_dict(layer))
    layer(jnp.arange(12.0).reshape(4, 3))
    assert not np.array_equal(layer.running_mean[...], fresh["running_mean"])
    base.reset_parameters(layer, rngs=nnx.Rngs(0))
    for key, values in base.state_dict(layer).items():
        np.testing.assert_array_equal(values, fresh[key])


def test_frozen_parameters_have_no_gradient_and_keep_their_place() -> None:
    layer: Any = linear.Linear(3, 2, rngs=nnx.Rngs(0))
    base.freeze(layer.weight)
    grads = nnx.grad(lambda layer: layer(jnp.ones((1, 3))).sum())(layer)
    assert list(grads) == ["bias"]
    assert [n for n, _ in base.named_parameters(layer)] == ["weight", "bias"]
    assert list(base.state_dict(layer)) == ["weight", "bias"]
