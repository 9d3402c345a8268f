"""The worker process of the original program: runs it under torch and records what it does."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from .leaves import draw, fill, specs
from .loading import forget, load, namespace, root
from .torch_dropout import Dropouts
from .torch_trace import traced
from .torch_values import changed, outputs, scalar_loss, to_numpy
from .worker import Item, Result, attempts, drop_rates, perform, read_job, settings

_DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16}
_OTHER_SEED = 1000  # far from the seeds that one run uses


def work(job: Path) -> None:
    """Do every item of a job file. The programs of several items may have modules of the same names."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    items, options = read_job(job)
    dropouts = Dropouts()
    dropouts.install()
    for item in items:
        original = Original(item, settings(item.case, options), dropouts)
        perform(item, original.steps())
        forget(root(item.file))


@dataclass(frozen=True)
class Arguments:
    """Arguments of a call, the leaves behind their arrays, and the copies that were passed (code may write to them)."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    leaves: dict[str, torch.Tensor]
    passed: dict[str, torch.Tensor]


class Original:
    """One case of the original program."""

    def __init__(self, item: Item, options: Any, dropouts: Dropouts) -> None:
        self.item, self.case, self.options, self.dropouts = item, item.case, options, dropouts
        self.inputs = draw(item.case, options.seed + 1)
        self.module: nn.Module | None = None
        self.function: Callable[..., Any] | None = None
        self.names: dict[str, Any] = {}

    def steps(self) -> Iterator[tuple[str, Callable[[], Result]]]:
        yield "load", self.load
        yield "build", self.build
        if self.item.trace:
            yield f"trace {self.item.trace}", lambda: self.trace(self.item.trace)
            return
        for mode in ("eval", "train") if self.module is not None else ("eval",):
            if mode == "train":
                yield "dropout", self.dropout
            yield f"forward {mode}", lambda mode=mode: self.forward(mode)  # type: ignore[misc]
            yield f"gradient {mode}", lambda mode=mode: self.gradient(mode)  # type: ignore[misc]
        if self.module is not None and self.options.steps:
            yield "behaviour", self.behaviour

    def load(self) -> Result:
        self.names = namespace(load(self.item.file))
        arrays = {f"in.{name}": array for name, array in self.inputs.items()}
        return arrays, {"versions": {"torch": torch.__version__, "numpy": np.__version__}}

    def build(self) -> Result:
        """Build and perturb the module; record its weights, so that the other side can take them over."""
        if self.case.build is None:
            self.function = eval(self.case.target, self.names)
            if isinstance(self.function, type):
                raise TypeError(
                    f"{self.case.target} is a class: write {self.case.target}(...)(...) to call an instance"
                )
            return {}, {"module": False}
        self.module = self._built()
        self._perturb(self.module)
        state = {k: v for k, v in self.module.state_dict().items() if isinstance(v, torch.Tensor)}
        every = dict(self.module.named_parameters(remove_duplicate=False))
        buffers = dict(self.module.named_buffers(remove_duplicate=False))
        arrays = {f"sd.{k}": to_numpy(v) for k, v in state.items()}
        facts = {
            "module": True,
            "parameters": [n for n, _ in self.module.named_parameters()],
            "shared": [n for n in every if n not in dict(self.module.named_parameters())],
            "frozen": [n for n, p in every.items() if not p.requires_grad],
            "buffers": [n for n in buffers if n in state],
            "temporary": {n: list(b.shape) for n, b in buffers.items() if n not in state},
            "dtypes": {n: str(v.dtype).removeprefix("torch.") for n, v in {**state, **every}.items()},
        }
        return arrays, facts

    def _built(self) -> nn.Module:
        self._seed(self.options.seed)
        module = eval(self.case.build or "", self.names)
        if not isinstance(module, nn.Module):
            raise TypeError(f"{self.case.build} gives {type(module).__name__}, not a torch.nn.Module")
        return module

    def _perturb(self, module: nn.Module) -> None:
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

    def _seed(self, seed: int) -> None:
        torch.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)

    def _fresh(self, mode: str, dropout: bool = False) -> nn.Module | None:
        """A copy of the module in its first state, in train or eval mode; drop rates are zero unless `dropout`."""
        if self.module is None:
            return None
        try:
            module = copy.deepcopy(self.module)
        except Exception:  # a module that holds results of its own computations cannot be copied
            module = self._built()
            module.load_state_dict(self.module.state_dict())
        module.train(mode == "train")
        self.dropouts.off = not dropout
        for child in module.modules() if not dropout else ():
            for name in drop_rates(child):
                setattr(child, name, 0.0)
        return module

    def _arguments(self, grad: bool) -> Arguments:
        leaves: dict[str, torch.Tensor] = {}
        passed: dict[str, torch.Tensor] = {}
        dtypes = {name: _DTYPES.get(spec.dtype) for name, spec in specs(self.case)}

        def make(name: str, _: Any) -> torch.Tensor:
            tensor = torch.from_numpy(self.inputs[name].copy()).to(dtypes[name])
            leaves[name] = tensor.requires_grad_(grad and tensor.is_floating_point())
            passed[name] = tensor.clone()
            return passed[name]

        args, kwargs = fill(self.case, make)
        return Arguments(args, kwargs, leaves, passed)

    def _call(self, module: nn.Module | None, given: Arguments, seed: int = 2) -> Any:
        self._seed(self.options.seed + seed)
        target: Any = self.function
        if module is not None:
            target = getattr(module, self.case.target) if self.case.target else module
        return target(*given.args, **given.kwargs)

    def _run(self, mode: str, seed: int = 2, dropout: bool = False) -> tuple[Any, nn.Module | None, list[str]]:
        """The result without gradients, the module afterwards, and which inputs were written to."""
        module = self._fresh(mode, dropout)
        given = self._arguments(False)
        with torch.no_grad():
            result = self._call(module, given, seed)
        return result, module, [n for n in given.leaves if _differ(given.leaves[n], given.passed[n])]

    def dropout(self) -> Result:
        """Whether train mode draws random numbers as the program stands, and the drop rates that it used."""
        self.dropouts.rates.clear()
        first, module, _ = self._run("train", dropout=True)
        before, parts = outputs(first)[0], list(module.modules()) if module is not None else []
        random = any(
            changed(before, outputs(self._run("train", seed=_OTHER_SEED + k, dropout=True)[0])[0])
            for k in range(attempts(parts))
        )
        rates = set(self.dropouts.rates)
        for child in module.modules() if module is not None else ():
            if isinstance(child, nn.RNNBase) and child.num_layers > 1 and child.dropout:
                rates.add(child.dropout)
        return {}, {"random": random, "rates": sorted(rates)}

    def forward(self, mode: str) -> Result:
        result, module, written = self._run(mode)
        again, _, _ = self._run(mode, seed=_OTHER_SEED)
        arrays, facts = outputs(result)
        facts["random"] = changed(arrays, outputs(again)[0])
        facts["written"] = written
        arrays.update(self._state(module))
        return arrays, facts

    def _state(self, module: nn.Module | None) -> dict[str, Any]:
        """Buffers, and parameters that a call has changed."""
        if module is None or self.module is None:
            return {}
        before = dict(self.module.named_parameters())
        changed = {n: p for n, p in module.named_parameters() if not torch.equal(p, before[n])}
        return {f"state.{n}": to_numpy(v) for n, v in {**changed, **dict(module.named_buffers())}.items()}

    def gradient(self, mode: str) -> Result:
        module = self._fresh(mode)
        given = self._arguments(True)
        loss = scalar_loss(self._call(module, given), None, mean=False)
        wanted = {f"in.{name}": leaf for name, leaf in given.leaves.items() if leaf.requires_grad}
        if module is not None:
            wanted |= {f"grad.{name}": p for name, p in module.named_parameters() if p.requires_grad}
        if loss is None or not wanted:
            return {}, {"nothing": "no output depends on a floating input or parameter"}
        grads = torch.autograd.grad(loss, list(wanted.values()), allow_unused=True)
        arrays = {
            n: to_numpy(torch.zeros_like(wanted[n]) if g is None else g) for n, g in zip(wanted, grads, strict=True)
        }
        dtypes = {n: str(t.dtype).removeprefix("torch.") for n, t in wanted.items()}
        return arrays, {"unused": [n for n, g in zip(wanted, grads, strict=True) if g is None], "dtypes": dtypes}

    def behaviour(self) -> Result:
        """Some optimizer steps in train mode: the losses, and the parameters and buffers afterwards."""
        module = self._fresh("train")
        assert module is not None
        trained = {n: p for n, p in module.named_parameters() if p.requires_grad}
        if not trained:
            return {}, {"nothing": "the module has no trainable parameter"}
        lr = self.options.lr
        kinds: dict[str, Callable[[], torch.optim.Optimizer]] = {
            "sgd": lambda: torch.optim.SGD(trained.values(), lr=lr),
            "adam": lambda: torch.optim.Adam(trained.values(), lr=lr),
            "adamw": lambda: torch.optim.AdamW(trained.values(), lr=lr),
        }
        optimizer = kinds[self.options.optimizer]()
        losses, largest = [], dict.fromkeys(trained, 0.0)
        for step in range(self.options.steps):
            optimizer.zero_grad()
            loss = scalar_loss(self._call(module, self._arguments(False), 2 + step), self.case.loss, mean=True)
            if loss is None:
                return {}, {"nothing": "no output depends on a parameter"}
            torch.autograd.backward(loss)
            losses.append(float(loss.detach()))
            for name, p in trained.items():
                largest[name] = max(largest[name], 0.0 if p.grad is None else float(p.grad.abs().max()))
            optimizer.step()
        floor = 1e-7 * max(1.0, *largest.values())
        arrays = {f"param.{n}": to_numpy(p) for n, p in trained.items()}
        arrays |= {f"buffer.{n}": to_numpy(b) for n, b in module.named_buffers()}
        return arrays | {"losses": np.asarray(losses)}, {"zero": [n for n in trained if largest[n] <= floor]}

    def trace(self, mode: str) -> Result:
        module = self._fresh(mode)
        assert module is not None
        with torch.no_grad():
            return traced(module, lambda: self._call(module, self._arguments(False)))


def _differ(before: torch.Tensor, after: torch.Tensor) -> bool:
    return before.shape != after.shape or not torch.allclose(before, after, rtol=0, atol=0, equal_nan=True)
