"""Time per step of the original program: eager, and by torch.compile where it works."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from .bench import Turns, Way, measure
from .leaves import flatten
from .loading import explain
from .torch_program import Program
from .worker import Result

FORWARD, TRAINING = "forward", "training step"


def benchmark(program: Program) -> Result:
    """The facts of a measurement; compiled code is kept in the scratch folder."""
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    own = program.item.out.parent
    turns = Turns(own, own.parent / "jax", program.item.out.name, True)
    ways = []
    for way, wrap in (("torch eager", _plain), ("torch.compile", torch.compile)):
        note = _breaks if way == "torch.compile" else str
        ways.append(Way(FORWARD, way, _forward(program, wrap), note=note))
        if step := _training(program, wrap):
            ways.append(Way(TRAINING, way, step, note=note))
    facts = measure(ways, turns, lambda error: explain(error, program.item.file.parent))
    return {}, {**facts, "device": "cpu"}


def _plain(target: Any) -> Any:
    return target


def _breaks() -> str:
    from torch._dynamo.utils import counters

    broken = sum(counters["graph_break"].values())
    return f"{broken} graph break{'s' * (broken != 1)}" if broken else ""


def _target(program: Program, module: Any) -> Any:
    if module is None:
        return program.function
    return getattr(module, program.case.target) if program.case.target else module


def _forward(program: Program, wrap: Callable[[Any], Any]) -> Callable[[], None]:
    target = wrap(_target(program, program.fresh("eval", dropout=True)))
    given = program.arguments(False)

    def step() -> None:
        with torch.no_grad():
            target(*given.args, **given.kwargs)

    return step


def _training(program: Program, wrap: Callable[[Any], Any]) -> Callable[[], None] | None:
    """Forward, backward and an update by SGD, drop rates as they are; None where there is nothing to train."""
    module = program.fresh("train", dropout=True)
    trained = [p for p in module.parameters() if p.requires_grad] if module is not None else []
    if not trained or loss_of(program, _target(program, module)) is None:
        return None
    module = program.fresh("train", dropout=True)
    assert module is not None
    target = wrap(_target(program, module))
    optimizer = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=1e-4)

    def step() -> None:
        optimizer.zero_grad()
        loss = loss_of(program, target)
        assert loss is not None
        torch.autograd.backward(loss)
        optimizer.step()

    return step


def loss_of(program: Program, target: Any) -> torch.Tensor | None:
    """The case's loss, or the sum of the means of the floating outputs; None when no gradient passes."""
    given = program.arguments(False)
    found = [
        leaf.sum() if name == program.case.loss else leaf.mean()
        for name, leaf in flatten(target(*given.args, **given.kwargs))
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and program.case.loss in (None, name)
    ]
    loss = torch.stack([f.float() for f in found]).sum() if found else None
    return loss if loss is not None and loss.requires_grad else None
