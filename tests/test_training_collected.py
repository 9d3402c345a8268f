"""Losses that are collected before they are summed: lists, dictionaries, running sums begin in the loss function."""

from __future__ import annotations

from pathlib import Path

import pytest
from converted import convert
from trained import PLAIN, trains_alike

SOURCE = (
    PLAIN
    + """def collected(model: Net, xs: torch.Tensor, ys: torch.Tensor):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    history = []
    for step in range(3):
        losses = []
        names = []
        optimizer.zero_grad()
        for i in range(3):
            losses.append(F.cross_entropy(model(xs[i]), ys[i]))
            names.append(i)
        loss = torch.stack(losses).mean()
        loss.backward()
        optimizer.step()
        history.append(loss.item() + len(names))
    return history


def by_name(model: Net, xs: torch.Tensor, ys: torch.Tensor):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    history = []
    for step in range(3):
        losses = {}
        out = model(xs[0])
        losses["ce"] = F.cross_entropy(out, ys[0])
        losses["l2"] = out.pow(2).mean() * 0.1
        total = sum(losses.values())
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        history.append({k: v.item() for k, v in losses.items()}["ce"])
    return history


def added(model: Net, xs: torch.Tensor, ys: torch.Tensor):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    history = []
    for step in range(3):
        loss = 0
        for i in range(3):
            loss += F.cross_entropy(model(xs[i]), ys[i])
        loss = loss / 3
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
    return history
"""
)


@pytest.mark.parametrize("name", ["collected", "by_name", "added"])
def test_collected_losses(name: str, tmp_path: Path) -> None:
    assert "return loss, i" not in trains_alike(SOURCE, tmp_path, name, (3, 6))


def test_a_list_from_outside_is_left() -> None:
    head = "def collected(model"
    source = SOURCE.replace("        losses = []\n", "").replace(head, f"losses = []\n\n\n{head}")
    assert any("JM208 training step left" in line for line in convert(source).left)


EPISODE = """import torch
import torch.nn as nn
from torch.distributions import Categorical


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 2)
        self.saved = []

    def forward(self, x):
        return torch.softmax(self.head(x), dim=-1)


policy = Policy()
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)


def select_action(state: torch.Tensor):
    m = Categorical(policy(state))
    action = m.sample()
    policy.saved.append(m.log_prob(action))
    return action.item()


def finish_episode(returns: torch.Tensor):
    saved = policy.saved
    losses = []
    for log_prob, R in zip(saved, returns):
        losses.append(-log_prob * R)
    optimizer.zero_grad()
    loss = torch.stack(losses).sum()
    loss.backward()
    optimizer.step()
    del policy.saved[:]
"""
STORED = """import torch
import torch.nn as nn


class Model:
    def __init__(self):
        self.net = nn.Linear(4, 4)
        self.head = nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(list(self.net.parameters()) + list(self.head.parameters()), lr=0.1)

    def forward(self, x: torch.Tensor):
        self.hidden = self.net(x)

    def step(self, y: torch.Tensor):
        loss = (self.head(self.hidden) - y).pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
"""


@pytest.mark.parametrize(
    ("source", "line"), [(EPISODE, "select_action computed with the model (line 23)"), (STORED, "(line 12)")]
)
def test_what_another_function_has_computed_is_left_and_its_line_named(source: str, line: str) -> None:
    converted = convert(source)
    (left,) = [text for text in converted.left if "training step left" in text]
    assert line in left
