"""GANs as public code has them: optimizers that share modules, labels of a module's output shape, moved modules."""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import torch
from converted import arrays, convert, under_jax, under_torch
from flax import nnx

from jaxmigrate.layers.library.base import load_state_dict, state_dict

SOURCE = """import itertools

import numpy as np
import torch
import torch.nn as nn
from torch.autograd import Variable

Tensor = torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 4)

    def forward(self, z):
        return torch.tanh(self.fc(z))


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.output_shape = (1,)
        self.fc = nn.Linear(4, 6)
        self.validity = nn.Linear(6, 1)
        self.code = nn.Linear(6, 2)

    def forward(self, x):
        h = torch.relu(self.fc(x))
        return self.validity(h), self.code(h)


class Features(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, x):
        return self.fc(x)


def train(generator: Generator, discriminator: Discriminator, real: torch.Tensor, noise: torch.Tensor):
    features = Features()
    if torch.cuda.is_available():
        features = features.cuda()
    nn.init.constant_(features.fc.weight, 0.25)
    nn.init.zeros_(features.fc.bias)
    adversarial_loss = nn.MSELoss()
    optimizer_G = torch.optim.SGD(generator.parameters(), lr=0.1)
    optimizer_D = torch.optim.SGD(discriminator.parameters(), lr=0.1)
    optimizer_info = torch.optim.SGD(itertools.chain(generator.parameters(), discriminator.parameters()), lr=0.1)
    losses = []
    for i in range(4):
        valid = Variable(Tensor(np.ones((real.size(0), *discriminator.output_shape))), requires_grad=False)
        fake = Variable(Tensor(np.zeros((real.size(0), *discriminator.output_shape))), requires_grad=False)

        optimizer_G.zero_grad()
        gen = generator(noise[i])
        validity, _ = discriminator(gen)
        g_loss = adversarial_loss(validity, valid) + adversarial_loss(features(gen), features(real).detach())
        g_loss.backward()
        optimizer_G.step()

        optimizer_D.zero_grad()
        real_pred, _ = discriminator(real)
        fake_pred, _ = discriminator(gen.detach())
        d_loss = (adversarial_loss(real_pred, valid) + adversarial_loss(fake_pred, fake)) / 2
        d_loss.backward()
        optimizer_D.step()

        optimizer_info.zero_grad()
        _, pred_code = discriminator(generator(noise[i]))
        info_loss = adversarial_loss(pred_code, noise[i][:, :2])
        info_loss.backward()
        optimizer_info.step()
        losses.append((g_loss.item(), d_loss.item(), info_loss.item()))
    return losses
"""


def test_three_optimizers_of_two_modules(tmp_path: Path) -> None:
    converted = convert(SOURCE)
    assert converted.left == []
    original, ours = under_torch(SOURCE), under_jax(converted, tmp_path)
    models = original.Generator(), original.Discriminator()
    twins = ours.Generator(rngs=nnx.Rngs(0)), ours.Discriminator(rngs=nnx.Rngs(0))
    for model, twin in zip(models, twins, strict=True):
        load_state_dict(twin, arrays(model.state_dict()))
    rng = np.random.default_rng(5)
    real, noise = rng.random((6, 4), np.float32), rng.random((4, 6, 3), np.float32)
    want = original.train(*models, torch.tensor(real), torch.tensor(noise))
    np.testing.assert_allclose(ours.train(*twins, jnp.array(real), jnp.array(noise)), want, rtol=2e-5)
    for model, twin in zip(models, twins, strict=True):
        after = arrays(model.state_dict())
        for key, value in state_dict(twin).items():
            np.testing.assert_allclose(value, after[key], rtol=2e-4, atol=2e-6)


def test_a_zero_grad_of_a_part_that_still_counts_is_left() -> None:
    source = SOURCE.replace(
        "        info_loss.backward()\n", "        info_loss.backward()\n        optimizer_G.zero_grad()\n"
    )
    assert any("JM208 training step left" in line for line in convert(source).left)
