"""Training programs: the original and its conversion take the same steps from the same weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from converted import Converted, arrays, convert, under_jax, under_torch
from flax import nnx
from trained import NORMED, both, close, data, load, same_weights

from jaxmigrate.layers.library.base import state_dict

ONE_SCOPE = (
    NORMED
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
    NORMED
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


TRAINER = (
    NORMED
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
    load(teacher_twin, teacher)
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
        NORMED
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


def test_gradients_read_by_name(tmp_path: Path) -> None:
    source = (
        NORMED
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


CLOSURE = (
    NORMED
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
    load(twin, model)
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
