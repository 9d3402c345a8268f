"""Forms of a training step: which are converted, which left or eager, and why."""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
import pytest
import torch
from converted import arrays, convert
from flax import nnx
from trained import NORMED, PLAIN, both, close, data, load, same_weights, trains_alike

LOOP = """
def fit(model: nn.Module, xs, ys, criterion=nn.CrossEntropyLoss()):
    opt = optim.SGD(model.parameters(), lr=0.1)
    out_list = []
    for i, (x, y) in enumerate(zip(xs, ys)):
        BODY
"""
ZERO, LOSS, BACK, STEP = "opt.zero_grad()", "loss = criterion(model(x), y)", "loss.backward()", "opt.step()"
BLOCK = "\n            "
REFUSED = {
    "no zero_grad": [LOSS, BACK, STEP],
    "has effects": [ZERO, "out = model(x)", "show(out.shape)", "loss = criterion(out, y)", BACK, STEP],
    "changes an object": [ZERO, "out = model(x)", "kept[0] = out", "loss = criterion(kept[0], y)", BACK, STEP],
    "may touch the gradients": [ZERO, LOSS, BACK, "show(model)", STEP],
    "`p.grad`": ["print([p.grad for p in model.parameters()])", ZERO, LOSS, BACK, STEP],
    "closure": [ZERO, LOSS, BACK, "opt.step(lambda: loss)"],
    "needs a number": [ZERO, "out = model(x)", "k = float(out.sum())", "loss = criterion(out, y) * k", BACK, STEP],
    "under torch.profiler": [ZERO, f"with torch.profiler.profile():{BLOCK}{LOSS}", BACK, STEP],
    "clips other gradients": [ZERO, LOSS, BACK, "nn.utils.clip_grad_norm_(model.last.parameters(), 1.0)", STEP],
    "another norm": [ZERO, LOSS, BACK, "nn.utils.clip_grad_norm_(model.parameters(), 1.0, norm_type=3)", STEP],
    "before they are set to zero": [LOSS, BACK, ZERO, STEP],
    "does not depend on": [ZERO, "loss = criterion(x, y)", BACK, STEP],
}


ACCUMULATE = f"if i % 3 == 2:{BLOCK}opt.step(){BLOCK}opt.zero_grad()"
CONVERTED = {
    "accumulation": [LOSS, BACK, ACCUMULATE],
    "accumulation, zero before": [f"if i % 2 == 0:{BLOCK}opt.zero_grad()", LOSS, BACK, f"if i % 2:{BLOCK}opt.step()"],
    "graph kept": [ZERO, LOSS, "loss.backward(retain_graph=True)", STEP],
    "two backward": [ZERO, LOSS, BACK, "more = torch.mean(model(x) ** 2)",
                     "more.backward()", "loss = loss + more", STEP],
    "losses summed": [ZERO, "out = model(x)", "loss = criterion(out, y)", "more = torch.mean(out**2)",
                      "loss.backward(retain_graph=True)", "more.backward()", "loss = loss + more", STEP],
    "bare losses": [ZERO, "criterion(model(x), y).backward()", "torch.mean(model(x) ** 2).backward()", STEP, LOSS],
    "1-norm": [ZERO, LOSS, BACK, "n = nn.utils.clip_grad_norm_(model.parameters(), 1.0, norm_type=1)", STEP,
               "loss = n"],
    "largest": [ZERO, LOSS, BACK, "nn.utils.clip_grad_norm_(model.parameters(), 0.1, float('inf'))", STEP],
    "value": [ZERO, LOSS, BACK, "nn.utils.clip_grad_value_(model.parameters(), 0.02)", STEP],
    "sometimes": [ZERO, LOSS, f"if i % 2:{BLOCK}loss.backward()", STEP],
    "autocast": [ZERO, f"with torch.autocast('cpu', enabled=False):{BLOCK}{LOSS}", BACK, STEP],
    "scaler": ["scaler = torch.amp.GradScaler('cpu', enabled=False)", ZERO, LOSS, "scaler.scale(loss).backward()",
               "scaler.unscale_(opt)", "nn.utils.clip_grad_norm_(model.parameters(), 0.1)", "scaler.step(opt)",
               "scaler.update()"],
    "skipped": [ZERO, LOSS, f"if i == 2:{BLOCK}continue", BACK, STEP],
}  # fmt: skip


@pytest.mark.parametrize("form", CONVERTED)
def test_forms(form: str, tmp_path: Path) -> None:
    """The forms of a loop: the same losses and weights, with momentum, so that a step without gradients shows."""
    loop = LOOP.replace("lr=0.1", "lr=0.1, momentum=0.9").replace("out_list = []", "out_list = []\n    opt.zero_grad()")
    body = "\n        ".join([*CONVERTED[form], "out_list.append(loss.item())"]).replace("print", "str")
    source = NORMED + loop.replace("BODY", body) + "    return out_list\n"
    _, theirs, ours, model, twin = both(source, tmp_path)
    xs, ys = data(7)
    start = arrays(model.state_dict())
    want = theirs.fit(model, torch.tensor(xs), torch.tensor(ys))
    close(ours.fit(twin, jnp.asarray(xs), jnp.asarray(ys)), want)
    same_weights(twin, model, start)


TWO_AT_ONCE = (
    NORMED
    + """
def fit(one: Net, other: Net, xs: torch.Tensor, ys: torch.Tensor):
    opt_one = optim.SGD(one.parameters(), lr=0.1)
    opt_other = optim.Adam(other.parameters(), lr=1e-2)
    losses = []
    for x, y in zip(xs, ys):
        first = one(x)
        second = OTHER
        loss_one = F.cross_entropy(first, y)
        loss_other = F.cross_entropy(second, y)
        opt_one.zero_grad()
        opt_other.zero_grad()
        loss_one.backward(KEPT)
        loss_other.backward()
        opt_one.step()
        opt_other.step()
        losses.append((loss_one.item(), loss_other.item()))
    return losses
"""
)


@pytest.mark.parametrize(("other", "kept"), [("other(x)", ""), ("other(x) + first", "retain_graph=True")])
def test_losses_that_are_differentiated_one_after_the_other(other: str, kept: str, tmp_path: Path) -> None:
    source = TWO_AT_ONCE.replace("OTHER", other).replace("KEPT", kept)
    _, theirs, ours, one, twin_one = both(source, tmp_path)
    other_model, twin_other = theirs.Net(), ours.Net(rngs=nnx.Rngs(1))
    load(twin_other, other_model)
    xs, ys = data()
    start, start_other = arrays(one.state_dict()), arrays(other_model.state_dict())
    want = theirs.fit(one, other_model, torch.tensor(xs), torch.tensor(ys))
    close(ours.fit(twin_one, twin_other, jnp.asarray(xs), jnp.asarray(ys)), want)
    same_weights(twin_one, one, start)
    same_weights(twin_other, other_model, start_other)


@pytest.mark.parametrize("reason", REFUSED)
def test_refused(reason: str) -> None:
    body = "\n        ".join(REFUSED[reason])
    converted = convert(NORMED + LOOP.replace("BODY", body))
    backward = [f for f in converted.findings if f.code == "JM208" and f.name == "torch.Tensor.backward"]
    assert backward and all(reason in f.message for f in backward), converted.left
    assert (
        ".backward(" in converted.text and "nnx.grad" not in converted.text and "value_and_grad" not in converted.text
    )
    assert converted.status == "changed"


@pytest.mark.parametrize(
    ("before", "loss", "reason"),
    [
        ("reg = model.last.weight.pow(2).sum()", "F.cross_entropy(model(x), y) + reg", "outside this block"),
        ("pass", "F.cross_entropy(model(x), y) + penalty()", "reads model by itself"),
        ("pass", "F.mse_loss(model(x), other(x))", "several modules"),
        (
            "head = nn.Linear(2, 2)\n    model.parts.append(head)",
            "F.cross_entropy(head(model(x)), y)",
            "several modules",
        ),
        (
            "head = nn.Linear(2, 2)\n    setattr(model, 'head', head)",
            "F.cross_entropy(head(model(x)), y)",
            "several modules",
        ),
    ],
)
def test_gradients_that_would_be_lost(before: str, loss: str, reason: str) -> None:
    source = (
        NORMED
        + f"""
def penalty():
    return sum(p.pow(2).sum() for p in model.parameters())

def fit(model: Net, other: Net, xs, ys):
    opt = optim.SGD(model.parameters(), lr=0.1)
    {before}
    for x, y in zip(xs, ys):
        opt.zero_grad()
        loss = {loss}
        loss.backward()
        opt.step()
"""
    )
    converted = convert(source)
    assert any(f.code == "JM208" and reason in f.message for f in converted.findings), converted.left
    assert "value_and_grad" not in converted.text


def test_freezing_is_reported() -> None:
    body = "\n        ".join(
        [f"for p in model.first.parameters():{BLOCK}p.requires_grad = False", ZERO, LOSS, BACK, STEP]
    )
    converted = convert(NORMED + LOOP.replace("BODY", body))
    assert any(f.code == "JM208" and f.name == "torch.Tensor.requires_grad" for f in converted.findings)


def test_other_uses_of_an_optimizer_are_reported() -> None:
    change = f"for group in opt.param_groups:{BLOCK}group['momentum'] = 0.1"
    body = "\n        ".join([ZERO, LOSS, BACK, STEP, change])
    converted = convert(NORMED + LOOP.replace("BODY", body))
    assert any(f.code == "JM208" and "param_groups" in f.message for f in converted.findings)


EAGER = {
    "`loss.item() > 2.0` reads a value": [ZERO, LOSS, f"if loss.item() > 2.0:{BLOCK}continue", BACK, STEP],
    "`x > 0` reads": [ZERO, "loss = criterion(model(x if (x > 0).all() else -x), y)", BACK, STEP],
    "a boolean mask says where to write": [
        ZERO,
        "m = torch.tensor([True] * 7 + [False], dtype=torch.bool)",
        "out = model(x)",
        "t = torch.zeros(8)",
        "t[m] = out[:7, 0]",
        "loss = criterion(out, y) + t.sum()",
        BACK,
        STEP,
    ],
    "a boolean mask decides": [ZERO, "loss = criterion(model(x)[y > 0], y[y > 0])", BACK, STEP],
    "nothing shows what `helper`": [ZERO, "loss = criterion(model(helper(x)), y)", BACK, STEP],
    "`float(x.sum())` reads": ["loss = criterion(model(x), y) / float(x.sum())", BACK, ACCUMULATE],
    "`i` is a Python value": [ZERO, "loss = criterion(model(x)[: i + 1], y[: i + 1])", BACK, STEP],
}


@pytest.mark.parametrize("reason", EAGER)
def test_what_stays_eager(reason: str) -> None:
    loop = LOOP.replace("xs, ys", "xs: torch.Tensor, ys: torch.Tensor", 1).replace("[]", "[]\n    opt.zero_grad()")
    converted = convert(NORMED + loop.replace("BODY", "\n        ".join(EAGER[reason])))
    assert "def train_step(" not in converted.text and "def grad_step(" not in converted.text
    found = [f for f in converted.findings if f.code == "JM141" and f.name == "torch.optim.Optimizer.step"]
    assert found and "the step runs eagerly: " in found[0].message, converted.findings


GIVEN = (
    PLAIN
    + """class Softened(nn.Module):
    def __init__(self, by):
        super().__init__()
        self.by = by

    def forward(self, ours, theirs):
        return F.kl_div(F.log_softmax(ours / self.by, 1), F.softmax(theirs / self.by, 1), reduction="batchmean")


def learn(student: Net, teacher: Net, x: torch.Tensor, y: torch.Tensor, optimizer, criterion):
    losses = []
    for step in range(3):
        out = student(x)
        loss = criterion(out, TEACHER) + F.cross_entropy(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def warm_up(model: Net, x: torch.Tensor, y: torch.Tensor):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(2):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    return [loss.item()]


def train(model: Net, x: torch.Tensor, y: torch.Tensor):
    losses = warm_up(model, x, y)
    student = Net()
    student.load_state_dict(model.state_dict())
    optimizer = torch.optim.SGD(TRAINED.parameters(), lr=0.1, momentum=0.9)
    losses += learn(student, model, x, y, optimizer=optimizer, criterion=Softened(2.0))
    losses += warm_up(model, x, y)
    last = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(2):
        last.zero_grad()
        loss = F.cross_entropy(model(x), y) * F.cross_entropy(student(x), y).item()
        loss.backward()
        last.step()
        AFTER
        losses.append(loss.item())
    return losses
"""
)


@pytest.mark.parametrize(("teacher", "trained"), [("teacher(x).detach()", "student"), ("teacher(x)", "model")])
def test_calls_show_what_an_optimizer_trains(teacher: str, trained: str, tmp_path: Path) -> None:
    """Beside it, functions with training of their own, which leave nothing in these gradients."""
    source = GIVEN.replace("TEACHER", teacher).replace("TRAINED", trained).replace("AFTER", "pass")
    trains_alike(source, tmp_path, "train", (6,))


@pytest.mark.parametrize(
    ("trained", "after", "reason"),
    [
        ("model", "pass", "the loss does not depend on teacher"),
        ("student", "losses += warm_up(model, x, y)", "acts on gradients"),
    ],
)
def test_calls_show_what_is_not_converted(trained: str, after: str, reason: str) -> None:
    source = GIVEN.replace("TEACHER", "teacher(x).detach()").replace("TRAINED", trained).replace("AFTER", after)
    assert any("JM208" in line and reason in line for line in convert(source).left)


KEEPING = {
    "a loss that has the module": ("", "Ridge(self.net)", "self.net.fc1", "several modules take part"),
    "a loss that has its owner": ("", "Ridge(self)", "self.net.net.fc1", "several modules take part"),
    "a loss that reads a global": ("net = Net()\n\n\n", "Ridge(None)", "net.fc1", "reads net by itself"),
}


@pytest.mark.parametrize("case", KEEPING)
def test_losses_that_keep_the_module(case: str) -> None:
    before, made, read, reason = KEEPING[case]
    trained = "net" if before else "self.net"
    source = (
        PLAIN
        + before
        + f"""class Ridge(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, out, y):
        return F.cross_entropy(out, y) + {read}.weight.pow(2).sum()


class Trainer:
    def __init__(self):
        self.net = Net()
        self.loss = {made}
        self.optimizer = torch.optim.SGD({trained}.parameters(), lr=0.1)

    def fit(self, x: torch.Tensor, y: torch.Tensor):
        self.optimizer.zero_grad()
        loss = self.loss({trained}(x), y)
        loss.backward()
        self.optimizer.step()
"""
    )
    assert any("JM208" in line and reason in line for line in convert(source).left)
