"""Objects, closures and attributes that keep a trained module and take part in a loss."""

from __future__ import annotations

from pathlib import Path

import pytest
from converted import convert
from trained import PLAIN, trains_alike

KEEPERS = (
    "import functools\n"
    + PLAIN
    + """class Ridge:
    def __init__(self, net, scale=1.0):
        self.net = net
        self.start = [p.detach().clone() for p in net.parameters()]
        self.scale = scale

    def __call__(self):
        return self.penalty()

    def penalty(self):
        return self.net.fc1.weight.pow(2).sum()

    def weigh(self, value):
        return value * self.scale


def penalty(net):
    return net.fc1.weight.pow(2).sum()


def make(net):
    def inner():
        return penalty(net)

    return inner


"""
)
LOCAL = """def fit(net: Net, x: torch.Tensor, y: torch.Tensor):
    SETUP
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y) + TERM
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
"""
OWNED = """class Trainer:
    def __init__(self, net: Net):
        self.net = net
        SETUP
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def fit(self, x: torch.Tensor, y: torch.Tensor):
        losses = []
        for _ in range(3):
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.net(x), y) + TERM
            loss.backward()
            self.optimizer.step()
            losses.append(loss.item())
        return losses


def fit(net: Net, x: torch.Tensor, y: torch.Tensor):
    return Trainer(net).fit(x, y)
"""
GIVEN = LOCAL.replace("def fit(net", "def run(reg, net") + (
    "\n\ndef fit(net: Net, x: torch.Tensor, y: torch.Tensor):\n"
    "    ridge = Ridge(net)\n    return run(ridge, net, x, y)\n"
)
KEPT = {
    "an object": (LOCAL, "reg = Ridge(net)", "reg()"),
    "an object of the trainer": (OWNED, "self.reg = Ridge(self.net)", "self.reg.penalty()"),
    "an object that is given": (GIVEN, "pass", "reg.penalty()"),
    "a closure": (LOCAL, "reg = make(net)", "reg()"),
    "a partial function": (OWNED, "self.reg = functools.partial(penalty, net)", "self.reg()"),
    "a lambda": (OWNED, "self.reg = lambda: net.fc1.weight.pow(2).sum()", "self.reg()"),
    "a dictionary": (OWNED, "self.nets = {'a': net}", "self.nets['a'].fc1.weight.pow(2).sum()"),
    "a parameter": (OWNED, "self.w = self.net.fc1.weight", "self.w.pow(2).sum()"),
    "parameters": (OWNED, "self.ws = list(net.parameters())", "sum(w.pow(2).sum() for w in self.ws)"),
    "parameters, one by one": (
        OWNED, "self.ws = {}\n        for n, p in net.named_parameters():\n            self.ws[n] = p",
        "sum(w.pow(2).sum() for w in self.ws.values())",
    ),
}  # fmt: skip
HARMLESS = {
    "a method that reads something else": (LOCAL, "reg = Ridge(net, 0.5)", "reg.weigh(net(x).pow(2).mean())"),
    "numbers and copies": (
        OWNED,
        "self.reg = Ridge(net, 0.5)\n        self.classes = net.fc2.out_features\n"
        "        self.old = {n: p.clone().detach() for n, p in net.named_parameters()}",
        "sum((p - self.old[n]).pow(2).sum() for n, p in self.net.named_parameters()) * self.classes * self.reg.scale",
    ),
}


def program(parts: tuple[str, str, str]) -> str:
    form, setup, term = parts
    return KEEPERS + form.replace("SETUP", setup).replace("TERM", term)


@pytest.mark.parametrize("case", KEPT)
def test_what_keeps_the_module_is_seen(case: str) -> None:
    assert any("JM208 training step left" in line and "keeps" in line for line in convert(program(KEPT[case])).left)


@pytest.mark.parametrize("case", HARMLESS)
def test_what_keeps_it_and_does_not_read_it(case: str, tmp_path: Path) -> None:
    trains_alike(program(HARMLESS[case]), tmp_path, "fit", (5,))
