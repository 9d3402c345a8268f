"""Forward always, backward under a question: the training and validation phases of one loop."""

from __future__ import annotations

from pathlib import Path

import pytest
from converted import convert
from trained import PLAIN, trains_alike

SOURCE = (
    "import torch.optim as optim\n"
    + PLAIN
    + """def train_model(model: Net, criterion, optimizer, dataloaders, num_epochs=2):
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
)


@pytest.mark.parametrize("name", ["run", "asked", "unasked"])
def test_phases(name: str, tmp_path: Path) -> None:
    trains_alike(SOURCE, tmp_path, name, (6,))


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
