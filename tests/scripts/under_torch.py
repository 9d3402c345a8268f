"""Run a script under torch for some optimizer steps: `under_torch.py SCRIPT STEPS FOLDER float|double [ARGUMENT...]`.

`float` writes FOLDER/draws.pickle and FOLDER/torch.json with the losses, one for each backward pass. `double` runs it
once more with the same draws in float64 and writes FOLDER/double.json: how far rounding alone takes torch from itself.
"""

from __future__ import annotations

import functools
import json
import random
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.library
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parent))
from draws import Draws, read


class Stop(BaseException):
    """Enough steps."""


def note_draws(draws: Draws, *, again: bool = False) -> None:
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
    noted(torch, "multinomial", lambda value, *_, **__: ("categorical", value.numpy()))

    order = torch.utils.data.RandomSampler.__iter__

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

    torch.utils.data.RandomSampler.__iter__ = one_order

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


def skip_cuda_operators() -> None:
    """torchvision's wheel registers operators of CUDA, which a CPU build of torch does not have."""
    register = torch.library.register_fake

    def skip(name: Any, *args: Any, **options: Any) -> Any:
        if isinstance(name, str) and name.startswith("torchvision::"):
            return lambda function: function
        return register(name, *args, **options)

    torch.library.register_fake = skip
    try:
        import torchvision

        torchvision.datasets.cifar.check_integrity = lambda *_: True
    finally:
        torch.library.register_fake = register


def widen() -> None:
    """Let the script compute in float64 where it says nothing, or float32."""
    torch.set_default_dtype(torch.float64)
    from_numpy, tensor, to_double = torch.from_numpy, torch.tensor, torch.Tensor.double

    def wide(value: torch.Tensor) -> torch.Tensor:
        return to_double(value) if value.dtype == torch.float32 else value

    torch.from_numpy = lambda array: wide(from_numpy(array))
    torch.tensor = lambda *args, **options: wide(tensor(*args, **options))
    torch.Tensor.float = to_double


def main(script: str, steps: int, folder: Path, precision: str, arguments: list[str]) -> None:
    torch.set_num_threads(1)
    skip_cuda_operators()
    again = precision == "double"
    draws, losses, done = read(folder / "draws.pickle") if again else Draws(), [], [0]
    if again:
        widen()
    sums: list[float] = []
    last = [-1]
    backward = torch.Tensor.backward

    def note_loss(self: torch.Tensor, *args: Any, **options: Any) -> Any:
        value, line = float(self.detach().sum()), sys._getframe(1).f_lineno
        losses.append(value)
        if last[0] == line - 1:  # two losses that are differentiated together
            sums[-1] += value
        else:
            sums.append(value)
        last[0] = line
        return backward(self, *args, **options)

    torch.Tensor.backward = note_loss
    for cls in {c for c in vars(torch.optim).values() if isinstance(c, type) and "step" in vars(c)}:

        def counted(original: Any) -> Any:
            def step(self: Any, *args: Any, **options: Any) -> Any:
                result = original(self, *args, **options)
                done[0] += 1
                if done[0] >= steps:
                    raise Stop
                return result

            return step

        cls.step = counted(cls.step)
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    note_draws(draws, again=again)
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).parent))
    how = "finished"
    try:
        runpy.run_path(script, run_name="__main__")
    except Stop:
        how = "stopped"
    if not again:
        draws.write(folder / "draws.pickle")
    result = {"how": how, "steps": done[0], "losses": losses, "sums": sums}
    (folder / ("double.json" if again else "torch.json")).write_text(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4], sys.argv[5:])
