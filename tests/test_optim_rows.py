"""The optimizer and schedule rows: each case's optax text against the torch call it stands for.

Optimizers take 20 steps on a tanh network under both frameworks; schedules are followed for 40 steps. The texts on the
right of the cases are what the templates must give, which the tests of the rules check.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

RULES = Path(__file__).parent.parent / "rules" / "optim"
TOLERANCE = 1e-5
LR = 0.1  # of the schedules' optimizer, as their cases have it


def cases(file: str) -> list[Any]:
    """The (torch text, optax text) pairs of a rule file; those that end in a finding are not numbers."""
    rows = tomllib.loads((RULES / file).read_text(encoding="utf-8"))
    return [
        pytest.param(before, after, id=before)
        for name, row in rows.items()
        if not name.endswith("SequentialLR")  # its case has names of its own
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
    tx = eval(text, {"optax": optax, "jnp": jnp})

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


@pytest.mark.parametrize(("before", "after"), cases("optimizers.toml"))
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
    schedule = eval(after, {"optax": optax, "jnp": jnp})
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
