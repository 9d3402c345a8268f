"""The optimizer and schedule rows: each case's optax text against the torch call it stands for.

Optimizers take 20 steps on a tanh network under both frameworks; schedules are followed for 40 steps. The texts on the
right of the cases are what the converter writes, which `test_text` checks.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from converted import convert

from jaxmigrate.layers.library import optim

RULES = Path(__file__).parent.parent / "rules" / "optim"
TOLERANCE = 1e-5
LR = 0.1  # of the schedules' optimizer, as their cases have it


def cases(file: str) -> list[Any]:
    """The (torch text, optax text) pairs of a rule file; those that end in a finding are not numbers."""
    rows = tomllib.loads((RULES / file).read_text(encoding="utf-8"))
    return [
        pytest.param(before, after, id=before)
        for name, row in rows.items()
        if not name.endswith(("SequentialLR", "ChainedScheduler", "ReduceLROnPlateau"))  # tests of their own
        for before, after in row.get("cases", [])
        if not after.startswith("JM")
    ]


def start() -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Weights of a 3-5-2 network, inputs and targets."""
    rng = np.random.default_rng(0)
    shapes = [(3, 5), (5,), (5, 2), (2,)]
    weights = [rng.normal(size=s).astype(np.float32) for s in shapes]
    return weights, rng.normal(size=(16, 3)).astype(np.float32), rng.normal(size=(16, 2)).astype(np.float32)


def under_torch(text: str, steps: int) -> list[np.ndarray]:
    weights, x, y = start()
    params = [torch.nn.Parameter(torch.tensor(w)) for w in weights]
    optimizer = eval(text, {"torch": torch, "params": params})
    a, b, c, d = params
    for _ in range(steps):
        optimizer.zero_grad()
        loss = ((torch.tanh(torch.tensor(x) @ a + b) @ c + d - torch.tensor(y)) ** 2).mean()
        loss.backward()
        optimizer.step()
    return [p.detach().numpy() for p in params]


def under_optax(text: str, steps: int) -> list[np.ndarray]:
    weights, x, y = start()
    tx = eval(text, {"optax": optax, "jnp": jnp} | vars(optim))

    def loss_fn(params: list[jax.Array]) -> jax.Array:
        a, b, c, d = params
        return jnp.mean((jnp.tanh(x @ a + b) @ c + d - y) ** 2)

    @jax.jit
    def step(params: list[jax.Array], state: optax.OptState) -> tuple[list[jax.Array], optax.OptState]:
        updates, state = tx.update(jax.grad(loss_fn)(params), state, params)
        return optax.apply_updates(params, updates), state

    params = [jnp.asarray(w) for w in weights]
    state = tx.init(params)
    for _ in range(steps):
        params, state = step(params, state)
    return [np.asarray(p) for p in params]


PROGRAM = """
import torch
from torch import nn

def train(x: torch.Tensor, y: torch.Tensor):
    model = nn.Linear(3, 2)
    optimizer = {}
    for _ in range(10):
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
    return loss
"""


@pytest.mark.parametrize(("before", "after"), [c for c in cases("optimizers.toml") if "LBFGS" not in c.id])
def test_text(before: str, after: str) -> None:
    converted = convert(PROGRAM.format(before.replace("params", "model.parameters()", 1)))
    assert not converted.left
    assert _joined(f"nnx.Optimizer(model, {after}, wrt=nnx.Param)") in _joined(converted.text)


def _joined(text: str) -> str:
    """Long calls stand on several lines."""
    return "".join(text.split()).replace(",)", ")")


@pytest.mark.parametrize("before", ["LBFGS(params)", "SparseAdam(params)", "Adam(params, amsgrad=flag)"])
def test_left(before: str) -> None:
    converted = convert(PROGRAM.format("torch.optim." + before.replace("params", "model.parameters()")))
    assert len([text for text in converted.left if "torch.optim" in text]) >= 1
    assert "optimizer = torch.optim" in converted.text


def test_muon() -> None:
    """Matrices only; the iteration runs in bfloat16 in both."""
    rng = np.random.default_rng(0)
    start = rng.normal(size=(6, 4)).astype(np.float32)
    grads = rng.normal(size=(10, 6, 4)).astype(np.float32)
    weight = torch.nn.Parameter(torch.tensor(start))
    optimizer = torch.optim.Muon([weight], lr=0.01)
    tx = optim.muon(0.01, weight_decay=0.1)
    ours = jnp.asarray(start)
    state = tx.init(ours)
    for grad in grads:
        weight.grad = torch.tensor(grad)
        optimizer.step()
        updates, state = tx.update(jnp.asarray(grad), state, ours)
        ours = optax.apply_updates(ours, updates)
    np.testing.assert_allclose(ours, weight.detach().numpy(), rtol=0, atol=2e-3)
    assert np.abs(ours - start).max() > 5e-2


@pytest.mark.parametrize(
    ("before", "after"), [c for c in cases("optimizers.toml") if "Muon" not in c.id and "LBFGS" not in c.id]
)
def test_twenty_steps(before: str, after: str) -> None:
    ours, theirs = under_optax(after, 20), under_torch(before, 20)
    moved = max(np.abs(t - w).max() for t, w in zip(theirs, start()[0], strict=True))
    assert moved > 1e-3  # the comparison would say nothing about an optimizer that stands still
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=TOLERANCE)


def rates(text: str, steps: int, **names: Any) -> list[float]:
    """The learning rates that torch's scheduler gives before each step."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=LR)
    scheduler = eval(text, {"torch": torch, "optimizer": optimizer} | {k: f(optimizer) for k, f in names.items()})
    found = []
    for _ in range(steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


@pytest.mark.parametrize(("before", "after"), cases("schedulers.toml"))
def test_forty_rates(before: str, after: str) -> None:
    schedule = eval(after, {"optax": optax, "jnp": jnp} | vars(optim))
    np.testing.assert_allclose([float(schedule(t)) for t in range(40)], rates(before, 40), rtol=0, atol=1e-7)


@pytest.mark.filterwarnings("ignore:The epoch parameter in")
def test_sequential() -> None:
    row = tomllib.loads((RULES / "schedulers.toml").read_text(encoding="utf-8"))[
        "torch.optim.lr_scheduler.SequentialLR"
    ]
    lr = torch.optim.lr_scheduler
    for before, after in row["cases"]:
        theirs = rates(
            before,
            40,
            warmup=lambda o: lr.LinearLR(o, 0.1, total_iters=5),
            cosine=lambda o: lr.CosineAnnealingLR(o, T_max=35),
        )
        parts = {
            "warmup": optax.linear_schedule(LR * 0.1, LR * 1.0, 5),
            "cosine": lambda count: 0.5 * LR * (1 + jnp.cos(jnp.pi * count / 35)),
        }
        schedule = eval(after, {"optax": optax, "jnp": jnp} | parts)
        np.testing.assert_allclose([float(schedule(t)) for t in range(40)], theirs, rtol=0, atol=1e-7)


def test_plateau() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=LR)
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "min", factor=0.5, patience=2)
    ours = optim.ReduceLROnPlateau(0.1, mode="min", factor=0.5, patience=2)
    for metric in np.abs(np.sin(np.arange(40.0))) + 1:
        theirs.step(metric)
        assert ours.step(metric) == pytest.approx(optimizer.param_groups[0]["lr"])
    assert ours.lr < 0.01


@pytest.mark.parametrize("lr", [1e-3, 1e-2])
def test_what_is_said_of_adams_bias_correction(lr: float) -> None:
    """Losses over 50 steps differ by about as much as the finding says, and by more than rounding."""
    random = np.random.default_rng(0)
    weights = [0.4 * random.normal(size=s).astype(np.float32) for s in ((6, 16), (16, 3))]
    xs, ys = (random.normal(size=(50, 32, n)).astype(np.float32) for n in (6, 3))
    params = [torch.tensor(w, requires_grad=True) for w in weights]
    optimizer, theirs = torch.optim.Adam(params, lr=lr), []
    for x, y in zip(xs, ys, strict=True):
        optimizer.zero_grad()
        loss = ((torch.tanh(torch.tensor(x) @ params[0]) @ params[1] - torch.tensor(y)) ** 2).mean()
        loss.backward()
        optimizer.step()
        theirs.append(loss.item())
    tx, own = optax.adam(lr), [jnp.asarray(w) for w in weights]
    state, ours = tx.init(own), []

    @jax.jit
    def step(own: list[jax.Array], state: optax.OptState, x: jax.Array, y: jax.Array) -> Any:
        loss, grads = jax.value_and_grad(lambda p: jnp.mean((jnp.tanh(x @ p[0]) @ p[1] - y) ** 2))(own)
        updates, state = tx.update(grads, state, own)
        return optax.apply_updates(own, updates), state, loss

    for x, y in zip(xs, ys, strict=True):
        own, state, loss = step(own, state, x, y)
        ours.append(float(loss))
    worst = max(abs(a - b) / abs(b) for a, b in zip(ours, theirs, strict=True))
    assert 5e-7 < worst < 6e-6
    finding = next(f for f in convert(PROGRAM.format("torch.optim.Adam(model.parameters())")).findings
                   if f.name == "torch.optim.Adam")  # fmt: skip
    assert finding.code == "JM101" and "2.4e-5" in finding.message and "3e-6" in finding.message
