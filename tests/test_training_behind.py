"""Functions and methods that read the trained module by themselves: it is handed to them, and training is torch's."""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import torch
from converted import arrays, convert, under_jax, under_torch

from jaxmigrate.layers.library.base import load_state_dict, state_dict

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\n"
GLOBAL = (
    HEAD
    + '''model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)


def predict(x):
    return model(x) * 2


def compute_loss(x, y, weight=1.0):
    """The loss of one batch."""
    return weight * F.mse_loss(predict(x), y)


def evaluate(x, y):
    with torch.no_grad():
        return F.mse_loss(model(x), y).item()


def train(x, y, steps):
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = compute_loss(x, y, weight=0.5)
        loss.backward()
        optimizer.step()
        losses.append(loss.item() + predict(x).abs().mean().item() + evaluate(x, y))
    return losses
'''
)
TRAINER = (
    HEAD
    + """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        return self.fc(x)


class Trainer:
    def __init__(self, lr):
        self.model = Net()
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr)

    def scale(self, loss):
        return loss * 0.5

    def compute_loss(self, x, y):
        out = self.model(x)
        return self.scale(self.criterion(out, y)), out

    def fit(self, x: torch.Tensor, y: torch.Tensor, steps):
        losses = []
        for _ in range(steps):
            loss, out = self.compute_loss(x, y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            losses.append(loss.item() + out.mean().item())
        return losses
"""
)
PINN = (
    HEAD
    + """class PhysicsInformedNN:
    def __init__(self, nu):
        self.nu = nu
        self.dnn = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
        self.optimizer = torch.optim.Adam(self.dnn.parameters(), lr=1e-2)

    def net_u(self, x: torch.Tensor, t: torch.Tensor):
        return self.dnn(torch.cat([x, t], dim=1))

    def net_f(self, x: torch.Tensor, t: torch.Tensor):
        x.requires_grad_(True)
        t.requires_grad_(True)
        u = self.net_u(x, t)
        u_t = torch.autograd.grad(u, t, grad_outputs=torch.ones_like(u), retain_graph=True, create_graph=True)[0]
        u_x = torch.autograd.grad(u, x, grad_outputs=torch.ones_like(u), retain_graph=True, create_graph=True)[0]
        u_xx = torch.autograd.grad(u_x, x, grad_outputs=torch.ones_like(u_x), retain_graph=True, create_graph=True)[0]
        return u_t + u * u_x - self.nu * u_xx

    def fit(self, x: torch.Tensor, t: torch.Tensor, u: torch.Tensor, steps):
        losses = []
        for _ in range(steps):
            u_pred = self.net_u(x, t)
            f_pred = self.net_f(x, t)
            loss = torch.mean((u - u_pred) ** 2) + torch.mean(f_pred ** 2)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            losses.append(loss.item())
        return losses
"""
)


def test_a_global_model(tmp_path: Path) -> None:
    converted = convert(GLOBAL)
    assert converted.left == []
    assert "def predict(x, *, model):" in converted.text
    assert "def evaluate(x, y):" in converted.text
    theirs, ours = under_torch(GLOBAL), under_jax(converted, tmp_path)
    load_state_dict(ours.model, arrays(theirs.model.state_dict()))
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((6, 4)).astype(np.float32), rng.standard_normal((6, 1)).astype(np.float32)
    want = theirs.train(torch.tensor(x), torch.tensor(y), 5)
    np.testing.assert_allclose(ours.train(jnp.array(x), jnp.array(y), 5), want, rtol=2e-5)
    after = arrays(theirs.model.state_dict())
    for name, value in state_dict(ours.model).items():
        np.testing.assert_allclose(value, after[name], rtol=2e-4, atol=2e-5)


def test_a_trainer_with_its_own_model(tmp_path: Path) -> None:
    converted = convert(TRAINER)
    assert converted.left == []
    theirs, ours = under_torch(TRAINER).Trainer(0.1), under_jax(converted, tmp_path).Trainer(0.1)
    load_state_dict(ours.model, arrays(theirs.model.state_dict()))
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((6, 4)).astype(np.float32), rng.integers(0, 3, 6)
    want = theirs.fit(torch.tensor(x), torch.tensor(y), 5)
    np.testing.assert_allclose(ours.fit(jnp.array(x), jnp.array(y), 5), want, rtol=2e-5)


def test_a_physics_informed_network(tmp_path: Path) -> None:
    converted = convert(PINN)
    assert converted.left == []
    theirs = under_torch(PINN).PhysicsInformedNN(0.1)
    ours = under_jax(converted, tmp_path).PhysicsInformedNN(0.1)
    load_state_dict(ours.dnn, arrays(theirs.dnn.state_dict()))
    rng = np.random.default_rng(0)
    given = [rng.standard_normal((6, 1)).astype(np.float32) for _ in range(3)]
    want = theirs.fit(*(torch.tensor(v) for v in given), 10)
    np.testing.assert_allclose(ours.fit(*(jnp.array(v) for v in given), 10), want, rtol=1e-4)


def test_a_function_that_is_used_otherwise_is_left() -> None:
    source = GLOBAL.replace("losses = []", "losses = list(map(predict, [x]))")
    converted = convert(source)
    assert any("JM208 training step left" in line for line in converted.left)
    assert "def predict(x):" in converted.text


def test_a_function_that_keeps_what_it_computes_is_left() -> None:
    source = GLOBAL.replace("    return model(x) * 2", "    model.last = x\n    return model(x) * 2")
    assert any("JM208 training step left" in line for line in convert(source).left)


def test_a_method_that_another_class_overrides_is_left() -> None:
    source = (
        TRAINER
        + "\n\nclass Other(Trainer):\n    def compute_loss(self, x, y):\n        return self.model(x).sum(), x\n"
    )
    assert any("JM208 training step left" in line for line in convert(source).left)
