#!/usr/bin/env python
"""Time of one training step, converted and hand-written: `python bench/steps.py [--only gan] [--page docs/step-speed.md]`.

Each program is converted as it is and run beside a hand-written NNX port of the same program, both over the same
batches, in turns, in one process on one thread. The loader notes the processor time when a batch is asked for, so that
a step is everything in the loop: the call, reading the loss, the rate of the next step; the first steps, which compile,
are not counted. A ratio above 1 says that the converted program is the faster one.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {ONE_THREAD}".strip()

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from flax import nnx  # noqa: E402

from jaxmigrate.project import convert_files  # noqa: E402
from jaxmigrate.read.source import Source  # noqa: E402
from jaxmigrate.rulebook import load_rules  # noqa: E402

HERE = Path(__file__).resolve().parent
GOLDEN = HERE.parent / "tests" / "golden" / "training"
WARM = 20
AIM = 0.95


class Clock:
    """A loader of one batch, again and again, that notes when each is asked for."""

    def __init__(self, batch: Any, steps: int) -> None:
        self.batch, self.steps, self.times = batch, steps, [0.0] * (steps + 1)

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, index: int) -> Any:
        self.times[index] = time.process_time()
        return self.batch

    def __iter__(self) -> Iterator[Any]:
        for index in range(self.steps):
            yield self[index]
        self.times[self.steps] = time.process_time()

    def step(self) -> float:
        """Seconds of processor time for a step: the median over tenths of the steps behind the first ones."""
        tenth = (self.steps - WARM) // 10
        marks = self.times[WARM : WARM + 10 * tenth : tenth]
        return statistics.median((b - a) / tenth for a, b in zip(marks, marks[1:], strict=False))


@dataclass(frozen=True)
class Program:
    """A program in two forms, and `run`: train with a module's code over a clock."""

    name: str
    torch: Path
    hand: Path
    batch: Callable[[np.random.Generator], Any]
    run: Callable[[ModuleType, Clock], Any]


def floats(random: np.random.Generator, *shape: int) -> jax.Array:
    return jnp.asarray(random.normal(size=shape), jnp.float32)


def whole(random: np.random.Generator, below: int, *shape: int) -> jax.Array:
    return jnp.asarray(random.integers(0, below, shape), jnp.int32)


def mlp(module: ModuleType, clock: Clock) -> Any:
    model = module.MLP(64, 8, rngs=nnx.Rngs(0))
    return module.train(model, clock, nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param))


def mnist(module: ModuleType, clock: Clock) -> Any:
    model = module.Net(rngs=nnx.Rngs(0))
    tx = optax.inject_hyperparams(optax.adadelta)(learning_rate=1.0)
    clock.dataset = range(3200)  # type: ignore[attr-defined]
    options = argparse.Namespace(log_interval=10**6)
    return module.train(options, model, jax.devices()[0], clock, nnx.Optimizer(model, tx, wrt=nnx.Param), 1)


def vae(module: ModuleType, clock: Clock) -> Any:
    model = module.VAE(rngs=nnx.Rngs(0))
    return module.train(model, clock, nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param))


def gan(module: ModuleType, clock: Clock) -> Any:
    generator, discriminator = module.Generator(4, 8, rngs=nnx.Rngs(0)), module.Discriminator(8, rngs=nnx.Rngs(1))
    return module.train(generator, discriminator, clock, 4, jax.devices()[0], key=jax.random.key(0))


def charlm(module: ModuleType, clock: Clock) -> Any:
    device = jax.devices()[0] if hasattr(module, "pickle") else "cpu"
    with tempfile.NamedTemporaryFile() as file:
        return module.train(module.CharLM(11, rngs=nnx.Rngs(0)), clock, clock.steps, file.name, device)


def resnet(module: ModuleType, clock: Clock) -> Any:
    return module.fit(module.ResNet(rngs=nnx.Rngs(0)), clock, 1)


def lstm(module: ModuleType, clock: Clock) -> Any:
    return module.fit(module.Classifier(50, 32, 4, rngs=nnx.Rngs(0)), clock)


def _own(name: str, batch: Callable[[np.random.Generator], Any], run: Callable[[ModuleType, Clock], Any]) -> Program:
    return Program(name, HERE / "steps" / f"{name}_torch.py", HERE / "steps" / f"{name}_hand.py", batch, run)


def _golden(name: str, batch: Callable[[np.random.Generator], Any], run: Callable[[ModuleType, Clock], Any]) -> Program:
    return Program(name, GOLDEN / name / "torch_in.py", GOLDEN / name / "jax_out.py", batch, run)


PROGRAMS = (
    _own("mlp", lambda r: (floats(r, 32, 64), whole(r, 10, 32)), mlp),
    _own("resnet", lambda r: (floats(r, 8, 3, 16, 16), whole(r, 10, 8)), resnet),
    _own("lstm", lambda r: (whole(r, 50, 16, 20), whole(r, 4, 16)), lstm),
    _golden("01_mnist", lambda r: (floats(r, 32, 1, 16, 16), whole(r, 10, 32)), mnist),
    _golden("02_vae", lambda r: jnp.abs(floats(r, 16, 8, 8)) % 1, vae),
    _golden("03_gan", lambda r: floats(r, 16, 8), gan),
    _golden("04_charlm", lambda r: (whole(r, 11, 4, 12), whole(r, 11, 4, 12)), charlm),
)


def load(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def converted(program: Program, folder: Path) -> ModuleType:
    """The conversion as a module; it must leave nothing to do."""
    run = convert_files([Source(program.torch.name, program.torch.read_text(encoding="utf-8"))], load_rules())
    left = [f.message for f in run.findings if f.code[2] in "239"]
    assert not left, left
    (folder / "nnx_layers.py").write_text(run.layer_file, encoding="utf-8")
    path = folder / f"converted_{program.name}.py"
    path.write_text(run.outcomes[0].after, encoding="utf-8")
    sys.modules.pop("nnx_layers", None)
    sys.path.insert(0, str(folder))
    try:
        return load(path, path.stem)
    finally:
        sys.path.remove(str(folder))


def measure(program: Program, steps: int, rounds: int) -> tuple[float, float]:
    """Seconds of a step, converted and by hand."""
    batch = program.batch(np.random.default_rng(0))
    found: tuple[list[float], list[float]] = ([], [])
    with tempfile.TemporaryDirectory() as folder:
        modules = (converted(program, Path(folder)), load(program.hand, f"hand_{program.name}"))
        for turn in range(rounds):
            for which in (0, 1) if turn % 2 else (1, 0):
                clock = Clock(batch, steps)
                program.run(modules[which], clock)
                found[which].append(clock.step())
    return statistics.median(found[0]), statistics.median(found[1])


def table(rows: list[tuple[str, float, float]]) -> str:
    lines = ["| program | converted, µs | by hand, µs | by hand / converted |", "|---|---|---|---|"]
    for name, ours, hand in rows:
        ratio = f"{hand / ours:.2f}"
        lines.append(
            f"| {name} | {ours * 1e6:,.0f} | {hand * 1e6:,.0f} | {ratio if hand / ours >= AIM else f'**{ratio}**'} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--steps", type=int, default=220)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    rows = []
    for program in PROGRAMS:
        if options.only in program.name:
            rows.append((program.name, *measure(program, options.steps, options.rounds)))
            print(table(rows[-1:]).splitlines()[-1], flush=True)


if __name__ == "__main__":
    main()
