#!/usr/bin/env python
"""How fast the emitted layers are: `python bench/layers.py [--only Conv] [--page docs/layer-speed.md]`.

Each layer of the layer file, Flax's nearest layer and the same written by hand, under jit, forward and gradient (of
all parameters and floating inputs). All of one case are timed in turns in one run: `--rounds` rounds in which each is
called for a few milliseconds; the figure is the median of the rounds in processor time on one thread, so that what
else the machine does matters little. A ratio above 1 says that the emitted layer is the faster one.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {ONE_THREAD}".strip()

import flax  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from flax import nnx  # noqa: E402
from layer_cases import Case, Way, cases  # noqa: E402

from jaxmigrate.layers import catalogue, emit  # noqa: E402

LEAST = 3e-3  # seconds in one turn
SLOW = 0.9
NAMES = ("ours", "flax", "hand")
Row = tuple[str, list[float | None], list[float | None]]


def library() -> SimpleNamespace:
    """The names of a layer file that holds everything."""
    names: dict[str, Any] = {"__name__": "nnx_layers"}
    exec(compile(emit(catalogue()), "nnx_layers.py", "exec"), names)
    return SimpleNamespace(**names)


def functions(way: Way) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Forward and gradient, compiled, with their arguments bound."""
    if isinstance(way.module, nnx.Module):
        graph, parameters, rest = nnx.split(way.module, nnx.Param, ...)
    else:
        graph, parameters, rest = None, way.module, None
    # Plain leaves: taking an nnx.State apart at each call would be measured as the layer's own time.
    own, tree = jax.tree.flatten(parameters)
    other, other_tree = jax.tree.flatten(rest)
    floating = [i for i, x in enumerate(way.inputs) if jnp.issubdtype(x.dtype, jnp.floating)]

    def forward(own: Any, other: Any, inputs: Sequence[Any]) -> Any:
        module = tree.unflatten(own)
        if graph is not None:
            module = nnx.merge(graph, module, other_tree.unflatten(other), copy=True)
        return way.call(module, *inputs)

    shape = jax.eval_shape(forward, own, other, way.inputs).shape
    weight = jnp.cos(jnp.arange(int(jnp.prod(jnp.array(shape))) or 1, dtype=jnp.float32)).reshape(shape)

    def loss(own: Any, given: dict[int, Any], fixed: dict[int, Any], other: Any, weight: Any) -> Any:
        inputs = [x for _, x in sorted((given | fixed).items())]
        return (forward(own, other, inputs) * weight).sum()

    run, back = jax.jit(forward), jax.jit(jax.grad(loss, argnums=(0, 1)))
    given = {i: x for i, x in enumerate(way.inputs) if i in floating}
    fixed = {i: x for i, x in enumerate(way.inputs) if i not in floating}
    return lambda: run(own, other, way.inputs), lambda: back(own, given, fixed, other, weight)


def timed(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Seconds for one call of each: the median of rounds in which they take turns."""
    repeats: dict[str, int] = {}
    for name, call in calls.items():
        jax.block_until_ready(call())
        start = time.process_time()
        jax.block_until_ready(call())
        repeats[name] = max(1, round(LEAST / max(time.process_time() - start, 1e-6)))
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds):
        order = list(calls) if turn % 2 else list(reversed(calls))
        for name in order:
            start = time.process_time()
            for _ in range(repeats[name]):
                result = calls[name]()
            jax.block_until_ready(result)
            taken[name].append((time.process_time() - start) / repeats[name])
    return {name: statistics.median(times) for name, times in taken.items()}


def measure(case: Case, rounds: int) -> Row:
    """The case's name and, forward and gradient, microseconds of ours, Flax's and the hand-written one."""
    ways = {name: functions(way) for name in NAMES if (way := getattr(case, name)) is not None}
    found = []
    for index in (0, 1):
        times = timed({name: pair[index] for name, pair in ways.items()}, rounds)
        found.append([times[name] * 1e6 if name in times else None for name in NAMES])
    return case.name, found[0], found[1]


def cells(times: Sequence[float | None]) -> str:
    ours = times[0] or 0.0

    def ratio(other: float | None) -> str:
        if other is None:
            return ""
        value = other / ours
        return f"**{value:.2f}**" if value < SLOW else f"{value:.2f}"

    return " | ".join([f"{ours:,.0f}", *(ratio(t) for t in times[1:])])


HEAD = (
    "| layer | forward, µs | Flax / ours | hand / ours | gradient, µs | Flax / ours | hand / ours |\n"
    "|---|---:|---:|---:|---:|---:|---:|"
)
MARKS = ("<!-- table -->", "<!-- /table -->")


def write_page(page: Path, rows: Sequence[str]) -> None:
    """Put the rows between the marks of the page, each in the place of an older one of its name."""
    text = page.read_text(encoding="utf-8")
    before, rest = text.split(MARKS[0])
    old, after = rest.split(MARKS[1])
    known = {row.split(" | ")[0]: row for row in old.splitlines()[5:] if row.startswith("| ")}
    rows = list((known | {row.split(" | ")[0]: row for row in rows}).values())
    about = f"jax {jax.__version__}, flax {flax.__version__}, {jax.devices()[0].platform}, one thread."
    page.write_text("\n".join([f"{before}{MARKS[0]}", about, "", HEAD, *rows, f"{MARKS[1]}{after}"]), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--only", default="", help="layers whose name holds this")
    parser.add_argument("--page", type=Path, help="write the rows into the table of this page")
    options = parser.parse_args()
    print(HEAD, flush=True)
    rows = []
    for case in cases(library()):
        if options.only in case.name:
            name, forward, gradient = measure(case, options.rounds)
            rows.append(f"| {name} | {cells(forward)} | {cells(gradient)} |")
            print(rows[-1], flush=True)
    if options.page:
        write_page(options.page, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
