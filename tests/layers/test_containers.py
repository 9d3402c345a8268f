"""Containers, names and weights: the order, the names and the errors are torch's."""

from __future__ import annotations

from collections import OrderedDict

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from torch import nn

from jaxmigrate.layers.library import activation, base, conv, dropout, linear, norm


class Theirs(nn.Module):
    """Parameters after children, a shared weight, buffers, names that do not sort."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        self.body = nn.ModuleList([nn.Linear(4, 4) for _ in range(11)])
        self.head = nn.Linear(4, 4, bias=False)
        self.also = nn.ModuleDict({"z": nn.Linear(4, 2), "a": nn.Linear(4, 2)})
        self.register_buffer("scale", torch.ones(2))
        self.register_buffer("mask", torch.ones(2), persistent=False)
        self.gamma = nn.Parameter(torch.zeros(4))
        self.drop = nn.Dropout(0.1)
        self.body[0].weight = self.head.weight


class Ours(nnx.Module):
    def __init__(self, *, rngs: nnx.Rngs):
        self.stem = base.Sequential(conv.Conv2d(3, 4, 3, rngs=rngs), norm.BatchNorm2d(4), activation.ReLU())
        self.body = base.ModuleList([linear.Linear(4, 4, rngs=rngs) for _ in range(11)])
        self.head = linear.Linear(4, 4, bias=False, rngs=rngs)
        self.also = base.ModuleDict({"z": linear.Linear(4, 2, rngs=rngs), "a": linear.Linear(4, 2, rngs=rngs)})
        self.scale = base.Buffer(jnp.ones(2))
        self.mask = base.NonPersistentBuffer(jnp.ones(2))
        self.gamma = nnx.Param(jnp.zeros(4))
        self.drop = dropout.Dropout(0.1, rngs=rngs)
        self.body[0].weight = self.head.weight

    def __call__(self, x):
        x = self.stem(x).mean((2, 3))
        for layer in self.body:
            x = self.drop(layer(x))
        return sum(m(self.head(x)) for m in self.also.values()) * self.scale[...]


def names(pairs):
    return [name for name, _ in pairs]


def test_names_and_order_are_torchs_also_after_jit(rngs):
    theirs, ours = Theirs(), Ours(rngs=rngs)
    for _ in range(2):
        assert list(base.state_dict(ours)) == list(theirs.state_dict())
        assert names(base.named_parameters(ours)) == names(theirs.named_parameters())
        assert names(base.named_buffers(ours)) == names(theirs.named_buffers())
        assert names(base.named_children(ours)) == names(theirs.named_children())
        assert names(base.named_modules(ours)) == names(theirs.named_modules())
        nnx.jit(nnx.value_and_grad(lambda m, x: m(x).sum()))(ours, jnp.ones((2, 3, 8, 8)))


def test_weights_load_and_stay_shared(rngs):
    theirs, ours = Theirs(), Ours(rngs=rngs)
    assert base.load_state_dict(ours, theirs.state_dict()) == ([], [])
    assert ours.body[0].weight is ours.head.weight
    for name, value in base.state_dict(ours).items():
        np.testing.assert_array_equal(value, theirs.state_dict()[name])
    loaded = theirs.load_state_dict({k: torch.tensor(v) for k, v in base.state_dict(ours).items()})
    assert not loaded.missing_keys and not loaded.unexpected_keys


def test_loading_names_all_that_is_wrong(rngs):
    ours = Ours(rngs=rngs)
    before = base.state_dict(ours)
    state = dict(before)
    del state["gamma"], state["also.z.bias"]
    state |= {"extra": np.ones(1), "more": np.ones(1), "scale": np.ones(3), "head.weight": np.zeros((4, 4))}
    with pytest.raises(ValueError) as failure:
        base.load_state_dict(ours, state)
    for word in ("gamma", "also.z.bias", "extra", "more", "scale: (3,) given, (2,) needed"):
        assert word in str(failure.value)
    np.testing.assert_array_equal(ours.head.weight[...], before["head.weight"])
    state["scale"] = np.full(2, 7.0)
    assert base.load_state_dict(ours, state, strict=False) == (["gamma", "also.z.bias"], ["extra", "more"])
    np.testing.assert_array_equal(ours.scale[...], [7, 7])


def test_sequential_is_a_list_of_layers(rngs):
    layers = [linear.Linear(2, 2, rngs=rngs) for _ in range(5)]
    seq = base.Sequential(*layers[:3])
    assert len(seq) == 3 and list(seq) == layers[:3] and seq[-1] is layers[2]
    assert list(seq.append(layers[3])) == layers[:4]
    assert list(seq[1:3]) == layers[1:3] and isinstance(seq[1:], base.Sequential)
    assert names(base.named_parameters(seq[1:2])) == ["1.weight", "1.bias"]  # as in torch
    seq[0] = layers[4]
    seq.insert(1, layers[0])
    assert list(seq) == [layers[4], layers[0], *layers[1:4]]
    del seq[1]
    del seq[2:]
    assert list(seq) == [layers[4], layers[1]] and names(base.named_children(seq)) == ["0", "1"]
    x = jnp.ones((1, 2))
    np.testing.assert_array_equal(seq.extend([jnp.tanh])(x), jnp.tanh(layers[1](layers[4](x))))


def test_sequential_with_names_and_attributes(rngs, normal):
    named = OrderedDict(second=linear.Linear(2, 3, rngs=rngs), first=linear.Linear(3, 4, rngs=rngs))
    seq = base.Sequential(named)
    assert names(base.named_parameters(seq)) == ["second.weight", "second.bias", "first.weight", "first.bias"]

    class Transition(base.Sequential):  # the way torchvision writes it
        def __init__(self, *, rngs):
            super().__init__()
            self.norm = linear.Linear(2, 3, rngs=rngs)
            self.conv = linear.Linear(3, 2, rngs=rngs)

    layer, x = Transition(rngs=rngs), jnp.asarray(normal(1, 2))
    np.testing.assert_allclose(nnx.jit(lambda m, x: m(x))(layer, x), layer.conv(layer.norm(x)), rtol=1e-6)
    np.testing.assert_allclose(layer(x), layer.conv(layer.norm(x)))


def test_sequential_passes_one_value(rngs):
    assert base.Sequential(lambda x: (x, x), lambda pair: pair[0])(1) == 1
    assert base.Sequential()(3) == 3


def test_module_list(rngs):
    layers = [linear.Linear(2, 2, rngs=rngs) for _ in range(4)]
    modules = base.ModuleList(layers[:2])
    modules += [layers[2]]
    modules.insert(0, layers[3])
    assert list(modules) == [layers[3], *layers[:3]] and modules[-1] is layers[2] and len(modules) == 4
    assert isinstance(modules[1:3], base.ModuleList) and list(modules[1:3]) == layers[:2]
    assert list(modules[:1] + modules[2:]) == [layers[3], layers[1], layers[2]]
    assert names(base.named_parameters(modules))[:2] == ["0.weight", "0.bias"]

    class Half(nnx.Module):
        def __init__(self):
            self.layers = modules[::2]

    assert list(Half().layers) == [layers[3], layers[1]]
    modules.pop(0)
    assert list(modules) == layers[:3]


def test_module_dict_keeps_its_order_under_and_after_jit(rngs):
    keys = ["b", "c", "a", "10", "9"]
    modules = base.ModuleDict({k: linear.Linear(2, 2, rngs=rngs) for k in keys})
    seen = []
    nnx.jit(lambda m: seen.append((list(m), list(m.items()), list(m.keys()))) or m["a"].weight[...])(modules)
    assert seen[0][0] == keys and [k for k, _ in seen[0][1]] == keys and seen[0][2] == keys
    assert list(modules) == keys and len(modules) == 5 and "a" in modules and "z" not in modules
    modules["0"] = linear.Linear(2, 2, rngs=rngs)
    assert modules.pop("c") is not None and list(modules) == ["b", "a", "10", "9", "0"]
    with pytest.raises(KeyError):
        modules["c"]
    np.testing.assert_array_equal(modules.a.weight[...], list(modules.values())[1].weight[...])


def test_parameter_containers():
    values = base.ParameterList([jnp.ones(2), nnx.Param(jnp.zeros(3))])
    values.append(jnp.ones(1))
    assert [v.shape for v in values] == [(2,), (3,), (1,)] and all(isinstance(v, nnx.Param) for v in values)
    named = base.ParameterDict({"z": jnp.ones(2), "a": jnp.ones(3)})
    nnx.jit(lambda m: 0)(named)
    assert names(base.named_parameters(named)) == ["a", "z"] and named["a"].shape == (3,)


def test_flatten_and_unflatten(same, normal):
    same(nn.Flatten(), base.Flatten(), normal(2, 3, 4, 5), modes=("train",))
    same(nn.Flatten(0, -2), base.Flatten(0, -2), normal(2, 3, 4, 5), modes=("train",))
    same(nn.Unflatten(1, (2, -1)), base.Unflatten(1, (2, -1)), normal(2, 6, 3), modes=("train",))
    same(torch.flatten, base.flatten, normal(2, 3, 4))
    same(torch.flatten, base.flatten, np.array(3.0, np.float32))
    same(torch.unflatten, base.unflatten, normal(2, 6), -1, (3, 2))
    assert base.Identity(54, unused=True)(3) == 3


def test_modes_reach_every_layer(rngs):
    ours = Ours(rngs=rngs)
    ours.eval()
    assert ours.drop.deterministic and ours.stem[1].use_running_average
    x = jax.random.normal(jax.random.key(0), (2, 3, 8, 8))
    np.testing.assert_array_equal(ours(x), ours(x))
    ours.train()
    assert not ours.drop.deterministic and not np.array_equal(ours(x), ours(x))


def test_clone_module_has_its_own_random_stream(rngs):
    first = dropout.Dropout(0.5, rngs=rngs)
    second = base.clone_module(first, rngs=rngs)
    assert not np.array_equal(first(jnp.ones(64)), second(jnp.ones(64)))
