"""Forward always, backward under a question: the training and validation phases of one loop."""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from converted import arrays, convert, under_jax, under_torch
from flax import nnx

from jaxmigrate.layers.library.base import load_state_dict, state_dict

SOURCE = """import torch
import torch.nn as nn
import torch.optim as optim


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(4, 8)
        self.fc2 = nn.Linear(8, 3)

    def forward(self, x):
        return self.fc2(torch.tanh(self.fc1(x)))


def train_model(model: Net, criterion, optimizer, dataloaders, num_epochs=2):
    history = []
    for epoch in range(num_epochs):
        for phase in ["train", "val"]:
            if phase == "train":
                model.train()
            else:
                model.eval()
            running_loss = 0.0
            running_corrects = 0
            for inputs, labels in dataloaders[phase]:
                optimizer.zero_grad()
                with torch.set_grad_enabled(phase == "train"):
                    outputs = model(inputs)
                    _, preds = torch.max(outputs, 1)
                    loss = criterion(outputs, labels)
                    if phase == "train":
                        loss.backward()
                        optimizer.step()
                running_loss += loss.item() * inputs.size(0)
                running_corrects += torch.sum(preds == labels.data).item()
            history.append((running_loss, running_corrects))
    return history


def run(model: Net, x: torch.Tensor, y: torch.Tensor):
    criterion = nn.CrossEntropyLoss()
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loaders = {"train": [(x, y), (x + 1, y)], "val": [(x, y)]}
    return train_model(model, criterion, optimizer, loaders)


def fit(model: Net, x: torch.Tensor, y: torch.Tensor, train: bool):
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for step in range(3):
        with torch.set_grad_enabled(train):
            out = model(x)
            loss = nn.functional.cross_entropy(out, y)
            losses.append(loss.item())
        if train:
            model.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    return losses


def unasked(model: Net, x: torch.Tensor, y: torch.Tensor):
    return fit(model, x, y, False)


def asked(model: Net, x: torch.Tensor, y: torch.Tensor):
    return fit(model, x, y, True)
"""


@pytest.mark.parametrize("name", ["run", "asked", "unasked"])
def test_phases(name: str, tmp_path: Path) -> None:
    converted = convert(SOURCE)
    assert converted.left == []
    original, ours = under_torch(SOURCE), under_jax(converted, tmp_path)
    model, twin = original.Net(), ours.Net(rngs=nnx.Rngs(0))
    load_state_dict(twin, arrays(model.state_dict()))
    rng = np.random.default_rng(5)
    x, y = rng.random((6, 4), np.float32), rng.integers(0, 3, 6)
    want = getattr(original, name)(model, torch.tensor(x), torch.tensor(y))
    np.testing.assert_allclose(getattr(ours, name)(twin, jnp.array(x), jnp.array(y)), want, rtol=2e-5)
    after = arrays(model.state_dict())
    for key, value in state_dict(twin).items():
        np.testing.assert_allclose(value, after[key], rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('if phase == "train":\n                        loss', "if loss > 0.1:\n                        loss"),
        ("_, preds = torch.max(outputs, 1)", 'phase = "train"'),
        ("torch.set_grad_enabled(train)", "torch.set_grad_enabled(not train)"),
    ],
    ids=["asks for the loss", "the answer changes", "another question"],
)
def test_other_questions_are_left(old: str, new: str) -> None:
    assert old in SOURCE
    assert any("JM208 training step left" in line for line in convert(SOURCE.replace(old, new)).left)
