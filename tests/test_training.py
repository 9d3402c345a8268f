"""Training programs: the original under torch and its conversion take the same steps from the same weights."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

sys.path.insert(0, str(Path(__file__).parent))
from converted import Converted, arrays, convert, under_jax, under_torch

from jaxmigrate.layers.library.base import load_state_dict, state_dict

torch.set_num_threads(1)
TOLERANCE = 2e-5

HEAD = """
import torch
from torch import nn, optim
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 5, bias=False)
        self.norm = nn.BatchNorm1d(5)
        self.last = nn.Linear(5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.norm(self.first(x))))

"""


def data(steps: int = 6) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(steps, 8, 3)).astype(np.float32), rng.integers(0, 2, (steps, 8))


def close(ours: Any, theirs: Any) -> None:
    np.testing.assert_allclose(
        np.asarray(ours, np.float64), np.asarray(theirs, np.float64), rtol=TOLERANCE, atol=TOLERANCE
    )


def both(source: str, folder: Path) -> tuple[Converted, Any, Any, Any, Any]:
    """(conversion, torch program, JAX program, torch model, JAX model) with equal weights."""
    converted = convert(source)
    assert converted.status == "changed" and not converted.left, converted.left
    theirs, ours = under_torch(source), under_jax(converted, folder)
    torch.manual_seed(0)
    model = theirs.Net()
    twin = ours.Net(rngs=nnx.Rngs(0))
    load_state_dict(twin, {k: v for k, v in arrays(model.state_dict()).items() if "num_batches" not in k}, strict=False)
    return converted, theirs, ours, model, twin


def same_weights(twin: Any, model: Any, start: dict[str, np.ndarray]) -> None:
    ours, theirs = state_dict(twin), arrays(model.state_dict())
    names = [n for n in ours if n in theirs and "num_batches" not in n]
    assert len(names) == 7
    assert max(float(np.abs(theirs[n] - start[n]).max()) for n in names if "running" not in n) > 1e-3
    for name in names:
        close(ours[name], theirs[name])


ONE_SCOPE = (
    HEAD
    + """
def fit(model: nn.Module, xs: torch.Tensor, ys: torch.Tensor):
    optimizer = OPTIMIZER
    losses, hits, seen = [], 0, []
    for x, y in zip(xs, ys):
        optimizer.zero_grad()  # start anew
        output = model(x)
        # the loss of this batch
        loss = F.cross_entropy(output, y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        hits += (output.argmax(dim=1) == y).sum().item()
    return losses, hits
"""
)


@pytest.mark.parametrize(
    "optimizer",
    [
        "optim.SGD(model.parameters(), lr=0.1)",
        "optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=1e-2, nesterov=True)",
        "optim.Adam(model.parameters(), lr=1e-2, betas=(0.8, 0.95))",
        "optim.AdamW(params=model.parameters(), lr=1e-2)",
        "optim.RMSprop(list(model.parameters()), lr=1e-2, momentum=0.5)",
    ],
)
def test_one_scope(optimizer: str, tmp_path: Path) -> None:
    converted, theirs, ours, model, twin = both(ONE_SCOPE.replace("OPTIMIZER", optimizer), tmp_path)
    assert "nnx.cached_partial(train_step, model, optimizer)" in converted.text
    assert "# the loss of this batch" in converted.text and "# start anew" in converted.text
    xs, ys = data()
    start = arrays(model.state_dict())
    want = theirs.fit(model, torch.tensor(xs), torch.tensor(ys))
    got = ours.fit(twin, jnp.asarray(xs), jnp.asarray(ys))
    close(got[0], want[0])
    assert got[1] == want[1]
    same_weights(twin, model, start)


ACROSS = (
    HEAD
    + """
def train(model, batches, optimizer, criterion):
    model.train()
    total = 0.0
    for x, y in batches:
        output = model(x)
        loss = criterion(output, y)
        total += loss.item()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.3)
        optimizer.step()
    return total


@torch.no_grad()
def evaluate(model, batches):
    model.eval()
    wrong = 0
    for x, y in batches:
        wrong += (model(x).argmax(1) != y).sum().item()
    return wrong


def run(model: Net, xs: torch.Tensor, ys: torch.Tensor):
    batches = list(zip(xs, ys))
    optimizer = optim.Adam(model.parameters(), lr=2e-2)
    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    history = []
    for epoch in range(1, 5):
        history.append((train(model, batches, optimizer, nn.CrossEntropyLoss()), evaluate(model, batches)))
        scheduler.step()
    return history
"""
)


def test_across_functions(tmp_path: Path) -> None:
    converted, theirs, ours, model, twin = both(ACROSS, tmp_path)
    assert "optimizer.update(model, grads)" in converted.text
    xs, ys = data(3)
    start = arrays(model.state_dict())
    want = theirs.run(model, torch.tensor(xs), torch.tensor(ys))
    got = ours.run(twin, jnp.asarray(xs), jnp.asarray(ys))
    close(got, want)
    same_weights(twin, model, start)


SCHEDULES = (
    HEAD
    + """
def fit(model: nn.Module, xs: torch.Tensor, ys: torch.Tensor):
    opt = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    sched = SCHEDULE
    seen = []
    for epoch in range(3):
        for x, y in zip(xs, ys):
            opt.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
            PER_STEP
            seen.append(loss.item())
        PER_EPOCH
    return seen
"""
)
RATES = [
    "optim.lr_scheduler.CosineAnnealingLR(opt, 4)",
    "optim.lr_scheduler.LinearLR(opt, 0.1, total_iters=3)",
    "optim.lr_scheduler.LambdaLR(opt, lambda n: 0.5 ** n)",
    "optim.lr_scheduler.MultiStepLR(opt, [1, 2])",
]


@pytest.mark.parametrize("schedule", RATES)
@pytest.mark.parametrize(
    "places",
    [
        ("sched.step()", "pass"),
        ("pass", "sched.step()"),
        ("pass", "sched.step(); seen.append(sched.get_last_lr()[0])".replace("; ", "\n        ")),
        ("pass", "if epoch > 0:\n            sched.step()"),
    ],
)
def test_schedules(schedule: str, places: tuple[str, str], tmp_path: Path) -> None:
    source = SCHEDULES.replace("SCHEDULE", schedule).replace("PER_STEP", places[0]).replace("PER_EPOCH", places[1])
    _, theirs, ours, model, twin = both(source, tmp_path)
    xs, ys = data(3)
    want = theirs.fit(model, torch.tensor(xs), torch.tensor(ys))
    close(ours.fit(twin, jnp.asarray(xs), jnp.asarray(ys)), want)


TRAINER = (
    HEAD
    + """
class Trainer:
    def __init__(self, model: Net, teacher: Net):
        self.model = model
        self.teacher = teacher.eval()
        self.optimizer = optim.SGD(self.model.parameters(), lr=0.1)

    def fit(self, xs: torch.Tensor):
        losses = []
        for x in xs:
            with torch.no_grad():
                # what it should say
                wanted = self.teacher(x)
            self.optimizer.zero_grad()
            out = self.model(x)
            (F.mse_loss(out, wanted) + 0.1 * (out - out.detach() * 0.5).pow(2).mean()).backward()
            self.optimizer.step()
            losses.append(out.sum().item())
        return losses
"""
)


def test_optimizer_on_self(tmp_path: Path) -> None:
    converted, theirs, ours, model, twin = both(TRAINER, tmp_path)
    assert "nnx.Optimizer(self.model" in converted.text and "# what it should say" in converted.text
    torch.manual_seed(1)
    teacher, teacher_twin = theirs.Net(), ours.Net(rngs=nnx.Rngs(1))
    load_state_dict(
        teacher_twin, {k: v for k, v in arrays(teacher.state_dict()).items() if "num_b" not in k}, strict=False
    )
    xs, _ = data()
    start = arrays(model.state_dict())
    want = theirs.Trainer(model, teacher).fit(torch.tensor(xs))
    close(ours.Trainer(twin, teacher_twin).fit(jnp.asarray(xs)), want)
    same_weights(twin, model, start)


def test_leaf_tensors(tmp_path: Path) -> None:
    source = """
import torch

def fit(steps):
    w = torch.tensor([1.0, -2.0, 0.5], requires_grad=True)
    b = torch.tensor(0.3, requires_grad=True)
    opt = torch.optim.Adam([w, b], lr=0.1, weight_decay=0.1)
    for i in range(steps):
        opt.zero_grad()
        total = ((w * w).sum() + b) ** 2
        total.backward()
        opt.step()
    return w.tolist() + [b.item(), total.item()]
"""
    converted = convert(source)
    assert not converted.left
    close(under_jax(converted, tmp_path).fit(4), under_torch(source).fit(4))


def test_carried_state_and_loops(tmp_path: Path) -> None:
    source = (
        HEAD
        + """
def fit(model: nn.Module, xs: torch.Tensor, ys: torch.Tensor):
    opt = optim.SGD(model.parameters(), lr=0.1)
    shown = []
    state = torch.zeros(8, 2)
    for x, y in zip(xs, ys):
        opt.zero_grad()
        state = state.detach()
        loss = torch.zeros(())
        for i in range(2):
            state = 0.5 * state + model(x)
            loss = loss + F.cross_entropy(state, y)
        loss.backward()
        opt.step()
        shown.append(loss.item())
    return shown, state.tolist()
"""
    )
    _, theirs, ours, model, twin = both(source, tmp_path)
    xs, ys = data(4)
    want = theirs.fit(model, torch.tensor(xs), torch.tensor(ys))
    got = ours.fit(twin, jnp.asarray(xs), jnp.asarray(ys))
    close(got[0], want[0])
    close(got[1], want[1])


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
    source = HEAD + loop.replace("BODY", body) + "    return out_list\n"
    _, theirs, ours, model, twin = both(source, tmp_path)
    xs, ys = data(7)
    start = arrays(model.state_dict())
    want = theirs.fit(model, torch.tensor(xs), torch.tensor(ys))
    close(ours.fit(twin, jnp.asarray(xs), jnp.asarray(ys)), want)
    same_weights(twin, model, start)


TWO_AT_ONCE = (
    HEAD
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
    weights = {k: v for k, v in arrays(other_model.state_dict()).items() if "num_batches" not in k}
    load_state_dict(twin_other, weights, strict=False)
    xs, ys = data()
    start, start_other = arrays(one.state_dict()), arrays(other_model.state_dict())
    want = theirs.fit(one, other_model, torch.tensor(xs), torch.tensor(ys))
    close(ours.fit(twin_one, twin_other, jnp.asarray(xs), jnp.asarray(ys)), want)
    same_weights(twin_one, one, start)
    same_weights(twin_other, other_model, start_other)


@pytest.mark.parametrize("reason", REFUSED)
def test_refused(reason: str) -> None:
    body = "\n        ".join(REFUSED[reason])
    converted = convert(HEAD + LOOP.replace("BODY", body))
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
    ],
)
def test_gradients_that_would_be_lost(before: str, loss: str, reason: str) -> None:
    source = (
        HEAD
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


def test_no_grad_in_a_module_cuts_the_gradient(tmp_path: Path) -> None:
    source = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Linear(3, 1)

    @torch.no_grad()
    def target(self, x):
        return 0.5 * self.f(x) + 1

    def forward(self, x):
        with torch.no_grad():
            scale = self.f(x).mean()
            low, high = self.f(x).min(), self.f(x).max()
        return ((scale * self.f(x) - self.target(x)) ** 2).mean() + (high - low) * self.f.bias.sum()
"""
    _, _, _, model, twin = both(source, tmp_path)
    xs, _ = data(1)
    loss = model(torch.tensor(xs[0]))
    loss.backward()
    value, grads = nnx.value_and_grad(lambda m: m(jnp.asarray(xs[0])))(twin)
    close(value, loss.item())
    close(grads["f"]["weight"][...], model.f.weight.grad.numpy())
    close(grads["f"]["bias"][...], model.f.bias.grad.numpy())


SEVERAL_MODES = """
import contextlib
import torch

def f(x):
    with torch.inference_mode(False), torch.autocast(device_type=x.device.type, enabled=False):
        y = torch.sin(x)
    with contextlib.suppress(ValueError), torch.enable_grad(), torch.autocast("cpu", enabled=False):
        y = torch.sin(y)
    with torch.enable_grad(), contextlib.suppress(ValueError), torch.autocast("cpu", enabled=False):
        y = torch.sin(y)
    return y
"""


def test_several_modes_of_one_with_go_together(tmp_path: Path) -> None:
    converted = convert(SEVERAL_MODES)
    assert converted.text.count("with contextlib.suppress(ValueError):") == converted.text.count("with ") == 2
    xs, _ = data(1)
    theirs = under_torch(SEVERAL_MODES).f(torch.tensor(xs[0])).numpy()
    close(under_jax(converted, tmp_path).f(jnp.asarray(xs[0])), theirs)


METHODS = (
    HEAD
    + """
def build(flag: bool):
    model = Net().to("cpu").eval()
    model.train(flag)
    return model.eval() if flag else model


def describe(model: Net, x: torch.Tensor):
    count = sum(p.numel() for p in model.parameters() if p.requires_grad)
    shapes = [tuple(p.shape) for p in model.parameters()]
    names = [n for n, _ in model.named_parameters()]
    total = len(list(model.parameters()))
    for p in model.parameters():
        total += p.dim()
    out = model.eval()(x)
    return count, shapes, names, total, out.sum().item()


def copy(model: Net):
    other = Net()
    other.load_state_dict(model.state_dict(), strict=False)
    return other.eval()
"""
)


def test_module_methods(tmp_path: Path) -> None:
    converted = convert(METHODS.replace("return model.eval() if flag else model", "return model.eval()"))
    assert not converted.left
    source = METHODS.replace("return model.eval() if flag else model", "return model.eval()")
    _, theirs, ours, model, twin = both(source, tmp_path)
    xs, _ = data(1)
    want = theirs.describe(model, torch.tensor(xs[0]))
    got = ours.describe(twin, jnp.asarray(xs[0]))
    assert got[:4] == want[:4]
    close(got[4], want[4])


def test_gradients_read_by_name(tmp_path: Path) -> None:
    source = (
        HEAD
        + """
def leaves():
    out = []
    for name, f in (("square", torch.square), ("exp", torch.exp)):
        x = torch.tensor([0.5, -1.0], requires_grad=True)
        y = torch.tensor([2.0, 3.0]).requires_grad_()
        (f(x) * y).sum().backward()
        out.append(x.grad.tolist() + y.grad.tolist())
    return out


def clipped():
    p = nn.Parameter(torch.tensor([3.0, 4.0]))
    loss = (p * torch.tensor([0.3, 0.4])).sum()
    loss.backward()
    norm = nn.utils.clip_grad_norm_([p], max_norm=0.1)
    return norm.item(), loss.item(), p.grad.tolist()


def of_a_model(seed: Net, x: torch.Tensor):
    model = seed
    loss = model(x).pow(2).mean()
    loss.backward()
    return loss.item(), model.last.weight.grad.tolist()
"""
    )
    _, theirs, ours, model, twin = both(source, tmp_path)
    close(ours.leaves(), theirs.leaves())
    for got, want in zip(ours.clipped(), theirs.clipped(), strict=True):
        close(got, want)
    xs, _ = data(1)
    for got, want in zip(
        ours.of_a_model(twin, jnp.asarray(xs[0])), theirs.of_a_model(model, torch.tensor(xs[0])), strict=True
    ):
        close(got, want)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("for i in range(2):\n        (x * i).sum().backward()\n    return x.grad", "x.grad"),
        ("y = x * 2\n    y.sum().backward()\n    (x * x).sum().backward()\n    return x.grad", "x.grad"),
        ("(x * x).sum().backward()\n    x.grad.zero_()\n    return x.grad * 1.0", "x.grad"),
    ],
)
def test_gradients_that_accumulate_are_left(body: str, reason: str | None) -> None:
    converted = convert(
        f"import torch\n\n\ndef f():\n    x = torch.tensor([1.0, 2.0], requires_grad=True)\n    {body}\n"
    )
    assert any(f.code == "JM208" for f in converted.findings) and reason in converted.text
    assert "jax.grad" not in converted.text and "value_and_grad" not in converted.text


def test_rates_without_gradients(tmp_path: Path) -> None:
    source = """
import torch

def rates(steps):
    p = torch.zeros(1, requires_grad=True)
    opt = torch.optim.SGD([p], lr=0.4)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=4, eta_min=0.04)
    seen = []
    for _ in range(steps):
        seen.append(sched.get_last_lr()[0])
        opt.step()
        sched.step()
    return seen
"""
    converted = convert(source)
    assert not converted.left
    close(under_jax(converted, tmp_path).rates(7), under_torch(source).rates(7))


def test_freezing_is_reported() -> None:
    body = "\n        ".join(
        [f"for p in model.first.parameters():{BLOCK}p.requires_grad = False", ZERO, LOSS, BACK, STEP]
    )
    converted = convert(HEAD + LOOP.replace("BODY", body))
    assert any(f.code == "JM208" and f.name == "torch.Tensor.requires_grad" for f in converted.findings)


def test_other_uses_of_an_optimizer_are_reported() -> None:
    change = f"for group in opt.param_groups:{BLOCK}group['momentum'] = 0.1"
    body = "\n        ".join([ZERO, LOSS, BACK, STEP, change])
    converted = convert(HEAD + LOOP.replace("BODY", body))
    assert any(f.code == "JM208" and "param_groups" in f.message for f in converted.findings)


def test_text_of_the_plain_loop() -> None:
    text = convert(ONE_SCOPE.replace("OPTIMIZER", "optim.SGD(model.parameters(), lr=0.1)")).text
    assert (
        text[text.index("def fit") :]
        == """def fit(model: nnx.Module, xs: jax.Array, ys: jax.Array):
    optimizer = nnx.Optimizer(model, optax.sgd(0.1), wrt=nnx.Param)
    losses, hits, seen = [], 0, []

    @nnx.jit
    def train_step(model, optimizer, x, y):
        def loss_fn(model):
            output = model(x)
            # the loss of this batch
            loss = cross_entropy(output, y)
            return loss, output

        (loss, output), grads = nnx.value_and_grad(loss_fn, has_aux=True)(model)
        optimizer.update(model, grads)
        return output, loss

    cached_train_step = nnx.cached_partial(train_step, model, optimizer)
    for x, y in zip(xs, ys):
        # start anew
        output, loss = cached_train_step(x, y)
        losses.append(loss.item())
        hits += jnp.sum(jnp.argmax(output, axis=1) == y).item()
    return losses, hits
"""
    )


def test_steps_compile_once(tmp_path: Path) -> None:
    converted, _, ours, _, twin = both(ONE_SCOPE.replace("OPTIMIZER", "optim.Adam(model.parameters())"), tmp_path)
    traced = []
    forward = ours.Net.__call__
    ours.Net.__call__ = lambda self, x: traced.append(x) or forward(self, x)
    xs, ys = data(9)
    ours.fit(twin, jnp.asarray(xs), jnp.asarray(ys))
    assert len(traced) <= 2
    steps = [f for f in converted.findings if f.name == "torch.optim.Optimizer.step"]
    assert [f.code for f in steps] == ["JM002"] and "train_step under nnx.jit" in steps[0].message


EAGER = {
    "`loss.item() > 2.0` reads a value": [ZERO, LOSS, f"if loss.item() > 2.0:{BLOCK}continue", BACK, STEP],
    "`x > 0` reads": [ZERO, "loss = criterion(model(x if (x > 0).all() else -x), y)", BACK, STEP],
    "a boolean mask": [ZERO, "loss = criterion(model(x)[y > 0], y[y > 0])", BACK, STEP],
    "nothing shows what `helper`": [ZERO, "loss = criterion(model(helper(x)), y)", BACK, STEP],
    "`float(x.sum())` reads": ["loss = criterion(model(x), y) / float(x.sum())", BACK, ACCUMULATE],
    "`i` is a Python value": [ZERO, "loss = criterion(model(x)[: i + 1], y[: i + 1])", BACK, STEP],
}


@pytest.mark.parametrize("reason", EAGER)
def test_what_stays_eager(reason: str) -> None:
    loop = LOOP.replace("xs, ys", "xs: torch.Tensor, ys: torch.Tensor", 1).replace("[]", "[]\n    opt.zero_grad()")
    converted = convert(HEAD + loop.replace("BODY", "\n        ".join(EAGER[reason])))
    assert "def train_step(" not in converted.text and "def grad_step(" not in converted.text
    found = [f for f in converted.findings if f.code == "JM141" and f.name == "torch.optim.Optimizer.step"]
    assert found and "the step runs eagerly: " in found[0].message, converted.findings


SCHEDULED = (
    HEAD
    + """
def fit(model: nn.Module, xs: torch.Tensor, ys: torch.Tensor):
    opt = OPTIMIZER
    MADE
    losses, rates = [], []
    for epoch in range(3):
        for x, y in zip(xs, ys):
            opt.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
            losses.append(loss.item())
            BATCH
        EPOCH
    return losses, rates
"""
)
SGD = "optim.SGD(model.parameters(), lr=0.2, momentum=0.9)"
READ = "rates.append(opt.param_groups[0]['lr'])"
S = "torch.optim.lr_scheduler."
SCHEDULERS = {
    "one cycle, SGD": (SGD, f"s = {S}OneCycleLR(opt, 0.5, total_steps=15)", "s.step()", READ),
    "one cycle, Adam": ("optim.Adam(model.parameters(), betas=(0.8, 0.99))",
                        f"s = {S}OneCycleLR(opt, 0.1, epochs=3, steps_per_epoch=4)", "s.step()", "pass"),
    "cyclic": (SGD, f"s = {S}CyclicLR(opt, 0.01, 0.3, step_size_up=3, mode='triangular2')", "s.step()", "pass"),
    "plateau": (SGD, f"s = {S}ReduceLROnPlateau(opt, patience=0, threshold=0.5)", "pass",
                f"s.step(loss)\n        {READ}"),
    "sequence": (SGD, f"w = {S}LinearLR(opt, 0.1, total_iters=4)\n    c = {S}CosineAnnealingLR(opt, 8)\n"
                      f"    s = {S}SequentialLR(opt, [w, c], milestones=[4])", "s.step()", READ),
    "sequence of calls": (SGD, f"s = {S}SequentialLR(opt, [{S}ConstantLR(opt, 0.5, 3),"
                               f" {S}ExponentialLR(opt, 0.9)], [3])",
                          "s.step()", "pass"),
    "chain": (SGD, f"s = {S}ChainedScheduler([{S}ExponentialLR(opt, 0.9), {S}StepLR(opt, 2)])", "pass",
              f"s.step()\n        {READ}"),
    "lambda": (SGD, f"s = {S}LambdaLR(opt, lambda e: min(1.0, (e + 1) / 5) if e < 6 else 0.5)", "s.step()", "pass"),
    "product": (SGD, f"s = {S}MultiplicativeLR(opt, lambda e: 0.8 if e % 2 else 1.0)", "s.step()", READ),
    "restarts": (SGD, f"s = {S}CosineAnnealingWarmRestarts(opt, 2, T_mult=2)", "s.step()", READ),
    "conditional": (SGD, f"s = {S}StepLR(opt, 1, 0.5)", "pass", "if epoch > 0:\n            s.step()"),
    "groups": ("optim.AdamW([{'params': model.last.parameters(), 'weight_decay': 0.3},"
               " {'params': [model.first.weight]}], lr=0.05)", f"s = {S}ExponentialLR(opt, 0.7)", "pass", "s.step()"),
    "by hand": (SGD, "pass", "pass",
                f"for group in opt.param_groups:\n            group['lr'] = 0.2 / (epoch + 2)\n        {READ}"),
    "by hand, times": (SGD, "pass", "opt.param_groups[0]['lr'] *= 0.9", READ),
    "by hand, first": (SGD, "pass", READ, "opt.param_groups[0]['lr'] = 0.1 if epoch else 0.15"),
    "given on": (SGD, f"s = {S}StepLR(opt, 1, 0.5)\n    every = [s]", "pass",
                 "for one in every:\n            one.step()\n        rates.append(s.get_last_lr()[0])"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:The epoch parameter in")
@pytest.mark.parametrize("form", SCHEDULERS)
def test_scheduler_forms(form: str, tmp_path: Path) -> None:
    optimizer, made, batch, epoch = SCHEDULERS[form]
    source = (
        SCHEDULED.replace("OPTIMIZER", optimizer).replace("MADE", made).replace("BATCH", batch).replace("EPOCH", epoch)
    )
    _, theirs, ours, model, twin = both(source, tmp_path)
    xs, ys = data(4)
    want = theirs.fit(model, torch.tensor(xs), torch.tensor(ys))
    got = ours.fit(twin, jnp.asarray(xs), jnp.asarray(ys))
    close(got[0], want[0])
    close(got[1], want[1])


CLOSURE = (
    HEAD
    + """
def fit(model: nn.Module, xs: torch.Tensor, ys: torch.Tensor):
    opt = OPTIMIZER
    losses = []
    for x, y in zip(xs, ys):
        def closure():
            opt.zero_grad()
            out = model(x)
            loss = F.cross_entropy(out, y)
            loss.backward()
            return loss
        loss = opt.step(closure)
        losses.append(loss.item())
    return losses
"""
)


@pytest.mark.parametrize(
    "optimizer", ["optim.Adam(model.parameters(), lr=0.01)", "optim.LBFGS(model.parameters(), 0.3)"]
)
def test_closures(optimizer: str, tmp_path: Path) -> None:
    _, theirs, ours, model, twin = both(CLOSURE.replace("OPTIMIZER", optimizer), tmp_path)
    xs, ys = data(2 if "LBFGS" in optimizer else 4)  # a third batch would be chaos
    start = arrays(model.state_dict())
    want = theirs.fit(model, torch.tensor(xs), torch.tensor(ys))
    np.testing.assert_allclose(ours.fit(twin, jnp.asarray(xs), jnp.asarray(ys)), want, rtol=1e-4)
    if "LBFGS" not in optimizer:
        same_weights(twin, model, start)


CORPUS = Path(__file__).resolve().parents[1] / "corpus"


def twins(theirs: Any, ours: Any, name: str, *arguments: int) -> tuple[Any, Any]:
    """A model of each program with equal weights."""
    torch.manual_seed(3)
    model = getattr(theirs, name)(*arguments)
    twin = getattr(ours, name)(*arguments, rngs=nnx.Rngs(0))
    load_state_dict(twin, {k: v for k, v in arrays(model.state_dict()).items() if "num_batches" not in k}, strict=False)
    return model, twin


def program(name: str, folder: Path) -> tuple[Converted, Any, Any]:
    source = (CORPUS / f"{name}.py").read_text(encoding="utf-8")
    converted = convert(source)
    assert not converted.left, converted.left
    return converted, under_torch(source), under_jax(converted, folder)


def test_dcgan(tmp_path: Path) -> None:
    """Batch norm in both networks, a value that is differentiated through after another update, one jitted step."""
    converted, theirs, ours = program("dcgan_train", tmp_path)
    assert converted.text.count("@nnx.jit") == 1 and "module_vjp" in converted.text
    (net_g, twin_g), (net_d, twin_d) = (
        twins(theirs, ours, "Generator", 8, 4),
        twins(theirs, ours, "Discriminator", 4),
    )
    rng = np.random.default_rng(1)
    reals = rng.uniform(size=(4, 4, 1, 16, 16)).astype(np.float32)
    noises = rng.normal(size=(4, 4, 8, 1, 1)).astype(np.float32)
    want = theirs.train(net_g, net_d, torch.tensor(reals), torch.tensor(noises), lr=0.01)
    got = ours.train(twin_g, twin_d, jnp.asarray(reals), jnp.asarray(noises), lr=0.01)
    np.testing.assert_allclose(got, want, rtol=1e-4)
    close(state_dict(twin_g)["main.1.running_mean"], net_g.state_dict()["main.1.running_mean"])


def test_trainer(tmp_path: Path) -> None:
    """A class: groups by identity of the parameters, accumulation, clipping, a scheduler that is an attribute."""
    _, theirs, ours = program("trainer", tmp_path)
    model, twin = twins(theirs, ours, "Classifier", 6, 8, 3)
    rng = np.random.default_rng(1)
    xs, ys = rng.normal(size=(4, 5, 6)).astype(np.float32), rng.integers(0, 3, (4, 5))
    want = theirs.Trainer(model).fit(list(zip(torch.tensor(xs), torch.tensor(ys), strict=True)), 3)
    got = ours.Trainer(twin).fit(list(zip(jnp.asarray(xs), jnp.asarray(ys), strict=True)), 3)
    np.testing.assert_allclose(got, want, rtol=1e-4)


def test_sweeps_over_parameters(tmp_path: Path) -> None:
    """A moving average of the weights, and weights that are clipped after each step."""
    source = (
        "import copy\n"
        + HEAD
        + """
def fit(model: nn.Module, xs: torch.Tensor, ys: torch.Tensor):
    average = copy.deepcopy(model)
    opt = optim.SGD(model.parameters(), lr=0.5)
    for x, y in zip(xs, ys):
        opt.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        for p in model.parameters():
            p.data.clamp_(-0.3, max=0.4)
        with torch.no_grad():
            for mean, p in zip(average.parameters(), model.parameters()):
                mean.mul_(0.9).add_(p, alpha=1 - 0.9)
        for mean in average.parameters():
            mean.data -= 0.01 * mean.data
    return [p.sum().item() for p in average.parameters()]
"""
    )
    _, theirs, ours, model, twin = both(source, tmp_path)
    xs, ys = data(4)
    start = arrays(model.state_dict())
    want = theirs.fit(model, torch.tensor(xs), torch.tensor(ys))
    close(ours.fit(twin, jnp.asarray(xs), jnp.asarray(ys)), want)
    same_weights(twin, model, start)


CONTEXTS = """
from contextlib import nullcontext
from functools import partial
from typing import Callable
import torch
from torch import nn
from torch.amp import autocast
from torch.optim import Optimizer

class Net(nn.Module):
    def __init__(self, optimizer: Callable[..., Optimizer] | None = None, device_type="cpu"):
        super().__init__()
        self.optimizer = optimizer
        self.context = nullcontext() if device_type == "cpu" else torch.amp.autocast(device_type=device_type)

    def forward(self, x):
        exactly = partial(autocast, "cuda", enabled=False) if x.ndim == 2 else nullcontext
        with exactly():
            x = x * 2
        with self.context:
            return x + isinstance(self.optimizer, Optimizer)
"""


def test_contexts_that_are_chosen_and_types_of_optimizers(tmp_path: Path) -> None:
    converted = convert(CONTEXTS)
    assert not converted.left and "torch" not in converted.text, converted.text
    assert [f.name for f in converted.findings if f.code == "JM101"] == ["torch.autocast"]
    assert "optimizer: Callable[..., nnx.Optimizer] | None = None" in converted.text
    xs, _ = data(1)
    close(
        under_jax(converted, tmp_path).Net()(jnp.asarray(xs[0])),
        under_torch(CONTEXTS).Net()(torch.tensor(xs[0])).numpy(),
    )
    other = convert(CONTEXTS.replace("from contextlib import nullcontext", "from own import nullcontext"))
    assert "JM301" in [f.code for f in other.findings]
    assert "JM301" in [
        f.code for f in convert("import torch\n\nclass Own(torch.optim.Optimizer):\n    pass\n").findings
    ]


WRITTEN = """
import torch
from torch import nn
import torch.nn.functional as F

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3))
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                normed = F.normalize(self.weight, dim=-1)
                self.weight.copy_(normed)
                new = (x @ self.weight).mean(0)
                self.mean.mul_(0.9).add_(new * 0.1)
        return (F.linear(x - self.mean, self.weight / self.weight.norm()) ** 3).sum()
"""


def test_parameters_and_buffers_written_without_gradient(tmp_path: Path) -> None:
    converted = convert(WRITTEN)
    assert not converted.left and "JM101" not in converted.codes(), converted.findings
    torch.manual_seed(0)
    model = under_torch(WRITTEN).Net()
    twin = under_jax(converted, tmp_path).Net(rngs=nnx.Rngs(0))
    load_state_dict(twin, arrays(model.state_dict()))
    x = torch.randn(4, 3, requires_grad=True)
    model(x).backward()
    grads, to_x = nnx.grad(lambda twin, x: twin(x), argnums=(0, 1))(twin, jnp.asarray(x.detach().numpy()))
    close(grads["weight"][...], model.weight.grad.numpy())
    close(to_x, x.grad.numpy())
    close(twin.weight[...], model.weight.detach().numpy())
    close(twin.mean[...], model.mean.numpy())
