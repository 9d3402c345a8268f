"""What models import from timm.layers and torchvision.ops. Neither package is installed here: their formulas, in torch,
stand in for them (timm 1.0 layers/drop.py and mlp.py, torchvision 0.20 ops/stochastic_depth.py)."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from converted import arrays, convert, under_jax, under_torch, with_layers
from flax import nnx

from jaxmigrate.layers.library.blocks import (
    DropPath,
    drop_path,
    ntuple,
    stochastic_depth,
    to_1tuple,
    to_2tuple,
    to_3tuple,
)
from jaxmigrate.project import convert_files
from jaxmigrate.read.source import Source
from jaxmigrate.rulebook import load_rules

PROGRAM = """
import torch
from torch import nn
from timm.layers import DropPath, Mlp, to_2tuple, trunc_normal_
from timm.data import IMAGENET_DEFAULT_MEAN
from torchvision.ops import Permute, StochasticDepth
from functools import partial

class Block(nn.Module):
    def __init__(self, dim, drop_path=0.0, size=2):
        super().__init__()
        self.size = to_2tuple(size)
        self.mlp = Mlp(dim, dim * 2, act_layer=nn.ReLU, drop=0.1)
        self.norm = Mlp(in_features=dim, norm_layer=partial(nn.LayerNorm, eps=1e-3), bias=(True, False))
        self.drop_path = DropPath(drop_path) if drop_path > 0.0 else nn.Identity()
        self.depth = StochasticDepth(0.2, "row")
        self.turn = Permute([0, 2, 1])
        self.pos = nn.Parameter(torch.zeros(1, 1, dim))
        trunc_normal_(self.pos, std=0.02)
        self.mean = IMAGENET_DEFAULT_MEAN

    def forward(self, x):
        x = x + self.pos * self.size[1] - self.mean[0]
        x = x + self.drop_path(self.mlp(x))
        return self.turn(x + self.depth(self.norm(x)))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(4, 0.1), Block(3)])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
"""


class Mlp(torch.nn.Module):
    """timm's Mlp."""

    def __init__(
        self, in_features, hidden_features=None, act_layer=torch.nn.GELU, norm_layer=None, bias=True, drop=0.0
    ):
        super().__init__()
        hidden, bias = hidden_features or in_features, to_2tuple(bias)
        self.fc1 = torch.nn.Linear(in_features, hidden, bias=bias[0])
        self.act, self.drop1 = act_layer(), torch.nn.Dropout(drop)
        self.norm = norm_layer(hidden) if norm_layer is not None else torch.nn.Identity()
        self.fc2, self.drop2 = torch.nn.Linear(hidden, in_features, bias=bias[1]), torch.nn.Dropout(drop)

    def forward(self, x):
        return self.drop2(self.fc2(self.norm(self.drop1(self.act(self.fc1(x))))))


class Depth(torch.nn.Module):
    """DropPath and StochasticDepth in eval mode."""

    def __init__(self, *args):
        super().__init__()

    def forward(self, x):
        return x


class Permute(torch.nn.Module):
    def __init__(self, dims):
        super().__init__()
        self.dims = dims

    def forward(self, x):
        return torch.permute(x, self.dims)


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {
        "timm": {},
        "timm.layers": {
            "DropPath": Depth, "Mlp": Mlp, "to_2tuple": to_2tuple, "trunc_normal_": torch.nn.init.trunc_normal_
        },
        "timm.data": {"IMAGENET_DEFAULT_MEAN": (0.485, 0.456, 0.406)},
        "torchvision": {},
        "torchvision.ops": {"Permute": Permute, "StochasticDepth": Depth},
    }  # fmt: skip
    for name, members in names.items():
        module = types.ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.usefixtures("packages")
def test_a_model_that_imports_them_is_converted(tmp_path: Path) -> None:
    converted = convert(PROGRAM)
    assert not converted.left
    assert "timm" not in converted.text and "torchvision" not in converted.text
    names: dict[str, object] = {"__name__": "original"}
    exec(compile(PROGRAM, "original.py", "exec"), names)
    net = names["Net"]().eval()  # type: ignore[operator]
    program, layers = with_layers(converted, tmp_path)
    model = program.Net(rngs=nnx.Rngs(0))
    layers.load_state_dict(model, arrays(net.state_dict()))
    model.eval()
    x = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    expected = net(x).detach().numpy()
    np.testing.assert_allclose(np.asarray(model(jnp.asarray(x.numpy()))), expected, rtol=1e-5, atol=1e-5)
    model.train()
    assert not np.allclose(np.asarray(model(jnp.asarray(x.numpy()))), expected)


def test_a_copy_in_the_project_is_its_own() -> None:
    own = "from torch import nn\nclass DropPath(nn.Module):\n    def forward(self, x):\n        return x * 2\n"
    net = "from torch import nn\nfrom timm.layers import DropPath\nnet = nn.Sequential(DropPath())\n"
    sources = [Source("timm/__init__.py", ""), Source("timm/layers.py", own), Source("net.py", net)]
    run = convert_files(sources, load_rules())
    assert "from timm.layers import DropPath" in run.outcomes[2].after
    assert "DropPath" not in run.layer_file


def drawn(mask: torch.Tensor, x: torch.Tensor, keep: float, scale: bool) -> np.ndarray:
    """timm's formula with a mask that is given."""
    return (x * (mask.div(keep) if scale else mask)).numpy()


@pytest.mark.parametrize("scale", [True, False])
def test_drop_path_zeroes_whole_samples(scale: bool) -> None:
    x = torch.rand(400, 2, 3) + 1
    out = np.asarray(drop_path(jnp.asarray(x.numpy()), jax.random.key(1), 0.25, True, scale))
    mask = torch.tensor(out.reshape(400, -1).any(axis=1), dtype=torch.float32).reshape(400, 1, 1)
    np.testing.assert_allclose(out, drawn(mask, x, 0.75, scale), rtol=1e-6)
    assert abs(float(mask.mean()) - 0.75) < 0.1
    layer = DropPath(0.25, scale, rngs=nnx.Rngs(0))
    assert not np.array_equal(np.asarray(layer(jnp.asarray(x.numpy()))), x.numpy())
    layer.eval()
    assert np.array_equal(np.asarray(layer(jnp.asarray(x.numpy()))), x.numpy())


@pytest.mark.parametrize("mode", ["row", "batch"])
def test_stochastic_depth_zeroes_samples_or_the_batch(mode: str) -> None:
    x = torch.rand(200, 3) + 1
    kept = 0.0
    for seed in range(20):
        out = np.asarray(stochastic_depth(jnp.asarray(x.numpy()), jax.random.key(seed), 0.5, mode))
        mask = torch.tensor(out.any(axis=1), dtype=torch.float32)[:, None]
        assert mode == "row" or len(mask.unique()) == 1
        np.testing.assert_allclose(out, drawn(mask, x, 0.5, True), rtol=1e-6)
        kept += float(mask.mean()) / 20
    assert 0.2 < kept < 0.8
    with pytest.raises(ValueError, match="mode"):
        stochastic_depth(jnp.ones(2), jax.random.key(0), 0.5, "column")


def test_tuples() -> None:
    assert (to_1tuple(3), to_2tuple(3), to_3tuple([1, 2, 3])) == ((3,), (3, 3), (1, 2, 3))
    assert to_2tuple("ab") == ("ab", "ab")
    for value in (3, [1, 2], (4, 5), None, range(2), "ab", torch.Size([6, 7])):
        assert ntuple(value, 2) == torch.nn.modules.utils._pair(value)


PAIRS = """
import torch
from torch import nn
from torch.nn.modules.utils import _pair


class Conv(nn.Module):
    def __init__(self, size, stride=1, padding=(0, 0)):
        super().__init__()
        self.size, self.stride, self.padding = _pair(size), _pair(stride), _pair(padding)
        self.weight = nn.Parameter(torch.ones(2, 3, *self.size))

    def forward(self, x):
        y = nn.functional.conv2d(x, self.weight, None, self.stride, self.padding)
        return y, self.stride[0] + self.padding[1]


def main():
    x = torch.arange(3.0 * 36).reshape(1, 3, 6, 6)
    return [build(Conv, *given)(x) for given in ((3,), (2, (2, 1)), ((1, 2), 2, 1), ([2, 3], [1, 2], (1, 0)))]


def build(kind, *given):
    return kind(*given)
"""


def test_a_default_does_not_say_what_a_pair_is_made_of(tmp_path: Path) -> None:
    done = convert(PAIRS)
    assert not done.left, done.left
    for (want, number), (got, other) in zip(under_torch(PAIRS).main(), under_jax(done, tmp_path).main(), strict=True):
        np.testing.assert_array_equal(np.asarray(got), want.detach().numpy())
        assert number == other
