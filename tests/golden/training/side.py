"""Runs one training program under one framework: `python side.py torch|jax JOB.json`. Spoken to by check.py.

JOB holds: program, folder (of prog.py), weights (npz with initial weights, or "" to make them), out (npz to write),
draws ("queue": injected from a queue shared by both frameworks; "own": the framework's generator), jit. The answer
holds `h<run>.<i>` for what drive() returned, `w<k>.<name>` for the weights of model k before and `a<k>.<name>` after.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.abc
import inspect
import io
import json
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from programs import PROGRAMS

FORBIDDEN = ("torch", "torchvision", "jaxmigrate", "migrate")


class Queue:
    """Numbers in a fixed order: whoever asks for the same shapes in the same order gets the same numbers."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.RandomState(seed)

    def normal(self, shape: Any) -> np.ndarray:
        return np.asarray(self.random.randn(*(int(n) for n in shape)), np.float32)

    def choose(self, probs: np.ndarray) -> np.ndarray:
        """One index a row of `probs`, by the inverse of the cumulative distribution."""
        probs = np.asarray(probs, np.float64)
        u = self.random.rand(*probs.shape[:-1], 1)
        below = probs.cumsum(-1) < u * probs.sum(-1, keepdims=True)
        return np.minimum(below.sum(-1), probs.shape[-1] - 1)


class Forbid(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.split(".")[0] in FORBIDDEN:
            raise ImportError(f"the converted program still needs {name}")


class Torch:
    """The original."""

    def __init__(self) -> None:
        import torch

        self.torch = torch
        torch.set_num_threads(1)

    def inject(self, queue: Queue) -> None:
        torch = self.torch
        torch.randn = lambda *s, device=None: torch.tensor(queue.normal(s))
        torch.randn_like = lambda x: torch.tensor(queue.normal(x.shape))
        torch.multinomial = lambda p, num_samples: torch.tensor(queue.choose(p.numpy()))[:, None]
        categorical = torch.distributions.Categorical
        categorical.sample = lambda self: torch.tensor(queue.choose(self.probs.detach().numpy()))

    def call(self, fn: Callable[..., Any], args: list[Any]) -> Any:
        self.torch.manual_seed(0)
        return fn(*args)

    def array(self, value: np.ndarray) -> Any:
        return self.torch.tensor(value)

    def state(self, model: Any) -> dict[str, np.ndarray]:
        return {name: value.detach().numpy().copy() for name, value in model.state_dict().items()}

    def load(self, model: Any, state: dict[str, np.ndarray]) -> None:
        model.load_state_dict({name: self.torch.tensor(value) for name, value in state.items()})


class Jax:
    """The converted program: what its functions ask beyond the original's arguments is a key or an nnx.Rngs."""

    def __init__(self, jit: bool) -> None:
        sys.meta_path.insert(0, Forbid())
        import jax
        import jax.numpy as jnp
        from flax import nnx

        self.jax, self.jnp, self.nnx = jax, jnp, nnx
        if not jit:
            jax.jit = nnx.jit = eager
            nnx.cached_partial = functools.partial

    def inject(self, queue: Queue) -> None:
        jax, jnp = self.jax, self.jnp

        def categorical(key: Any, logits: Any, axis: int = -1, shape: Any = None) -> Any:
            assert axis in (-1, logits.ndim - 1)
            probs = np.exp(np.asarray(jax.lax.stop_gradient(logits), np.float64))
            assert shape in (None, logits.shape[:-1]), shape
            return jnp.asarray(queue.choose(probs), jnp.int32)

        jax.random.normal = lambda key, shape=(), dtype=jnp.float32: jnp.asarray(queue.normal(shape), dtype)
        jax.random.categorical = categorical

    def call(self, fn: Callable[..., Any], args: list[Any]) -> Any:
        given = {"key": lambda: self.jax.random.key(0), "rngs": lambda: self.nnx.Rngs(0)}
        asked = inspect.signature(fn).parameters
        return fn(*args, **{name: make() for name, make in given.items() if name in asked})

    def array(self, value: np.ndarray) -> Any:
        return self.jnp.asarray(value)

    def variables(self, model: Any) -> dict[str, Any]:
        """Parameters and buffers by torch's names, which the converted modules keep."""
        nodes = ((path, v) for path, v in self.nnx.iter_graph(model) if isinstance(v, self.nnx.Variable))
        return {".".join(map(str, path)): v for path, v in nodes if not isinstance(v, self.nnx.RngState)}

    def state(self, model: Any) -> dict[str, np.ndarray]:
        return {name: np.asarray(v.get_value()) for name, v in self.variables(model).items()}

    def load(self, model: Any, state: dict[str, np.ndarray]) -> None:
        variables = self.variables(model)
        for name, value in state.items():
            variables[name].set_value(self.jnp.asarray(value))


def eager(fn: Any = None, **_: Any) -> Any:
    """Stands in for jit: injected numbers must be drawn at every call, not once when the function is traced."""
    return fn if fn is not None else eager


def leaves(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [leaf for v in value for leaf in leaves(v)]
    return [value.detach() if hasattr(value, "detach") else value]


def main(framework: str, job: dict[str, Any]) -> dict[str, np.ndarray]:
    program = next(p for p in PROGRAMS if p.name == job["program"])
    side: Torch | Jax = Torch() if framework == "torch" else Jax(job["jit"])
    sys.path.insert(0, job["folder"])
    prog = importlib.import_module("prog")
    models = side.call(prog.build, [])
    models = list(models) if isinstance(models, (list, tuple)) else [models]
    given = np.load(job["weights"]) if job["weights"] else {}
    for k, model in enumerate(models):
        if given:
            prefix = f"w{k}."
            side.load(model, {n[len(prefix) :]: given[n] for n in given.files if n.startswith(prefix)})
        for name in program.no_dropout:
            getattr(model, name).p = 0.0
    answer = {f"w{k}.{name}": v for k, m in enumerate(models) for name, v in side.state(m).items()}
    for run in range(program.runs):
        if program.noise and job["draws"] == "queue":
            side.inject(Queue(run))
        data = [side.array(a) for a in program.data(run)]
        returned = leaves(side.call(prog.drive, [*models, *data]))
        answer |= {f"h{run}.{i}": np.asarray(v) for i, v in enumerate(returned)}
    return answer | {f"a{k}.{name}": v for k, m in enumerate(models) for name, v in side.state(m).items()}


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    job = json.loads(Path(sys.argv[2]).read_text())
    os.chdir(Path(sys.argv[2]).parent)
    with contextlib.redirect_stdout(io.StringIO()):
        answer = main(sys.argv[1], job)
    np.savez(job["out"], **answer)
