"""`x.grad` after a backward pass: attacks, saliency, updates by hand, walks; what is not proved is left."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from converted import convert
from runner import run_both
from trained import PLAIN, trains_alike

HEAD = PLAIN.replace(
    "return self.fc2(torch.tanh(self.fc1(x)))", "return F.log_softmax(self.fc2(torch.tanh(self.fc1(x))), dim=1)"
)
PROGRAMS = {
    "saliency": """
def run(model: Net, x: torch.Tensor, y: torch.Tensor):
    model.eval()
    x.requires_grad_()
    scores = model(x)
    score = scores[0, 1]
    score.backward()
    return x.grad.abs().max(dim=1)[0]
""",
    "fgsm": """
def run(model: Net, x: torch.Tensor, y: torch.Tensor):
    data = x.clone()
    data.requires_grad = True
    output = model(data)
    loss = F.nll_loss(output, y)
    model.zero_grad()
    loss.backward()
    return torch.clamp(data + 0.1 * data.grad.data.sign(), 0, 1) + output.mean()
""",
    "pgd": """
def run(model: Net, x: torch.Tensor, y: torch.Tensor):
    x_adv = x.clone().detach()
    for _ in range(4):
        x_adv.requires_grad_()
        loss = F.nll_loss(model(x_adv), y)
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            x_adv = x_adv + 0.02 * x_adv.grad.sign()
            x_adv = torch.min(torch.max(x_adv, x - 0.05), x + 0.05)
        x_adv = x_adv.detach()
    return x_adv
""",
    "pgd by autograd.grad": """
def run(model: Net, x: torch.Tensor, y: torch.Tensor):
    x_adv = x.detach() + 0.001
    for _ in range(4):
        x_adv.requires_grad_()
        with torch.enable_grad():
            loss = F.nll_loss(model(x_adv), y)
        grad = torch.autograd.grad(loss, [x_adv])[0]
        x_adv = x_adv.detach() + 0.02 * torch.sign(grad.detach())
        x_adv = torch.min(torch.max(x_adv, x - 0.05), x + 0.05)
    return x_adv
""",
    "weights changed by hand": """
def run(model: Net, x: torch.Tensor, y: torch.Tensor):
    w1 = torch.full((4, 5), 0.3, requires_grad=True)
    w2 = torch.full((5, 1), 0.2, requires_grad=True)
    for t in range(5):
        y_pred = x.mm(w1).clamp(min=0).mm(w2)
        loss = (y_pred - 1.0).pow(2).sum()
        loss.backward()
        with torch.no_grad():
            w1 -= 0.01 * w1.grad
            w2 -= 0.01 * w2.grad
            w1.grad.zero_()
            w2.grad = None
    return w1.sum() + w2
""",
    "several passes in a row": """
def run(model: Net, x: torch.Tensor, y: torch.Tensor):
    a = torch.tensor(2., requires_grad=True)
    b = torch.tensor(3., requires_grad=True)
    z = a * b + a
    z.backward()
    out = [a.grad.clone(), b.grad.clone()]
    a = torch.tensor(5., requires_grad=True)
    z = a * a * b
    z.backward()
    out.append(a.grad)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    loss = F.nll_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    out.append(model.fc1.bias.grad.norm())
    optimizer.step()
    return torch.stack(out) + model(x).sum()
""",
    "cleared before": """
def run(model: Net, x: torch.Tensor, y: torch.Tensor):
    w = torch.ones(4, requires_grad=True)
    norms = []
    for t in range(3):
        if w.grad is not None:
            w.grad.zero_()
        loss = ((x * w) ** 2).sum()
        loss.backward()
        norms.append(w.grad.norm())
        w.data -= 0.1 * w.grad.data
    return torch.stack(norms).sum() + w
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_those_of_torch(name: str, tmp_path: Path) -> None:
    trains_alike(HEAD + PROGRAMS[name].lstrip(), tmp_path, "run", (5,), atol=2e-6)


LEFT = {
    "accumulates over the loop": """
    for t in range(3):
        loss = ((x * w) ** 2).sum()
        loss.backward()
        w.data -= 0.1 * w.grad
""",
    "read once it is zero": """
    loss = ((x * w) ** 2).sum()
    loss.backward()
    w.grad.zero_()
    g = w.grad.norm()
""",
    "read before": """
    for t in range(3):
        if t:
            print(w.grad)
        w.grad = None
        loss = ((x * w) ** 2).sum()
        loss.backward()
""",
    "not always cleared": """
    for t in range(3):
        loss = ((x * w) ** 2).sum()
        loss.backward()
        g = w.grad.norm()
        if t > 1:
            w.grad.zero_()
""",
    "left out by continue": """
    for t in range(3):
        loss = ((x * w) ** 2).sum()
        loss.backward()
        if w.grad.norm() > 1:
            continue
        w.grad.zero_()
""",
    "kept, and added to": """
    loss = ((x * w) ** 2).sum()
    loss.backward()
    kept = [w.grad]
    v = torch.ones(4, requires_grad=True)
    (v * w).sum().backward()
""",
    "kept, and set to zero": """
    kept = []
    for t in range(3):
        loss = ((x * w) ** 2).sum()
        loss.backward()
        kept.append(w.grad.data)
        w.grad.zero_()
""",
    "kept by a name, and set to zero": """
    for t in range(3):
        loss = ((x * w) ** 2).sum()
        loss.backward()
        g = w.grad
        w.grad.zero_()
        print(g)
""",
    "kept by a choice": """
    for t in range(3):
        loss = ((x * w) ** 2).sum()
        loss.backward()
        g = w.grad if t else x
        w.grad.zero_()
        print(g)
""",
    "kept by a function": """
    for t in range(3):
        loss = ((x * w) ** 2).sum()
        loss.backward()
        g: torch.Tensor = dict(g=torch.flatten(w.grad.contiguous()))["g"]
        w.grad.zero_()
        print(g)
""",
    "another backward": """
    (x * w).sum().backward()
    loss = ((x * w) ** 2).sum()
    loss.backward()
    g = w.grad.norm()
""",
    "read by another name": """
    f = lambda v: (v * w).sum()
    loss = f(x) + w.sum()
    loss.backward()
    g = w.grad.norm()
""",
    "an intermediate of another": """
    v = w * 2
    v.retain_grad()
    loss = (v * x).sum()
    loss.backward()
    g = v.grad + w.grad
""",
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_not_proved_is_left(name: str) -> None:
    head = "import torch\n\n\ndef run(x: torch.Tensor):\n    w = torch.ones(4, requires_grad=True)\n"
    converted = convert(head + LEFT[name].lstrip("\n") + "    return w\n")
    assert any("JM208 training step left" in line for line in converted.left)
    assert ".backward()" in converted.text


@pytest.mark.parametrize("value", ["w.grad.mean()", "w.data - 0.1 * w.grad"])
def test_a_copy_is_a_new_value_only_where_it_is_of_the_same_shape(value: str, tmp_path: Path) -> None:
    source = f"""import torch


def main(x: torch.Tensor):
    w = torch.ones(4, requires_grad=True)
    for t in range(3):
        loss = ((x * w) ** 2).sum()
        loss.backward()
        w.data.copy_({value})
        w.grad = None
    return w * 1
"""
    both = run_both(source, "main", np.sin(np.arange(4, dtype=np.float32)))
    assert both.same if "data" in value else "JM206" in both.codes


def test_a_function_that_reads_the_tensor_by_itself_is_left() -> None:
    source = """import torch

w = torch.ones(4, requires_grad=True)


def f(x: torch.Tensor):
    return (x * w).sum()


for _ in range(3):
    loss = f(torch.ones(4)) + w.sum()
    loss.backward()
    with torch.no_grad():
        w -= 0.1 * w.grad
        w.grad.zero_()
"""
    assert any("reads w by itself" in line for line in convert(source).left)


WALKS = (
    PLAIN
    + """def logged(model: Net, x: torch.Tensor, y: torch.Tensor):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    log = []
    for step in range(3):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        total_norm = 0.0
        for p in model.parameters():
            if p.grad is not None:
                param_norm = p.grad.data.norm(2)
                total_norm += param_norm.item() ** 2
        total_norm = total_norm ** 0.5
        for p in model.parameters():
            p.grad.data.clamp_(-0.1, 0.1)
        for p in model.parameters():
            p.grad *= 0.5
        for name, p in model.named_parameters():
            if "bias" in name:
                log.append(p.grad.abs().sum().item() + p.abs().sum().item())
        optimizer.step()
        log.append(model.fc1.weight.grad.norm().item() + total_norm)
        log.append(max(p.grad.max().item() for p in model.parameters()))
    return log


def by_hand(model: Net, x: torch.Tensor, y: torch.Tensor):
    losses = []
    for step in range(3):
        model.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        with torch.no_grad():
            for param in model.parameters():
                param -= 0.1 * param.grad
        losses.append(loss.item())
    return losses


def by_data(model: Net, x: torch.Tensor, y: torch.Tensor):
    losses = []
    for step in range(3):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        for f in model.parameters():
            f.data.sub_(f.grad.data * 0.1)
            f.grad.zero_()
        losses.append(loss.item())
    return losses


def beside_an_optimizer(model: Net, x: torch.Tensor, y: torch.Tensor):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(3):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-0.05)
        optimizer.step()
        losses.append(loss.item())
    return losses
"""
)


@pytest.mark.parametrize("name", ["logged", "by_hand", "by_data", "beside_an_optimizer"])
def test_walks_over_parameters(name: str, tmp_path: Path) -> None:
    trains_alike(WALKS, tmp_path, name, (5,))


HALVED = "for p in model.parameters():\n            p.grad *= 0.5\n"
ZERO, NORM = "        optimizer.zero_grad()\n", "        total_norm = 0.0\n"
LEFT_WALKS = {
    "of the turn before": (ZERO, f"        print([p.grad for p in model.parameters()])\n{ZERO}"),
    "set to zero before it is read": (NORM, f"{NORM}        model.zero_grad()\n"),
    "changed by more": (HALVED, HALVED.replace("0.5", "p.abs().sum()")),
    "changed beside something else": (HALVED, f"{HALVED}            log.append(p.sum().item())\n"),
    "kept, and changed": (f"for {HALVED[4:]}", f"log.append([q.grad for q in model.parameters()])\n        {HALVED}"),
    "of other parameters": (HALVED, HALVED.replace("model.parameters", "model.fc1.parameters")),
}


@pytest.mark.parametrize("name", LEFT_WALKS)
def test_walks_that_are_not_followed_are_left(name: str) -> None:
    old, new = LEFT_WALKS[name]
    assert old in WALKS
    converted = convert(WALKS.replace(old, new, 1))
    assert any("JM208 training step left" in line for line in converted.left)


ADVERSARIAL = (
    PLAIN
    + """def fgsm(model: Net, x: torch.Tensor, y: torch.Tensor, epsilon):
    x_adv = x.clone().detach().requires_grad_(True)
    loss = F.cross_entropy(model(x_adv), y)
    loss.backward()
    return (x_adv + epsilon * x_adv.grad.sign()).detach()


def train(model: Net, x: torch.Tensor, y: torch.Tensor):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(4):
        x_adv = fgsm(model, x, y, 0.1)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y) + F.cross_entropy(model(x_adv), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
"""
)


def test_adversarial_training(tmp_path: Path) -> None:
    trains_alike(ADVERSARIAL, tmp_path, "train", (5,))


LATENT = (
    PLAIN
    + """def perturb(head: nn.Linear, h: torch.Tensor, y: torch.Tensor):
    d = torch.zeros_like(h, requires_grad=True)
    loss = F.cross_entropy(head(h.detach() + d), y)
    loss.backward()
    return h + 0.1 * d.grad.sign()


def train(model: Net, x: torch.Tensor, y: torch.Tensor):
    head = nn.Linear(3, 3)
    with torch.no_grad():
        head.weight.copy_(torch.eye(3) + 0.1)
        head.bias.zero_()
    optimizer = torch.optim.SGD(list(model.parameters()) + list(head.parameters()), lr=0.1)
    losses = []
    for step in range(4):
        h = model(x)
        if step >= 0:
            h_adv = perturb(head, h, y)
            optimizer.zero_grad()
            loss = F.cross_entropy(head(h_adv), y) + model(x).pow(2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses
"""
)


def test_an_attack_on_features_keeps_the_gradient_of_what_computed_them(tmp_path: Path) -> None:
    trains_alike(LATENT, tmp_path, "train", (5,))


ATTACK, ZEROED = "        x_adv = fgsm(model, x, y, 0.1)\n", "        optimizer.zero_grad()\n"
LAST = "        losses.append(loss.item())\n"
STAYING = {
    "it adds to the gradients": {ATTACK + ZEROED: ZEROED + ATTACK},
    "not always set to zero": {ZEROED: f"        if step:\n    {ZEROED}"},
    "left before they are set to zero": {
        ATTACK + ZEROED: "        x_adv = x\n",
        LAST: f"{LAST}{ATTACK}        if step == 1:\n            continue\n{ZEROED}",
    },
    "read before they are set to zero": {LAST: f"{LAST}{ATTACK}        losses.append(model.fc1.weight.grad.norm())\n"},
}


@pytest.mark.parametrize("case", STAYING)
def test_an_attack_whose_gradients_stay_is_left(case: str) -> None:
    source = ADVERSARIAL
    for old, new in STAYING[case].items():
        assert old in source
        source = source.replace(old, new)
    assert any("JM208 training step left" in line for line in convert(source).left)
