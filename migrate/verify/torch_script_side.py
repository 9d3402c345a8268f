"""The worker process of an original training script: runs it under torch for some optimizer steps.

Mode `float` records the draws and the losses, one for each backward pass. `double` runs it again with the same draws in
float64: how far rounding alone takes torch from itself.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from .draws import Draws
from .loading import explain
from .record import Recorder, read
from .script_item import Stop, read_script_job, start
from .torch_operators import tolerate_missing_operators


def work(job: Path) -> None:
    """Run the script of a job file and record it."""
    item, options = read_script_job(job)
    recorder = Recorder(item.out)
    recorder.begin("train")
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("highest")
    tolerate_missing_operators()
    again = item.mode == "double"
    draws = Draws(read(item.draws).get("train").arrays if item.draws is not None else None)
    if again:
        _widen()
    losses = Losses()
    losses.watch(options.steps)
    _note_draws(draws, again=again)
    how = "finished"
    try:
        start(item, job.parent, _seed)
    except Stop:
        how = "stopped"
    except BaseException as error:  # SystemExit too: some scripts end with it
        if not (isinstance(error, SystemExit) and not error.code):
            recorder.failed("train", explain(error, item.file.parent))
            recorder.end()
            return
    facts = {"how": how, "steps": losses.steps, "losses": losses.values, "sums": losses.sums}
    recorder.done("train", draws.arrays, versions={"torch": torch.__version__}, **facts)
    recorder.end()


def _seed(number: int) -> None:
    torch.manual_seed(number)
    np.random.seed(number)


class Losses:
    """What a script differentiates, and how often its optimizers step.

    `sums` adds up losses that are differentiated on lines that follow each other: a conversion takes their sum.
    """

    def __init__(self) -> None:
        self.values: list[float] = []
        self.sums: list[float] = []
        self.steps = 0
        self._line = -1

    def watch(self, enough: int) -> None:
        """Note each backward pass and each step from now on; step number `enough` raises Stop, and so does the backward
        pass behind it in a script that never steps an optimizer."""
        tensors: Any = torch.Tensor
        backward = tensors.backward

        @functools.wraps(backward)
        def noted(tensor: torch.Tensor, *args: Any, **options: Any) -> Any:
            if not self.steps and len(self.values) >= enough:  # no optimizer: it changes its weights by hand
                raise Stop
            self._note(float(tensor.detach().sum()), sys._getframe(1).f_lineno)
            return backward(tensor, *args, **options)

        tensors.backward = noted
        for cls in {c for c in vars(torch.optim).values() if isinstance(c, type) and "step" in vars(c)}:
            cls.step = self._counted(cls.step, enough)  # type: ignore[attr-defined]

    def _note(self, value: float, line: int) -> None:
        self.values.append(value)
        if self._line == line - 1:
            self.sums[-1] += value
        else:
            self.sums.append(value)
        self._line = line

    def _counted(self, original: Callable[..., Any], enough: int) -> Callable[..., Any]:
        @functools.wraps(original)
        def step(*args: Any, **options: Any) -> Any:
            result = original(*args, **options)
            self.steps += 1
            if self.steps >= enough:
                raise Stop
            return result

        return step


def _note_draws(draws: Draws, *, again: bool) -> None:
    """Make torch's ways to draw write down what they drew, or give the same `again`."""
    inside = [False]

    def repeated(result: torch.Tensor, kind: str, drawn: np.ndarray, scale: np.ndarray) -> torch.Tensor:
        """The result with the draw of the first run in the place of the one that was `drawn` now."""
        found = draws.take(kind, drawn.shape)
        if found is None:
            return result
        if kind not in ("uniform", "normal"):
            return result.detach().copy_(torch.as_tensor(found))
        result.detach().add_(torch.as_tensor((found - drawn) * scale))
        return result

    def noted(owner: Any, name: str, standard: Callable[..., tuple[str, Any]]) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def draw(*args: Any, **options: Any) -> Any:
            if inside[0]:
                return original(*args, **options)
            inside[0] = True
            try:
                result = original(*args, **options)
                with torch.no_grad():
                    kind, value = standard(result.detach(), *args, **options)
                    scale = np.ones(())
                    if again and kind in ("uniform", "normal"):  # the standard form is affine in the value
                        scale = 1 / (np.array(standard(result.detach() + 1, *args, **options)[1]) - np.array(value))
                if again:
                    return repeated(result, kind, np.array(value), scale)
                draws.note(kind, value)
                return result
            finally:
                inside[0] = False

        setattr(owner, name, draw)

    def uniform_(value: Any, _: Any, low: float = 0.0, high: float = 1.0, **options: Any) -> tuple[str, Any]:
        low, high = options.get("from", options.get("a", low)), options.get("to", options.get("b", high))
        return "uniform", ((value - low) / (high - low)).numpy()

    def normal_(value: Any, _: Any, mean: float = 0.0, std: float = 1.0, **__: Any) -> tuple[str, Any]:
        return "normal", ((value - mean) / std).numpy()

    def normal(value: Any, mean: Any = 0.0, std: Any = 1.0, *_: Any, **__: Any) -> tuple[str, Any]:
        return "normal", ((value - mean) / std).numpy()

    noted(torch.Tensor, "uniform_", uniform_)
    noted(torch.Tensor, "normal_", normal_)
    noted(torch, "normal", normal)
    for name in ("rand", "rand_like"):
        noted(torch, name, lambda value, *_, **__: ("uniform", value.numpy()))
    for name in ("randn", "randn_like"):
        noted(torch, name, lambda value, *_, **__: ("normal", value.numpy()))
    noted(torch, "bernoulli", lambda value, *_, **__: ("bernoulli", value.numpy() > 0))
    noted(torch, "randint", lambda value, *_, **__: ("randint", value.numpy()))
    noted(torch, "randperm", lambda value, *_, **__: ("permutation", value.numpy()))
    inner: Any = torch.utils.data.dataset
    noted(inner, "randperm", lambda value, *_, **__: ("permutation", value.numpy()))  # random_split's own name for it
    noted(torch, "multinomial", lambda value, *_, **__: ("categorical", value.numpy()))

    sampler: Any = torch.utils.data.RandomSampler
    order = sampler.__iter__

    def one_order(self: Any) -> Any:  # the sampler draws a second permutation, of which it uses nothing
        inside[0] = True
        try:
            indices = list(order(self))
        finally:
            inside[0] = False
        found = draws.take("permutation", (len(indices),)) if again else None
        if found is not None:
            return iter(found.tolist())
        draws.note("permutation", np.array(indices))
        return iter(indices)

    sampler.__iter__ = one_order

    def dropout(input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
        if not training or p == 0:
            return input
        keep = torch.empty_like(input).bernoulli_(1 - p)
        found = draws.take("bernoulli", tuple(keep.shape)) if again else None
        if found is not None:
            keep = torch.as_tensor(found).to(input.dtype)
        if not again:
            draws.note("bernoulli", keep.numpy() > 0)
        return input * keep / (1 - p)

    def dropout2d(input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
        if input.dim() not in (2, 4):
            raise NotImplementedError("dropout2d of one sample")
        if not training or p == 0:
            return input
        mask = dropout(torch.ones(input.shape[:2]), p).reshape(*input.shape[:2], *(1,) * (input.dim() - 2))
        return input * mask

    F.dropout = dropout
    F.dropout2d = dropout2d


def _widen() -> None:
    """Let the script compute in float64 where it says nothing, or float32."""
    library: Any = torch
    torch.set_default_dtype(torch.float64)
    from_numpy, tensor, to_double = torch.from_numpy, torch.tensor, torch.Tensor.double

    def wide(value: torch.Tensor) -> torch.Tensor:
        return to_double(value) if value.dtype == torch.float32 else value

    library.from_numpy = lambda array: wide(from_numpy(array))
    library.tensor = lambda *args, **options: wide(tensor(*args, **options))
    library.Tensor.float = to_double
    library.FloatTensor = torch.DoubleTensor
