"""Learning rates over training: schedulers in their forms, and rates that are set by hand."""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
import pytest
import torch
from converted import convert, under_jax, under_torch
from trained import NORMED, both, close, data

SCHEDULES = (
    NORMED
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


SCHEDULED = (
    NORMED
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
