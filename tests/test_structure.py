"""Models that hold and name their parts in every usual way: the same numbers as torch, and the same state_dict."""

from __future__ import annotations

import inspect
import sys
import types
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import structures
import structures_chosen
import torch
from converted import arrays, convert, under_jax, under_torch, with_layers
from flax import nnx

from jaxmigrate.layers.library.base import load_state_dict

HOMES = (structures, structures_chosen)
HEAD = structures.HEAD
EQUAL = {name: source for home in HOMES for name, source in home.EQUAL.items()}
REPORTED = {name: source for home in HOMES for name, source in home.REPORTED.items()}
INPUTS = {name: source for home in HOMES for name, source in home.INPUTS.items()}
INITIALISED = tuple(name for home in HOMES for name in home.INITIALISED)


def original(source: str) -> types.ModuleType:
    """The program as a module, which dataclasses look up by its name."""
    module = sys.modules["original"] = types.ModuleType("original")
    exec(compile(source, "original.py", "exec"), module.__dict__)
    return module


def build(program: types.ModuleType) -> Any:
    takes = "rngs" in inspect.signature(program.Net.__init__).parameters
    return program.Net(rngs=nnx.Rngs(0)) if takes else program.Net()


@pytest.mark.parametrize("name", EQUAL)
def test_equal(name: str, tmp_path: Path) -> None:
    source = HEAD + EQUAL[name]
    converted = convert(source)
    assert not converted.left
    torch.manual_seed(0)
    program = original(source)
    net = program.Net()
    x = eval(INPUTS.get(name, "torch.randn(2, 4)"), {"torch": torch})
    if name not in INITIALISED:
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.add_(0.1 * torch.randn(parameter.shape))
    state = arrays(net.state_dict())
    written, layers = with_layers(converted, tmp_path)
    model = build(written)
    if name in INITIALISED:
        given = {n: np.asarray(v[...]) for n, v in layers.named_variables(model)}
        fixed = [n for n in state if "weight" in n and state[n].size and np.ptp(state[n]) == 0]
        assert fixed
        for key in fixed:
            np.testing.assert_allclose(given[key], state[key])
    layers.load_state_dict(model, state)
    for mode in ("eval", "train"):
        getattr(net, mode)()
        getattr(model, mode)()
        expected = net(x).detach().numpy()
        np.testing.assert_allclose(np.asarray(model(jnp.asarray(x.numpy()))), expected, rtol=1e-5, atol=1e-5)
    after = arrays(net.state_dict())
    assert sorted(dict(layers.named_variables(model))) >= sorted(after)


@pytest.mark.parametrize("name", REPORTED)
def test_reported(name: str) -> None:
    code, source = REPORTED[name]
    assert code in [entry.partition(" ")[0] for entry in convert(HEAD + source).left]


NAMESAKES = """
import torch
from torch import nn
from torch.nn import Linear
from torch.utils.data import DataLoader, Dataset

class Dataset(Dataset):
    def __init__(self, xs):
        super().__init__()
        self.xs = xs
    def __len__(self):
        return len(self.xs)
    def __getitem__(self, i):
        return self.xs[i] + 1

class Linear(Linear):
    def forward(self, x):
        return super().forward(x) * 2

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = Linear(3, 3)
    def forward(self, x):
        return self.fc(x)
"""


def test_classes_named_like_the_import_they_extend(tmp_path: Path) -> None:
    converted = convert(NAMESAKES)
    assert not converted.left and "from torch" not in converted.text, converted.text
    model, module = under_torch(NAMESAKES).Net(), under_jax(converted, tmp_path)
    twin = module.Net(rngs=nnx.Rngs(0))
    load_state_dict(twin, {k: v.numpy() for k, v in model.state_dict().items()})
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_allclose(twin(jnp.asarray(x)), model(torch.tensor(x)).detach().numpy(), atol=1e-6)
    assert module.Dataset([1, 2])[1] == 3
    assert convert(NAMESAKES.replace("class Dataset(", "kept = Dataset\nclass Dataset(")).left  # also read before


SUPER = """
import torch
from torch import nn

class Norm(nn.GroupNorm):
    def forward(self, x):
        return super().forward(x.float()).type(x.dtype)

class Middle(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = Norm(1, 4)
    def forward(self, x):
        return self.norm(x)

class Net(Middle):
    def forward(self, x):
        return super().forward(x).clamp(min=0.1)
"""


def test_what_the_forward_of_a_base_gives(tmp_path: Path) -> None:
    converted = convert(SUPER)
    assert not converted.left, converted.left
    model, module = under_torch(SUPER).Net(), under_jax(converted, tmp_path)
    x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 4, 3)
    np.testing.assert_allclose(module.Net()(jnp.asarray(x)), model(torch.tensor(x)).detach().numpy(), atol=1e-6)


FALLBACK = """
import torch
from torch import nn
from einops.layers.torch import Rearrange
try:
    from torch.nn.utils.parametrizations import weight_norm
except ImportError:
    from torch.nn.utils import weight_norm

class Patches(nn.Module):
    def __init__(self, **sizes):
        super().__init__()
        self.split = Rearrange("b (h w) -> b h w", **sizes)
        self.fc = weight_norm(nn.Linear(4, 4))
    def forward(self, x):
        return self.split(self.fc(x))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = Patches(h=2)
    def forward(self, x):
        return self.patches(x)
"""


def test_imports_for_older_releases_and_sizes_handed_on(tmp_path: Path) -> None:
    converted = convert(FALLBACK)
    assert not converted.left and "parametrized_weight_norm(" in converted.text, converted.left
    model, module = under_torch(FALLBACK).Net(), under_jax(converted, tmp_path)
    twin = module.Net(rngs=nnx.Rngs(0))
    load_state_dict(twin, {k: v.numpy() for k, v in model.state_dict().items()})
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    np.testing.assert_allclose(twin(jnp.asarray(x)), model(torch.tensor(x)).detach().numpy(), atol=1e-6)
