"""One case of the original program under torch: its module, its inputs, and how it is called."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from .leaves import draw, fill, specs
from .torch_dropout import Dropouts
from .worker import Item, drop_rates

_DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16}
PRECISIONS = {"float64": torch.float64, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Arguments:
    """Arguments of a call, the leaves behind their arrays, and the copies that were passed (code may write to them)."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    leaves: dict[str, torch.Tensor]
    passed: dict[str, torch.Tensor]


class Program:
    """A case, its inputs, and its module or function once they are built."""

    def __init__(self, item: Item, options: Any, dropouts: Dropouts) -> None:
        self.item, self.case, self.options, self.dropouts = item, item.case, options, dropouts
        self.inputs = draw(item.case, options.seed + 1)
        self.module: nn.Module | None = None
        self.function: Callable[..., Any] | None = None
        self.names: dict[str, Any] = {}
        self.precision: torch.dtype | None = None
        self.watch: AbstractContextManager[Any] = nullcontext()

    def built(self) -> nn.Module:
        self.seed(self.options.seed)
        module = eval(self.case.build or "", self.names)
        if not isinstance(module, nn.Module):
            raise TypeError(f"{self.case.build} gives {type(module).__name__}, not a torch.nn.Module")
        return module

    def perturb(self, module: nn.Module) -> None:
        """Move weights and statistics off their starting values, so that no branch is dead (zero scale, zero gate)."""
        generator = torch.Generator().manual_seed(self.options.seed + 7)
        with torch.no_grad():
            for _, p in module.named_parameters():
                if p.is_floating_point():
                    p.add_(0.02 * torch.randn(p.shape, generator=generator).to(p))
            for name, b in module.named_buffers():
                if name.endswith("running_mean"):
                    b.copy_(0.1 * torch.randn(b.shape, generator=generator))
                if name.endswith("running_var"):
                    b.copy_(0.5 + torch.rand(b.shape, generator=generator))

    def seed(self, seed: int) -> None:
        """Let torch draw by `seed`; NumPy and Python always draw the same, as for the converted program."""
        torch.manual_seed(seed)
        np.random.seed(self.options.seed)
        random.seed(self.options.seed)

    def fresh(self, mode: str, dropout: bool = False) -> nn.Module | None:
        """A copy of the module in its first state, in train or eval mode; drop rates are zero unless `dropout`."""
        if self.module is None:
            return None
        try:
            module = copy.deepcopy(self.module)
        except Exception:  # a module that holds results of its own computations cannot be copied
            module = self.built()
            module.load_state_dict(self.module.state_dict())
        if self.precision is not None:
            self.cast(module)
        module.train(mode == "train")
        self.dropouts.off = not dropout
        for child in module.modules() if not dropout else ():
            for name in drop_rates(child):
                setattr(child, name, 0.0)
        return module

    def cast(self, module: nn.Module) -> None:
        """Give every parameter and buffer the precision that is set; what is tied or frozen stays so."""
        for tensor in [*module.parameters(), *module.buffers()]:
            if tensor.is_floating_point():
                tensor.data = tensor.data.to(self.precision)
            elif tensor.is_complex() and self.precision == torch.float64:
                tensor.data = tensor.data.to(torch.complex128)

    @contextmanager
    def precisely(self, name: str) -> Iterator[None]:
        """Call in another floating type; float64 is then also the type of new tensors."""
        before = torch.get_default_dtype()
        self.precision = PRECISIONS[name]
        if name == "float64":
            torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            self.precision, self.watch = None, nullcontext()
            torch.set_default_dtype(before)

    def arguments(self, grad: bool) -> Arguments:
        leaves: dict[str, torch.Tensor] = {}
        passed: dict[str, torch.Tensor] = {}
        dtypes = {name: _DTYPES.get(spec.dtype) for name, spec in specs(self.case)}

        def make(name: str, _: Any) -> torch.Tensor:
            tensor = torch.from_numpy(self.inputs[name].copy()).to(dtypes[name])
            if self.precision is not None and tensor.is_floating_point():
                tensor = tensor.to(self.precision)
            leaves[name] = tensor.requires_grad_(grad and tensor.is_floating_point())
            passed[name] = tensor.clone()
            return passed[name]

        args, kwargs = fill(self.case, make)
        return Arguments(args, kwargs, leaves, passed)

    def call(self, module: nn.Module | None, given: Arguments, seed: int = 2) -> Any:
        self.seed(self.options.seed + seed)
        target: Any = self.function
        if module is not None:
            target = getattr(module, self.case.target) if self.case.target else module
        with self.watch:
            return target(*given.args, **given.kwargs)

    def run(self, mode: str, seed: int = 2, dropout: bool = False) -> tuple[Any, nn.Module | None, list[str]]:
        """The result without gradients, the module afterwards, and which inputs were written to."""
        module = self.fresh(mode, dropout)
        given = self.arguments(False)
        with torch.no_grad():
            result = self.call(module, given, seed)
        return result, module, [n for n in given.leaves if differ(given.leaves[n], given.passed[n])]


def differ(before: torch.Tensor, after: torch.Tensor) -> bool:
    return before.shape != after.shape or not torch.allclose(before, after, rtol=0, atol=0, equal_nan=True)
