#!/usr/bin/env python
"""Time of a training step, converted and by hand: `python bench/steps.py [--only gan] [--page docs/step-speed.md]`.

Each program is converted as it is and run beside a port of it that is written by hand in plain NNX, over the same
batches, in turns, in one process on one thread. The loader notes the processor time when a batch is asked for, so a
step is everything in the loop: the call, reading the loss, the rate of the next step. The first steps, which compile,
are not counted. A ratio above 1 says that the converted program is the faster one. "unbound" is the converted program
with functools.partial in place of nnx.cached_partial, "bound" the hand-written one with nnx.cached_partial where it
has the plain form for that.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import itertools
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {ONE_THREAD}".strip()

import flax  # noqa: E402
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
        return statistics.median((b - a) / tenth for a, b in itertools.pairwise(marks))


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


WAYS = ("converted", "unbound", "hand", "bound")
BINDING = "cached_step = nnx.cached_partial(train_step, model, optimizer)"
LOOP = re.compile(r"^( *)(for [^\n]*:\n(?:\1 +[^\n]*\n)*?\1 +[^\n]*= )train_step\(model, optimizer, ", re.MULTILINE)


def load(text: str, name: str, folder: Path) -> ModuleType:
    """A module of the given text."""
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.pop("nnx_layers", None)
    sys.path.insert(0, str(folder))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(folder))
    return module


def modules(program: Program, folder: Path) -> dict[str, ModuleType]:
    """The program in each of the ways; the conversion must leave nothing to do."""
    run = convert_files([Source(program.torch.name, program.torch.read_text(encoding="utf-8"))], load_rules())
    left = [f.message for f in run.findings if f.code[2] in "239"]
    assert not left, left
    (folder / "nnx_layers.py").write_text(run.layer_file, encoding="utf-8")
    ours, hand = run.outcomes[0].after, program.hand.read_text(encoding="utf-8")
    texts = {
        "converted": ours,
        "unbound": "import functools\n" + ours.replace("nnx.cached_partial", "functools.partial"),
    }
    texts["hand"] = hand
    bound = LOOP.sub(rf"\1{BINDING}\n\1\2cached_step(", hand)
    if bound != hand:
        texts["bound"] = bound
    return {way: load(text, f"{way}_{program.name}", folder) for way, text in texts.items()}


def measure(program: Program, steps: int, rounds: int) -> dict[str, float]:
    """Seconds of a step, by way."""
    batch = program.batch(np.random.default_rng(0))
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        ways = modules(program, Path(folder))
        for turn in range(rounds):
            for way in list(ways) if turn % 2 else list(reversed(ways)):
                clock = Clock(batch, steps)
                with contextlib.redirect_stdout(io.StringIO()):
                    program.run(ways[way], clock)
                found.setdefault(way, []).append(clock.step())
    return {way: statistics.median(times) for way, times in found.items()}


HEAD = (
    "| program | converted, µs | unbound, µs | by hand, µs | by hand and bound, µs | hand / converted |"
    " hand and bound / converted |\n|---|---|---|---|---|---|---|"
)


def row(name: str, times: Mapping[str, float]) -> str:
    """A line of the table; ratios below the aim are set off."""
    ratios = [times[way] / times["converted"] if way in times else None for way in ("hand", "bound")]
    shown = ["" if r is None else f"{r:.2f}" if r >= AIM else f"**{r:.2f}**" for r in ratios]
    cells = [f"{times[way] * 1e6:,.0f}" if way in times else "" for way in WAYS]
    return f"| {' | '.join([name, *cells, *shown])} |"


PAGE = """# Time of a training step

Microseconds of processor time for one step of the loop, on one thread, in one run (`make bench-steps`; jax {jax},
flax {flax}). A step is all that the loop does for a batch. What is compared, and how: `bench/steps.py`.

* **converted**: as it comes out: the step in a function under `nnx.jit`, bound to model and optimizer once before the
  loop by `nnx.cached_partial`, where nothing in the loop changes more of them than their values.
* **unbound**: the same with `functools.partial` in place of `nnx.cached_partial`: `nnx.jit` takes all modules apart and
  puts them together again in every call, 0.1 to 0.2 ms for each layer with parameters under Adam.
* **by hand**: the same program as Flax's guides write it, `train_step(model, optimizer, …)` under `nnx.jit`.
* **by hand and bound**: that with `nnx.cached_partial`.

The aim is a ratio of at least {aim}.

{table}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Time of a training step, converted and written by hand.")
    parser.add_argument("--only", default="", help="programs whose name contains this")
    parser.add_argument("--steps", type=int, default=220)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--page", type=Path, help="write the table to this page")
    options = parser.parse_args()
    rows = []
    print(HEAD)
    for program in PROGRAMS:
        if options.only in program.name:
            rows.append(row(program.name, measure(program, options.steps, options.rounds)))
            print(rows[-1], flush=True)
    if options.page is not None:
        table = "\n".join([HEAD, *rows])
        text = PAGE.format(jax=jax.__version__, flax=flax.__version__, aim=AIM, table=table)
        options.page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
