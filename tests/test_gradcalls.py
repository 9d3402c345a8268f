"""torch.autograd.grad: gradients, and gradients of gradients, are torch's; what is not proved is left and reported."""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from converted import arrays, convert, under_jax, under_torch
from flax import nnx

from jaxmigrate.layers.library.base import load_state_dict, state_dict

HEAD = "import torch\nfrom torch import autograd\n\n\n"
PROGRAMS = {
    "of_a_number": """
def run(x: torch.Tensor, y: torch.Tensor):
    x.requires_grad_(True)
    loss = (x.sin() * y).sum()
    (g,) = autograd.grad(loss, x)
    return g * y
""",
    "with_weights": """
def run(x: torch.Tensor, y: torch.Tensor):
    x = x.clone().requires_grad_()
    u = x ** 3
    return autograd.grad(u, x, grad_outputs=y)[0]
""",
    "with_weights_of_ones": """
def run(x: torch.Tensor, y: torch.Tensor):
    x = x.clone().requires_grad_()
    u = x ** 3
    ones = torch.ones_like(u)
    g = autograd.grad(u, x, torch.exp(ones), retain_graph=True)[0]
    h = autograd.grad(u, x, grad_outputs=torch.neg(torch.ones_like(u)), retain_graph=True)[0]
    return g * h + autograd.grad(u, x, grad_outputs=y.mul(torch.ones_like(u)))[0]
""",
    "of_a_gradient": """
def run(x: torch.Tensor, t: torch.Tensor):
    x.requires_grad = True
    t.requires_grad = True
    u = torch.sin(x * t) + x ** 2 * t
    u_x = autograd.grad(u, x, grad_outputs=torch.ones_like(u), create_graph=True)[0]
    u_xx = autograd.grad(u_x, x, grad_outputs=torch.ones_like(u_x), create_graph=True)[0]
    u_xxt = torch.autograd.grad(u_xx.sum(), t, create_graph=True)[0]
    u_t = autograd.grad(u.sum(), [t], create_graph=True)[0]
    return u + 2 * u_x - u_xx + u_xxt * u_t
""",
    "by_several": """
def run(x: torch.Tensor, t: torch.Tensor):
    x, t = x.clone(), t.clone()
    x.requires_grad_()
    t.requires_grad_()
    h = torch.tanh(x + 2 * t)
    h = h * x
    u = h.mean()
    g_x, g_t = autograd.grad(outputs=u, inputs=(x, t), retain_graph=True)
    grads = autograd.grad(u, [t, x])
    return g_x + 2 * g_t + grads[0] * grads[1]
""",
    "by_a_helper": """
def gradient(y, x):
    return torch.autograd.grad(y, x, grad_outputs=torch.ones_like(y), create_graph=True)[0]

def run(x: torch.Tensor, t: torch.Tensor):
    x.requires_grad_(); t.requires_grad_()
    u = torch.exp(-x * t)
    u_x = gradient(u, x)
    return gradient(u, t) - u * gradient(u_x, x)
""",
    "parts_of_one_value": """
def run(x: torch.Tensor, t: torch.Tensor):
    x.requires_grad_(True)
    t.requires_grad_(True)
    both = torch.cat([torch.sin(x * t), torch.cos(x + t)], dim=1)
    psi, p = both[:, 0:4], both[:, 4:8]
    u = torch.autograd.grad(psi, t, grad_outputs=torch.ones_like(psi), create_graph=True)[0]
    u_x = torch.autograd.grad(u, x, grad_outputs=torch.ones_like(u), create_graph=True)[0]
    p_x = torch.autograd.grad(p, x, grad_outputs=torch.ones_like(p), create_graph=True)[0]
    return u_x + p * p_x
""",
    "a_constant_without_create_graph": """
def run(x: torch.Tensor, y: torch.Tensor):
    x.requires_grad_()
    u = x ** 3
    g = autograd.grad(u.sum(), x, retain_graph=True)[0]
    total = (g * u).sum()
    return autograd.grad(total, x)[0]
""",
    "rows_of_a_jacobian": """
def run(x: torch.Tensor, y: torch.Tensor):
    x.requires_grad_()
    u = (x * y).sum(0) ** 2
    rows = [autograd.grad(u[i], x, retain_graph=True)[0] for i in range(4)]
    return torch.stack(rows)
""",
    "in_one_expression": """
def energy(x: torch.Tensor, y: torch.Tensor):
    return (x ** 2 * y).sum()

def run(x: torch.Tensor, y: torch.Tensor):
    x.requires_grad_(True)
    return -torch.autograd.grad(energy(x, y), x)[0]
""",
    "without_influence": """
def run(x: torch.Tensor, y: torch.Tensor):
    x.requires_grad_()
    u = (x * 0 + y).sum()
    return autograd.grad(u, x, allow_unused=True)[0]
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_those_of_torch(name: str, tmp_path: Path) -> None:
    source = HEAD + PROGRAMS[name].lstrip()
    converted = convert(source)
    assert converted.left == []
    assert "autograd" not in converted.text.replace("# ", "")
    rng = np.random.default_rng(3)
    values = [rng.standard_normal((3, 4)).astype(np.float32) for _ in range(2)]
    want = under_torch(source).run(*(torch.tensor(v) for v in values))
    got = under_jax(converted, tmp_path).run(*(jnp.array(v) for v in values))
    np.testing.assert_allclose(np.asarray(got), want.detach().numpy(), rtol=2e-5, atol=2e-6)


LEFT = {
    "made_elsewhere": """
def run(u: torch.Tensor, x: torch.Tensor):
    return autograd.grad(u.sum(), x)[0]
""",
    "in_a_loop": """
def run(x: torch.Tensor, n: int):
    u = x
    for _ in range(n):
        u = u * x
    return autograd.grad(u.sum(), x)[0]
""",
    "changed_between": """
def run(x: torch.Tensor, y: torch.Tensor):
    u = x * y
    y = y + 1
    return y * autograd.grad(u.sum(), x)[0]
""",
    "drawn": """
def run(x: torch.Tensor):
    u = x * torch.rand(3)
    v = u.sum()
    return v + autograd.grad(v, x)[0]
""",
    "called_for_its_effect": """
class Scale:
    def __init__(self):
        self.by = 1.0
    def grow(self):
        self.by += 1.0
    def run(self, x: torch.Tensor):
        u = (x * self.by).sum()
        self.grow()
        return autograd.grad(u, x)[0]
""",
    "by_another_input": """
def run(x: torch.Tensor):
    u = x ** 2
    v = (u * x).sum()
    return autograd.grad(v, u, retain_graph=True)[0] + autograd.grad(v, x)[0]
""",
    "batched": """
def run(x: torch.Tensor, v: torch.Tensor):
    u = x ** 2
    return autograd.grad(u, x, v, is_grads_batched=True)[0]
""",
    "switched": """
def run(x: torch.Tensor, create: bool):
    u = (x ** 2).sum()
    return autograd.grad(u, x, create_graph=create)[0]
""",
    "helper_used_elsewhere": """
def gradient(y, x):
    return torch.autograd.grad(y, x, grad_outputs=torch.ones_like(y), create_graph=True)[0]

def run(x: torch.Tensor, pairs):
    u = x ** 2
    return gradient(u, x), [gradient(*p) for p in pairs]
""",
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_not_proved_is_left(name: str) -> None:
    converted = convert(HEAD + LEFT[name].lstrip())
    assert [f.code for f in converted.findings if f.name == "torch.autograd.grad" and f.code == "JM208"]
    assert "autograd.grad(" in converted.text


CRITIC = """import torch
import torch.nn as nn


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))

    def forward(self, x):
        return self.net(x)


def gradient_penalty(critic, real: torch.Tensor, fake: torch.Tensor, alpha: torch.Tensor):
    interpolates = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    d_interpolates = critic(interpolates)
    ones = torch.ones(real.shape[0], 1, requires_grad=False)
    gradients = torch.autograd.grad(
        outputs=d_interpolates,
        inputs=interpolates,
        grad_outputs=ones,
        create_graph=True,
        retain_graph=True,
        only_inputs=True,
    )[0]
    return ((gradients.norm(2, dim=1) - 1) ** 2).mean()


def train(critic, real: torch.Tensor, fake: torch.Tensor, alpha: torch.Tensor):
    optimizer = torch.optim.SGD(critic.parameters(), lr=0.1)
    losses = []
    for i in range(5):
        optimizer.zero_grad()
        penalty = gradient_penalty(critic, real, fake, alpha)
        loss = -critic(real).mean() + critic(fake).mean() + 10 * penalty
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
"""
BATCH_NORM = CRITIC.replace("nn.LeakyReLU(0.2)", "nn.BatchNorm1d(8), nn.LeakyReLU(0.2)")

TWO_HEADS = (
    CRITIC.replace("return self.net(x)", "return self.net(x), x.mean()")
    .replace("d_interpolates = critic", "d_interpolates, _ = critic")
    .replace("torch.ones(real.shape[0], 1, requires_grad=False)", "torch.Tensor(np.ones(d_interpolates.shape))")
    .replace("critic(real).mean() + critic(fake).mean()", "critic(real)[0].mean() + critic(fake)[0].mean()")
    .replace("import torch\n", "import numpy as np\nimport torch\n", 1)
)


@pytest.mark.parametrize(
    "source", [CRITIC, BATCH_NORM, TWO_HEADS], ids=["plain", "running averages move once", "two heads"]
)
def test_a_gradient_penalty_trains_as_in_torch(source: str, tmp_path: Path) -> None:
    converted = convert(source)
    assert converted.left == []
    torch.manual_seed(0)
    original = under_torch(source)
    model = original.Critic()
    start = arrays(model.state_dict())
    rng = np.random.default_rng(1)
    values = [rng.standard_normal((6, 4)).astype(np.float32) for _ in range(2)] + [rng.random((6, 1), np.float32)]
    want = original.train(model, *(torch.tensor(v) for v in values))
    module = under_jax(converted, tmp_path)
    twin = module.Critic(rngs=nnx.Rngs(0))
    load_state_dict(twin, {k: v for k, v in start.items() if "num_batches" not in k}, strict=False)
    got = module.train(twin, *(jnp.array(v) for v in values))
    np.testing.assert_allclose(got, want, rtol=2e-5)
    ours, theirs = state_dict(twin), arrays(model.state_dict())
    for name in ours:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=2e-4, atol=2e-5, err_msg=name)
