"""What a training program does with modules besides its steps: modes, methods, sweeps over parameters."""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
import torch
from converted import arrays, convert, under_jax, under_torch
from flax import nnx
from trained import NORMED, both, close, data, same_weights

from jaxmigrate.layers.library.base import load_state_dict


def test_no_grad_in_a_module_cuts_the_gradient(tmp_path: Path) -> None:
    source = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Linear(3, 1)

    @torch.no_grad()
    def target(self, x):
        return 0.5 * self.f(x) + 1

    def forward(self, x):
        with torch.no_grad():
            scale = self.f(x).mean()
            low, high = self.f(x).min(), self.f(x).max()
        return ((scale * self.f(x) - self.target(x)) ** 2).mean() + (high - low) * self.f.bias.sum()
"""
    _, _, _, model, twin = both(source, tmp_path)
    xs, _ = data(1)
    loss = model(torch.tensor(xs[0]))
    loss.backward()
    value, grads = nnx.value_and_grad(lambda m: m(jnp.asarray(xs[0])))(twin)
    close(value, loss.item())
    close(grads["f"]["weight"][...], model.f.weight.grad.numpy())
    close(grads["f"]["bias"][...], model.f.bias.grad.numpy())


SEVERAL_MODES = """
import contextlib
import torch

def f(x):
    with torch.inference_mode(False), torch.autocast(device_type=x.device.type, enabled=False):
        y = torch.sin(x)
    with contextlib.suppress(ValueError), torch.enable_grad(), torch.autocast("cpu", enabled=False):
        y = torch.sin(y)
    with torch.enable_grad(), contextlib.suppress(ValueError), torch.autocast("cpu", enabled=False):
        y = torch.sin(y)
    return y
"""


def test_several_modes_of_one_with_go_together(tmp_path: Path) -> None:
    converted = convert(SEVERAL_MODES)
    assert converted.text.count("with contextlib.suppress(ValueError):") == converted.text.count("with ") == 2
    xs, _ = data(1)
    theirs = under_torch(SEVERAL_MODES).f(torch.tensor(xs[0])).numpy()
    close(under_jax(converted, tmp_path).f(jnp.asarray(xs[0])), theirs)


METHODS = (
    NORMED
    + """
def build(flag: bool):
    model = Net().to("cpu").eval()
    model.train(flag)
    return model.eval() if flag else model


def describe(model: Net, x: torch.Tensor):
    count = sum(p.numel() for p in model.parameters() if p.requires_grad)
    shapes = [tuple(p.shape) for p in model.parameters()]
    names = [n for n, _ in model.named_parameters()]
    total = len(list(model.parameters()))
    for p in model.parameters():
        total += p.dim()
    out = model.eval()(x)
    return count, shapes, names, total, out.sum().item()


def copy(model: Net):
    other = Net()
    other.load_state_dict(model.state_dict(), strict=False)
    return other.eval()
"""
)


def test_module_methods(tmp_path: Path) -> None:
    converted = convert(METHODS.replace("return model.eval() if flag else model", "return model.eval()"))
    assert not converted.left
    source = METHODS.replace("return model.eval() if flag else model", "return model.eval()")
    _, theirs, ours, model, twin = both(source, tmp_path)
    xs, _ = data(1)
    want = theirs.describe(model, torch.tensor(xs[0]))
    got = ours.describe(twin, jnp.asarray(xs[0]))
    assert got[:4] == want[:4]
    close(got[4], want[4])


FIRST = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 2)
        self.register_buffer("shift", torch.ones(2))

    def start(self, n):
        weight = next(self.parameters())
        return weight.new_zeros(n, 2) + weight.sum()

    def forward(self, x):
        return self.first(x) + next(iter(self.buffers())) + self.start(x.size(0))

def describe(model: Net):
    name, p = next(model.named_parameters())
    return name, next(model.parameters(), None).sum().item(), tuple(next(model.first.parameters()).shape)
"""


def test_the_first_parameter(tmp_path: Path) -> None:
    _, theirs, ours, model, twin = both(FIRST, tmp_path)
    xs, _ = data(1)
    close(twin(jnp.asarray(xs[0])), model(torch.tensor(xs[0])).detach().numpy())
    (name, total, shape), want = ours.describe(twin), theirs.describe(model)
    assert (name, shape) == (want[0], want[2])
    close(total, want[1])


def test_sweeps_over_parameters(tmp_path: Path) -> None:
    """A moving average of the weights, and weights that are clipped after each step."""
    source = (
        "import copy\n"
        + NORMED
        + """
def fit(model: nn.Module, xs: torch.Tensor, ys: torch.Tensor):
    average = copy.deepcopy(model)
    opt = optim.SGD(model.parameters(), lr=0.5)
    for x, y in zip(xs, ys):
        opt.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        for p in model.parameters():
            p.data.clamp_(-0.3, max=0.4)
        with torch.no_grad():
            for mean, p in zip(average.parameters(), model.parameters()):
                mean.mul_(0.9).add_(p, alpha=1 - 0.9)
        for mean in average.parameters():
            mean.data -= 0.01 * mean.data
    return [p.sum().item() for p in average.parameters()]
"""
    )
    _, theirs, ours, model, twin = both(source, tmp_path)
    xs, ys = data(4)
    start = arrays(model.state_dict())
    want = theirs.fit(model, torch.tensor(xs), torch.tensor(ys))
    close(ours.fit(twin, jnp.asarray(xs), jnp.asarray(ys)), want)
    same_weights(twin, model, start)


CONTEXTS = """
from contextlib import nullcontext
from functools import partial
from typing import Callable
import torch
from torch import nn
from torch.amp import autocast
from torch.optim import Optimizer

class Net(nn.Module):
    def __init__(self, optimizer: Callable[..., Optimizer] | None = None, device_type="cpu"):
        super().__init__()
        self.optimizer = optimizer
        self.context = nullcontext() if device_type == "cpu" else torch.amp.autocast(device_type=device_type)

    def forward(self, x):
        exactly = partial(autocast, "cuda", enabled=False) if x.ndim == 2 else nullcontext
        with exactly():
            x = x * 2
        with self.context:
            return x + isinstance(self.optimizer, Optimizer)
"""


def test_contexts_that_are_chosen_and_types_of_optimizers(tmp_path: Path) -> None:
    converted = convert(CONTEXTS)
    assert not converted.left and "torch" not in converted.text, converted.text
    assert [f.name for f in converted.findings if f.code == "JM101"] == ["torch.autocast"]
    assert "optimizer: Callable[..., nnx.Optimizer] | None = None" in converted.text
    xs, _ = data(1)
    close(
        under_jax(converted, tmp_path).Net()(jnp.asarray(xs[0])),
        under_torch(CONTEXTS).Net()(torch.tensor(xs[0])).numpy(),
    )
    other = convert(CONTEXTS.replace("from contextlib import nullcontext", "from own import nullcontext"))
    assert "JM301" in [f.code for f in other.findings]
    assert "JM301" in [
        f.code for f in convert("import torch\n\nclass Own(torch.optim.Optimizer):\n    pass\n").findings
    ]


WRITTEN = """
import torch
from torch import nn
import torch.nn.functional as F

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3))
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                normed = F.normalize(self.weight, dim=-1)
                self.weight.copy_(normed)
                new = (x @ self.weight).mean(0)
                self.mean.mul_(0.9).add_(new * 0.1)
        return (F.linear(x - self.mean, self.weight / self.weight.norm()) ** 3).sum()
"""


def test_parameters_and_buffers_written_without_gradient(tmp_path: Path) -> None:
    converted = convert(WRITTEN)
    assert not converted.left and "JM101" not in converted.codes(), converted.findings
    torch.manual_seed(0)
    model = under_torch(WRITTEN).Net()
    twin = under_jax(converted, tmp_path).Net(rngs=nnx.Rngs(0))
    load_state_dict(twin, arrays(model.state_dict()))
    x = torch.randn(4, 3, requires_grad=True)
    model(x).backward()
    grads, to_x = nnx.grad(lambda twin, x: twin(x), argnums=(0, 1))(twin, jnp.asarray(x.detach().numpy()))
    close(grads["weight"][...], model.weight.grad.numpy())
    close(to_x, x.grad.numpy())
    close(twin.weight[...], model.weight.detach().numpy())
    close(twin.mean[...], model.mean.numpy())
