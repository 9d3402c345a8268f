"""The worker process of the original program: runs it under torch and records what it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from .confine import settle
from .leaves import same_bits, specs
from .loading import forget, load, namespace, root
from .statements import Statements
from .torch_bench import benchmark
from .torch_dropout import Dropouts
from .torch_operators import tolerate_missing_operators
from .torch_program import Program
from .torch_trace import Watch, traced
from .torch_values import changed, outputs, scalar_loss, to_numpy
from .worker import Result, attempts, perform, rates_by_path, read_job, settings

_DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16}
_OTHER_SEED = 1000  # far from the seeds that one run uses


def work(job: Path) -> None:
    """Do every item of a job file. The programs of several items may have modules of the same names."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    tolerate_missing_operators()
    items, options = read_job(job)
    dropouts = Dropouts()
    dropouts.install()
    for item in items:
        settle(job.parent, item.file.parent)
        original = Original(item, settings(item.case, options), dropouts)
        perform(item, original.steps())
        forget(root(item.file))


class Original(Program):
    """What is recorded of one case of the original program."""

    def steps(self) -> Iterator[tuple[str, Callable[[], Result]]]:
        yield "load", self.load
        yield "build", self.build
        if self.item.trace == "bench":
            yield "bench", lambda: benchmark(self)
            return
        if self.item.trace:
            yield f"trace {self.item.trace}", lambda: self.trace(self.item.trace)
            return
        for mode in ("eval", "train") if self.module is not None else ("eval",):
            if mode == "train":
                yield "dropout", self.dropout
            yield f"forward {mode}", lambda mode=mode: self.forward(mode)  # type: ignore[misc]
            yield f"gradient {mode}", lambda mode=mode: self.gradient(mode)  # type: ignore[misc]
            for name in self.options.precisions if self.may_be_cast() else ():
                yield f"{name} {mode}", lambda mode=mode, name=name: self.precise(name, mode)  # type: ignore[misc]
        if self.module is not None and self.options.steps:
            yield "behaviour", self.behaviour
        yield "determinism", self.determinism

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
        self.module = self.built()
        self.perturb(self.module)
        state = {k: v for k, v in self.module.state_dict().items() if isinstance(v, torch.Tensor)}
        every = dict(self.module.named_parameters(remove_duplicate=False))
        buffers = dict(self.module.named_buffers(remove_duplicate=False))
        arrays = {f"sd.{k}": to_numpy(v) for k, v in state.items()}
        arrays |= {f"tmp.{k}": to_numpy(v) for k, v in buffers.items() if k not in state}
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

    def dropout(self) -> Result:
        """Whether train mode draws random numbers as the program stands, and the drop rates that it used."""
        self.dropouts.rates.clear()
        first, module, _ = self.run("train", dropout=True)
        before, parts = outputs(first)[0], list(module.modules()) if module is not None else []
        random = any(
            changed(before, outputs(self.run("train", seed=_OTHER_SEED + k, dropout=True)[0])[0])
            for k in range(attempts(parts))
        )
        rates = set(self.dropouts.rates)
        for child in module.modules() if module is not None else ():
            if isinstance(child, nn.RNNBase) and child.num_layers > 1 and child.dropout:
                rates.add(child.dropout)
        places = rates_by_path(module.named_modules()) if module is not None else {}
        return {}, {"random": random, "rates": sorted(rates), "places": places}

    def forward(self, mode: str) -> Result:
        result, module, written = self.run(mode)
        again, _, _ = self.run(mode, seed=_OTHER_SEED)
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
        module = self.fresh(mode)
        given = self.arguments(True)
        result = self.call(module, given)
        loss = scalar_loss(result, None, mean=False)
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
        value = scalar_loss(result, self.case.loss, mean=True)
        assert value is not None
        arrays["loss"] = to_numpy(value)
        return arrays, {"unused": [n for n, g in zip(wanted, grads, strict=True) if g is None], "dtypes": dtypes}

    def behaviour(self) -> Result:
        """Some optimizer steps in train mode: the losses, and the parameters and buffers afterwards."""
        module = self.fresh("train")
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
        losses, rates, largest = [], [], dict.fromkeys(trained, 0.0)
        for step in range(self.options.steps):
            optimizer.zero_grad()
            loss = scalar_loss(self.call(module, self.arguments(False), 2 + step), self.case.loss, mean=True)
            if loss is None:
                return {}, {"nothing": "no output depends on a parameter"}
            torch.autograd.backward(loss)
            losses.append(float(loss.detach()))
            rates.append(optimizer.param_groups[0]["lr"])
            for name, p in trained.items():
                largest[name] = max(largest[name], 0.0 if p.grad is None else float(p.grad.abs().max()))
            optimizer.step()
        floor = 1e-7 * max(1.0, *largest.values())
        arrays = {f"param.{n}": to_numpy(p) for n, p in trained.items()}
        arrays |= {f"buffer.{n}": to_numpy(b) for n, b in module.named_buffers()}
        arrays |= {"losses": np.asarray(losses), "rates": np.asarray(rates)}
        return arrays, {"zero": [n for n in trained if largest[n] <= floor]}

    def may_be_cast(self) -> bool:
        """Whether the case leaves the floating type open: all its floating inputs are float32."""
        return not {s.dtype for _, s in specs(self.case)} & {"f16", "bf16", "f64"}

    def precise(self, name: str, mode: str) -> Result:
        """Outputs, buffers and gradients in another precision, and whether narrower numbers came up on the way."""
        watch = Watch()
        with self.precisely(name):
            self.watch = watch
            arrays, facts = self.forward(mode)
            if facts["random"]:
                return {}, {"nothing": f"the program draws random numbers in {mode} mode"}
            more, about = self.gradient(mode)
        return {**arrays, **more}, {**about, **facts, "narrow": sorted(watch.seen) if name == "float64" else []}

    def determinism(self) -> Result:
        """Whether a run with the same seed gives the same again, drop rates as they are."""
        mode = "train" if self.module is not None else "eval"
        first, again = (outputs(self.run(mode, dropout=True)[0])[0] for _ in range(2))
        return {}, {"changed": changed(first, again), "same bits": same_bits(first, again)}

    def trace(self, wanted: str) -> Result:
        """What every sub-module gets and gives, and what every statement makes. `wanted`: a mode, and a precision."""
        mode, _, precision = wanted.partition(" ")
        statements = Statements(root(self.item.file), _array, lambda t: getattr(t, "_version", 0))

        def run() -> None:
            given = self.arguments(False)
            with statements:
                self.call(module, given)

        with self.precisely(precision) if precision else nullcontext(), torch.no_grad():
            module = self.fresh(mode)
            arrays: dict[str, Any] = {}
            facts: dict[str, Any] = {"calls": []}
            if module is None:
                run()
            else:
                arrays, facts = traced(module, run)
        more, about = statements.result
        return {**arrays, **more}, {**facts, **about}


def _array(value: Any) -> Any:
    return to_numpy(value) if isinstance(value, torch.Tensor) else None
