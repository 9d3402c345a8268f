"""The worker process of a converted training script: runs it without torch for some optimizer steps.

It is given the draws of the original and records the losses that were differentiated. Mode `eager` runs without jit,
`jit` runs the script as it is. `precise` is eager with Adam's bias correction as exact as torch's.
"""

from __future__ import annotations

import contextlib
import functools
import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from .loading import Blocker

sys.meta_path.insert(0, Blocker())

import flax  # noqa: E402 - only after torch is out of reach
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from flax import nnx  # noqa: E402
from jax.experimental import io_callback  # noqa: E402

from .draws import Draws  # noqa: E402
from .jax_program import configure  # noqa: E402
from .loading import explain  # noqa: E402
from .record import Recorder, read  # noqa: E402
from .script_item import ScriptItem, Stop, read_script_job, start  # noqa: E402

_wait: Callable[[], None] = jax.effects_barrier


def work(job: Path) -> None:
    """Run the script of a job file and record it."""
    item, options = read_script_job(job)
    assert item.draws is not None
    recorder = Recorder(item.out)
    recorder.begin("train")
    configure("jax_default_matmul_precision", "highest")
    draws = Draws(read(item.draws).get("train").arrays)
    losses: list[float] = []
    done = [0]
    _replay(draws)
    _note_losses(losses, done)
    if item.mode == "precise":
        _correct_bias()
    try:
        how = _train(item, job.parent, options.steps, done, losses)
    except BaseException as error:
        recorder.failed("train", explain(error, item.file.parent))
    else:
        versions = {"jax": jax.__version__, "flax": flax.__version__, "optax": optax.__version__}
        facts: dict[str, Any] = {"how": how, "steps": done[0], "losses": losses}
        facts |= {"missing": draws.missing, "taken": draws.taken}
        recorder.done("train", versions=versions, device=jax.devices()[0].platform, **facts)
    recorder.end()


def _train(item: ScriptItem, scratch: Path, steps: int, done: list[int], losses: list[float]) -> str:
    """How the script ended: "stopped" at the first line of it that runs after enough steps, or "finished"."""

    def watch(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != str(item.file):
            return None
        if event == "line" and (done[0] >= steps or (not done[0] and len(losses) >= steps)):
            raise Stop
        return watch

    sys.settrace(watch)
    try:
        with jax.disable_jit() if item.mode != "jit" else contextlib.nullcontext():
            start(item, scratch, np.random.seed)
            _wait()
    except Stop:
        _wait()
        return "stopped"
    except SystemExit as error:
        if error.code:
            raise
    finally:
        sys.settrace(None)
    return "finished"


def _replay(draws: Draws) -> None:
    """Make the ways to draw give what the original drew, in a compiled step by a call back at each of its runs."""

    def given_later(kind: str, shape: tuple[int, ...]) -> Any:
        """Whether there is a draw, and the draw: known when the compiled step runs."""
        as_numbers = np.float32 if kind in ("uniform", "normal") else np.int32

        def take() -> Any:
            found = draws.take(kind, shape)
            return np.bool_(found is not None), np.asarray(np.zeros(shape) if found is None else found, as_numbers)

        return io_callback(take, (np.zeros((), bool), np.zeros(shape, as_numbers)), ordered=True)

    def instead(owner: Any, name: str, kind: str, shape_of: Any, value_of: Any) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def draw(key: Any, *args: Any, **options: Any) -> Any:
            shape = tuple(shape_of(*args, **options))
            if isinstance(key, jax.core.Tracer):
                value = original(key, *args, **options)
                given, found = given_later(kind, shape)
                return jnp.where(given, value_of(found, *args, **options).astype(value.dtype), value)
            found = draws.take(kind, shape)
            return original(key, *args, **options) if found is None else value_of(found, *args, **options)

        setattr(owner, name, draw)

    def shape(shape: Any = (), *_: Any, **__: Any) -> tuple[int, ...]:
        return tuple(shape)

    def uniform(found: Any, shape: Any = (), dtype: Any = float, minval: Any = 0.0, maxval: Any = 1.0, **_: Any) -> Any:
        return minval + jnp.asarray(found, dtype) * (maxval - minval)

    def normal(found: Any, shape: Any = (), dtype: Any = float, **_: Any) -> Any:
        return jnp.asarray(found, dtype)

    def bernoulli_shape(p: Any = 0.5, shape: Any = None, **_: Any) -> tuple[int, ...]:
        return tuple(np.shape(p) if shape is None else shape)

    def categorical_shape(logits: Any, axis: int = -1, shape: Any = None, **_: Any) -> tuple[int, ...]:
        return (*(np.shape(logits)[:-1] if shape is None else shape), 1)

    instead(jax.random, "uniform", "uniform", shape, uniform)
    instead(jax.random, "normal", "normal", shape, normal)
    instead(jax.random, "bernoulli", "bernoulli", bernoulli_shape, lambda found, *_, **__: jnp.asarray(found, bool))
    instead(jax.random, "randint", "randint", shape, lambda found, *_, **__: jnp.asarray(found, int))
    instead(
        jax.random, "permutation", "permutation", lambda x, *_, **__: (x,) if isinstance(x, int) else np.shape(x)[:1],
        lambda found, x, *_, **__: jnp.asarray(found) if isinstance(x, int) else x[jnp.asarray(found)],
    )  # fmt: skip
    instead(jax.random, "categorical", "categorical", categorical_shape, lambda f, *_, **__: jnp.asarray(f)[..., 0])
    make = np.random.default_rng

    class Generator:
        """The layer file's NumPy generator: its permutations and single numbers are those of the original."""

        def __init__(self, *args: Any) -> None:
            self.generator = make(*args)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.generator, name)

        def permutation(self, count: Any) -> Any:
            found = draws.take("permutation", (count,)) if isinstance(count, int) else None
            return self.generator.permutation(count) if found is None else found

        def random(self, *args: Any) -> Any:
            found = None if args else draws.take("uniform", (1,))
            return self.generator.random(*args) if found is None else float(found[0])

        def integers(self, *args: Any, **options: Any) -> Any:
            found = None if options or len(args) != 1 else draws.take("randint", (1,))
            return self.generator.integers(*args, **options) if found is None else int(found[0])

    def default_rng(*args: Any) -> Any:
        """The script's own generators draw the same in both programs; those of the loader stand for torch's."""
        ours = sys._getframe(1).f_globals.get("__name__", "").endswith("nnx_layers")
        return Generator(*args) if ours else make(*args)

    np.random.default_rng = default_rng  # type: ignore[assignment]


def _note_losses(losses: list[float], done: list[int]) -> None:
    """Note each value that is differentiated, and each update of parameters, also inside compiled functions."""
    inside = [False]
    owners: tuple[Any, ...] = (jax, nnx)
    for owner in owners:
        original = owner.value_and_grad

        def value_and_grad(*args: Any, original: Any = original, **options: Any) -> Any:
            function = original(*args, **options)

            @functools.wraps(function)
            def noted(*inputs: Any, **named: Any) -> Any:
                outermost, inside[0] = not inside[0], True  # nnx asks jax for its own gradients
                try:
                    value, grads = function(*inputs, **named)
                finally:
                    inside[0] = not outermost
                if not outermost:
                    return value, grads
                loss = value[0] if options.get("has_aux") else value
                jax.debug.callback(lambda v: losses.append(float(v)), loss, ordered=True)
                return value, grads

            return noted

        owner.value_and_grad = value_and_grad
    apply = optax.apply_updates

    seen = [0]

    def count(_: Any) -> None:
        if len(losses) > seen[0]:  # one step may write to several modules
            seen[0] = len(losses)
            done[0] += 1

    def counted(params: Any, updates: Any) -> Any:
        jax.debug.callback(count, jnp.zeros(()), ordered=True)
        return apply(params, updates)

    optax.apply_updates = counted


def _correct_bias() -> None:
    """Let optax compute `1 - decay**count` as torch does: to full precision, where float32 loses 5e-5 of 1 - 0.999."""

    def bias_correction(moment: Any, decay: float, count: Any) -> Any:
        factor = -jnp.expm1(count * math.log(decay))
        return jax.tree.map(lambda m: m / factor.astype(m.dtype), moment)

    for module in [m for name, m in sys.modules.items() if name.startswith("optax")]:
        for name in ("tree_bias_correction", "bias_correction"):
            if hasattr(module, name):
                setattr(module, name, bias_correction)
