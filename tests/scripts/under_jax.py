"""Run a converted script for some optimizer steps: `under_jax.py SCRIPT STEPS FOLDER eager|jit|precise [ARGUMENT...]`.

Reads FOLDER/draws.pickle, writes FOLDER/MODE.json with the losses that were differentiated. `eager` runs without jit,
so that each draw of the original has its counterpart; `jit` runs the script as it is, and draws inside a compiled step
are its own then. `precise` is eager with Adam's bias correction as exact as torch's.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import random
import runpy
import sys
from pathlib import Path
from typing import Any

sys.modules["torch"] = None  # type: ignore[assignment]
sys.path.insert(0, str(Path(__file__).parent))

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from draws import Draws, read  # noqa: E402
from flax import nnx  # noqa: E402


class Stop(BaseException):
    """Enough steps."""


def replay(draws: Draws, traced: list[str]) -> None:
    """Make the ways to draw give what the original drew."""

    def instead(owner: Any, name: str, kind: str, shape_of: Any, value_of: Any) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def draw(key: Any, *args: Any, **options: Any) -> Any:
            if isinstance(key, jax.core.Tracer):
                traced.append(name)
                return original(key, *args, **options)
            found = draws.take(kind, shape_of(*args, **options))
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
        """A NumPy generator whose permutations, and single numbers of random transforms, are those of the original."""

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

    np.random.default_rng = Generator  # type: ignore[assignment, misc]


def note_losses(losses: list[float], done: list[int]) -> None:
    """Note each value that is differentiated, and each update of parameters, also inside compiled functions."""
    inside = [False]
    for owner in (jax, nnx):
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

    def counted(params: Any, updates: Any) -> Any:
        jax.debug.callback(lambda _: done.__setitem__(0, done[0] + 1), jnp.zeros(()), ordered=True)
        return apply(params, updates)

    optax.apply_updates = counted


def correct_bias() -> None:
    """Let optax compute `1 - decay**count` as torch does: to full precision, where float32 loses 5e-5 of 1 - 0.999."""

    def bias_correction(moment: Any, decay: float, count: Any) -> Any:
        factor = -jnp.expm1(count * math.log(decay))
        return jax.tree.map(lambda m: m / factor.astype(m.dtype), moment)

    for module in [m for name, m in sys.modules.items() if name.startswith("optax")]:
        for name in ("tree_bias_correction", "bias_correction"):
            if hasattr(module, name):
                setattr(module, name, bias_correction)


def main(script: str, steps: int, folder: Path, mode: str, arguments: list[str]) -> None:
    draws, losses, done, traced = read(folder / "draws.pickle"), [], [0], []  # type: ignore[var-annotated]
    np.random.seed(0)
    random.seed(0)
    replay(draws, traced)
    note_losses(losses, done)
    if mode == "precise":
        correct_bias()
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).parent))

    def watch(frame: Any, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != script:
            return None
        if event == "line" and done[0] >= steps:
            raise Stop
        return watch

    how = "finished"
    sys.settrace(watch)
    try:
        with jax.disable_jit() if mode != "jit" else contextlib.nullcontext():
            runpy.run_path(script, run_name="__main__")
            jax.effects_barrier()
    except Stop:
        how = "stopped"
    finally:
        sys.settrace(None)
    result = {
        "how": how,
        "steps": done[0],
        "losses": losses,
        "missing": [str(m) for m in draws.missing],
        "traced": traced,
    }
    (folder / f"{mode}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4], sys.argv[5:])
