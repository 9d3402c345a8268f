"""Training that is stopped, saved and resumed: the losses are those of the uninterrupted run, and torch's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from converted import arrays, convert, under_jax, under_torch
from flax import nnx
from trained import NORMED, TOLERANCE

from jaxmigrate.layers.library.base import load_state_dict

ONE = (
    NORMED
    + """
def run(model: Net, xs: torch.Tensor, ys: torch.Tensor, path: str, epochs: int, resume: bool):
    optimizer = OPTIMIZER
    scheduler = SCHEDULER
    start = 0
    if resume:
        checkpoint = torch.load(path)
        model.load_state_dict(checkpoint['model'])
        optimizer.load_state_dict(checkpoint['optimizer'])
        scheduler.load_state_dict(checkpoint['scheduler'])
        start = checkpoint['epoch'] + 1
    losses = []
    for epoch in range(start, epochs):
        for x, y in zip(xs, ys):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            BATCH
        EPOCH
        torch.save({'model': model.state_dict(), 'optimizer': optimizer.state_dict(),
                    'scheduler': scheduler.state_dict(), 'epoch': epoch}, path)
    return losses
"""
)
SEVERAL = (
    NORMED
    + """
def save_checkpoint(model, optimizer, scheduler, epoch, path):
    state = {'model': model.state_dict(), 'optimizer': optimizer.state_dict()}
    state['scheduler'] = scheduler.state_dict()
    state['epoch'] = epoch
    torch.save(state, path)


def load_checkpoint(model, optimizer, scheduler, path):
    checkpoint = torch.load(path, map_location='cpu')
    model.load_state_dict(checkpoint['model'])
    optimizer.load_state_dict(checkpoint['optimizer'])
    scheduler.load_state_dict(checkpoint['scheduler'])
    return checkpoint['epoch'] + 1


def train(model, optimizer, xs, ys):
    model.train()
    losses = []
    for x, y in zip(xs, ys):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def run(model: Net, xs: torch.Tensor, ys: torch.Tensor, path: str, epochs: int, resume: bool):
    optimizer = OPTIMIZER
    scheduler = SCHEDULER
    start = load_checkpoint(model, optimizer, scheduler, path) if resume else 0
    losses = []
    for epoch in range(start, epochs):
        losses += train(model, optimizer, xs, ys)
        EPOCH
        save_checkpoint(model, optimizer, scheduler, epoch, path)
    return losses
"""
)
S = "optim.lr_scheduler."
SGD = "optim.SGD(model.parameters(), lr=0.2, momentum=0.9)"
ADAM = "optim.AdamW(model.parameters(), lr=0.02)"
STEP = "scheduler.step()"
PROGRAMS = {
    "a step each epoch": (ONE, ADAM, f"{S}StepLR(optimizer, 2, 0.5)", "pass", STEP),
    "one cycle each batch": (ONE, SGD, f"{S}OneCycleLR(optimizer, 0.3, total_steps=21, cycle_momentum=False)", STEP,
                             "pass"),
    "a sequence": (
        ONE, SGD,
        f"{S}SequentialLR(optimizer, [{S}LinearLR(optimizer, 0.1), {S}ExponentialLR(optimizer, 0.5)], [2])",
        "pass", STEP,
    ),
    "a chain": (
        ONE, SGD, f"{S}ChainedScheduler([{S}ExponentialLR(optimizer, 0.8), {S}StepLR(optimizer, 2)])", "pass", STEP,
    ),
    "a plateau": (
        ONE, SGD, f"{S}ReduceLROnPlateau(optimizer, patience=0, factor=0.5)", "pass",
        "scheduler.step(round(loss.item()))",
    ),
    "a lambda": (ONE, SGD, f"{S}LambdaLR(optimizer, lambda e: 1 / (e + 1))", "pass", STEP),
    "functions": (SEVERAL, ADAM, f"{S}CosineAnnealingLR(optimizer, 10)", "pass", STEP),
}  # fmt: skip


def model_of(program: Any, start: dict[str, np.ndarray], jax: bool) -> Any:
    if not jax:
        model = program.Net()
        model.load_state_dict({n: torch.tensor(v) for n, v in start.items()})
        return model
    model = program.Net(rngs=nnx.Rngs(0))
    load_state_dict(model, {n: v for n, v in start.items() if "num_batches" not in n}, strict=False)
    return model


@pytest.mark.filterwarnings("ignore:The epoch parameter in")
@pytest.mark.parametrize("name", PROGRAMS)
def test_resumed_losses_are_those_of_the_whole_run(name: str, tmp_path: Path) -> None:
    source, optimizer, scheduler, batch, epoch = PROGRAMS[name]
    for word, text in {"OPTIMIZER": optimizer, "SCHEDULER": scheduler, "BATCH": batch, "EPOCH": epoch}.items():
        source = source.replace(word, text)
    converted = convert(source)
    assert converted.status == "changed" and not converted.left, converted.left
    rng = np.random.default_rng(0)
    xs, ys = rng.normal(size=(4, 8, 3)).astype(np.float32), rng.integers(0, 2, (4, 8))
    torch.manual_seed(0)
    start = arrays(under_torch(source).Net().state_dict())
    found = {}
    for framework, array in (("torch", torch.tensor), ("jax", jnp.asarray)):
        jax = framework == "jax"
        program = under_jax(converted, tmp_path) if jax else under_torch(source)
        path = str(tmp_path / framework)
        data = (array(xs), array(ys), path)
        whole = program.run(model_of(program, start, jax), *data, 5, False)
        program.run(model_of(program, start, jax), *data, 2, False)
        other = {n: v + 1 for n, v in start.items()}  # a new model: all that counts comes from the file
        found[framework] = (whole, program.run(model_of(program, other, jax), *data, 5, True))
    whole, resumed = found["jax"]
    assert len(whole) == 20 and len(resumed) == 12
    np.testing.assert_allclose(resumed, whole[8:], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(whole, found["torch"][0], rtol=TOLERANCE, atol=TOLERANCE)
    np.testing.assert_allclose(resumed, found["torch"][1], rtol=TOLERANCE, atol=TOLERANCE)
