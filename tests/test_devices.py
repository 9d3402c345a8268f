"""Devices: what stays a choice among jax.devices(), what goes, and that programs run with it."""

from __future__ import annotations

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

sys.path.insert(0, str(Path(__file__).parent))
from converted import arrays, convert, under_jax, under_torch

from jaxmigrate.layers.library.base import load_state_dict


def line(source: str, *, head: str = "import torch\n\n\ndef f(x: torch.Tensor, flag, i: int):\n    ") -> str:
    """The last line of the converted program."""
    converted = convert(f"{head}{source}\n")
    assert converted.status == "changed" and not converted.left, converted.left
    return converted.text.strip().splitlines()[-1].strip()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("d = torch.device('cuda' if torch.cuda.is_available() else 'cpu')", "d = jax.devices()[0]"),
        ('d = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")', "d = jax.devices()[0]"),
        ("d = torch.device('cuda' if flag else 'cpu')", 'd = jax.devices("gpu" if flag else "cpu")[0]'),
        ("d = torch.device('cpu')", 'd = jax.devices("cpu")[0]'),
        ("d = torch.device('cuda:1')", 'd = jax.devices("gpu")[1]'),
        ("d = torch.device('cuda', i)", 'd = jax.devices("gpu")[i]'),
        ("d = torch.device(f'cuda:{i}')", 'd = jax.devices("gpu")[i]'),
        ("d = torch.device(flag)", "d = device_of(flag)"),
        (
            "return torch.device(flag).type == 'cuda'",
            "return device_of(flag).platform == 'gpu'",
        ),
        (
            "d = torch.device('cpu'); return d.type in ('cuda', 'mps')",
            "d = jax.devices(\"cpu\")[0]; return d.platform in ('gpu', 'METAL')",
        ),
        ("return torch.device('cpu').type", 'return jax.devices("cpu")[0].platform'),
        ("return torch.accelerator.current_accelerator().index", "return jax.devices()[0].id"),
        ("torch.set_default_device('cpu')", 'jax.config.update("jax_default_device", jax.devices("cpu")[0])'),
        ("return torch.zeros(3, device=x.device)", "return jnp.zeros((3,))"),
        ("return torch.zeros(3, device='cpu')", "return jnp.zeros((3,))"),
        ("return x.to(x.device, torch.float16)", "return x.astype(jnp.float16)"),
        ("return x.cuda().cpu() + x.to('cpu')", "return x + x"),
        ("return x.device.type == 'cuda'", 'return jax.default_backend() == "gpu"'),
        ("torch.backends.cudnn.benchmark = True\n    return x + 1.0", "return x + 1.0"),
        ("torch.cuda.empty_cache()\n    return x + 1.0", "return x + 1.0"),
    ],
)
def test_one_line(before: str, after: str) -> None:
    assert line(before) == after


def test_a_default_device_is_placed_on() -> None:
    choice = "'cuda' if torch.cuda.is_available() else 'cpu'"
    for made in (f"torch.device({choice})", choice):
        head = f"import torch\n\ndevice = {made}\n\n\ndef f(x: torch.Tensor):\n    "
        assert line("return x.to(device)", head=head) == "return jax.device_put(x, device)"


def test_a_name_that_is_also_compared_stays_a_string() -> None:
    text = convert(
        "import torch\n\ndevice = 'cuda' if torch.cuda.is_available() else 'cpu'\n\n\n"
        "def f(x: torch.Tensor):\n    if device == 'cuda':\n        print('fast')\n    return x.to(device)\n"
    ).text
    assert "device = 'cuda' if" in text and "return x\n" in text


@pytest.mark.parametrize("name", ["'mps'", "'meta'", "get_device()"])
def test_unknown_devices_are_left(name: str) -> None:
    converted = convert(f"import torch\n\n\ndef f(get_device):\n    return torch.device({name})\n")
    assert any(f.code == "JM203" for f in converted.findings) and "torch.device(" in converted.text


MODEL = """
import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(4, 3)
        self.register_buffer("bias", torch.ones(3, device="cpu"))

    def positions(self, n, device):
        return torch.arange(n, device=device).float()

    def forward(self, x):
        b, n, d, device = *x.shape, x.device
        place = x.device
        mask = torch.ones(n, n, device=device).tril()
        weights = torch.softmax(mask.to(place) * self.positions(n, x.device), dim=-1)
        if x.is_cuda and x.device.type == "cuda":
            x = x * 1.0
        return weights @ self.proj(x.to(self.proj.weight.device)) + self.bias.to(x)


def run(net: Net, x: torch.Tensor):
    net.to(device)
    net = net.to(device).eval()
    return net(x.to(device, non_blocking=True)).detach().cpu().numpy()
"""


def test_a_model_with_devices_everywhere(tmp_path: Path) -> None:
    converted = convert(MODEL)
    assert not converted.left, converted.left
    assert "b, n, d = x.shape" in converted.text and "place" not in converted.text.replace("placed", "")
    theirs, ours = under_torch(MODEL), under_jax(converted, tmp_path)
    model, twin = theirs.Net(), ours.Net(rngs=nnx.Rngs(0))
    load_state_dict(twin, arrays(model.state_dict()))
    x = np.random.default_rng(0).normal(size=(2, 5, 4)).astype(np.float32)
    want = theirs.run(model, torch.tensor(x))
    np.testing.assert_allclose(ours.run(twin, jnp.asarray(x)), want, rtol=1e-5, atol=1e-5)
    loss = lambda m: m(jnp.asarray(x)).sum()  # noqa: E731
    grads = nnx.grad(loss)(twin)  # a traced array has no device
    model(torch.tensor(x)).sum().backward()
    np.testing.assert_allclose(grads["proj"]["weight"][...], model.proj.weight.grad.numpy(), rtol=1e-4, atol=1e-4)


STAR_TARGETS = """
import torch
from torch import nn

class Scales(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scales", torch.arange(3.0))

    def forward(self, h, device):
        scales = self.scales.to(device)
        return torch.linspace(-1.0, 1.0, steps=h, device=device)[:, None] * scales

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = 2
        self.scales = Scales()

    def forward(self, video):
        b, f, *_, device, patch = *video.shape, video.device, self.patch
        return video.sum() + self.scales(f, device=device) * patch + torch.arange(3, device=device)
"""


def test_a_device_taken_apart_from_a_shape_beside_a_star(tmp_path: Path) -> None:
    converted = convert(STAR_TARGETS)
    assert not converted.left, converted.left
    module = under_jax(converted, tmp_path)
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(2, 3, 2)
    wanted = under_torch(STAR_TARGETS).Net()(torch.tensor(x)).numpy()
    np.testing.assert_allclose(module.Net()(jnp.asarray(x)), wanted, atol=1e-6)


READ_WITH_A_SHAPE = """
import torch
from torch import nn

class Positions(nn.Module):
    @property
    def device(self):
        return None

    def turn(self, t, offset=0):
        device, dtype, length = t.device, t.dtype, t.shape[1]
        return t * (torch.arange(length, device=device, dtype=dtype) + offset)
"""


def test_what_has_a_device_and_a_shape_is_a_tensor(tmp_path: Path) -> None:
    converted = convert(READ_WITH_A_SHAPE)
    assert not converted.left and "t.device" not in converted.text, converted.text
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    wanted = under_torch(READ_WITH_A_SHAPE).Positions().turn(torch.tensor(x)).numpy()
    ours = jax.jit(lambda x: under_jax(converted, tmp_path).Positions().turn(x))
    np.testing.assert_allclose(ours(jnp.asarray(x)), wanted, atol=1e-6)
    owned = READ_WITH_A_SHAPE.replace("def device(self)", "def shape(self)")
    assert "t.device" in convert(owned).text  # which other things have here too
