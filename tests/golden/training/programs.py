"""The six training programs: what data they get, which random draws are replaced, and how close the answers must be.

A program is `torch_in.py` with `drive.py` appended: `build()` makes the models, `drive(*models, *data)` trains them
and returns what is compared. Both are converted; `side.py` runs them under either framework.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
Arrays = list[np.ndarray]


@dataclass(frozen=True)
class Program:
    """`runs`: how many times drive() is called, each time with `data(run)`.

    `history`: the tolerances of the numbers that drive() returns, in turn; `relative` measures them against torch's.
    `weights`: the tolerance of the weights afterwards. `dead`: (name's end, slice) of weights whose true gradient is
    zero: Adam turns their rounding noise into steps of the learning rate, so they are not compared.
    `noise`: draws come from a shared queue, injected in place of both frameworks' generators.
    """

    name: str
    data: Callable[[int], Arrays]
    history: Sequence[float]
    weights: float = 1e-4
    relative: bool = False
    noise: bool = False
    runs: int = 1
    no_dropout: tuple[str, ...] = ()
    dead: tuple[tuple[str, slice], ...] = field(default=())

    @property
    def source(self) -> str:
        folder = HERE / self.name
        parts = (folder / "torch_in.py", folder / "drive.py")
        return "\n\n".join(p.read_text(encoding="utf-8") for p in parts)


def mnist(_: int) -> Arrays:
    images = np.random.RandomState(0).rand(200, 1, 16, 16).astype(np.float32)
    return [images, np.random.RandomState(1).randint(0, 10, 200)]


def vae(_: int) -> Arrays:
    return [np.random.RandomState(i).rand(16, 8, 8).astype(np.float32) for i in range(15)]


def gan(_: int) -> Arrays:
    return [np.random.RandomState(i).randn(16, 8).astype(np.float32) for i in range(30)]


def charlm(_: int) -> Arrays:
    tokens = np.random.RandomState(0).randint(0, 11, (40, 4, 13))
    return [tokens[:, :, :-1].copy(), tokens[:, :, 1:].copy()]


def inplace(run: int) -> Arrays:
    r = np.random.RandomState(run)
    corner = r.rand(30, 2)
    boxes = np.concatenate([corner, corner + 0.1 + 0.3 * r.rand(30, 2)], 1)
    floats = [boxes, r.rand(30), r.randn(20, 5), r.randn(4, 5), r.randn(6), 2 * r.randn(3, 12), r.randn(12, 12)]
    boxes, scores, x, a, v, logits, table = (f.astype(np.float32) for f in floats)
    seg, mask, idx, start = r.randint(0, 6, 20), r.rand(4, 5) > 0.3, r.randint(0, 6, 9), r.randint(0, 12, (3, 2))
    return [boxes, scores, x, seg, a, mask, v, idx, logits, table, start]


def reinforce(_: int) -> Arrays:
    return []


PROGRAMS = (
    Program("01_mnist", mnist, [2e-5], no_dropout=("dropout",)),
    Program("02_vae", vae, [1e-5], relative=True, noise=True),
    Program("03_gan", gan, [2e-5], noise=True),
    # loss, norm of the gradient, learning rate, 40 times; the loss after loading, and the number of steps
    Program("04_charlm", charlm, [1e-4, 1e-3, 1e-8] * 40 + [1e-4, 0], dead=(("qkv.bias", slice(16, 32)),)),
    Program("05_inplace", inplace, [1e-5], noise=True, runs=20),
    Program("06_reinforce", reinforce, [1e-3, 1e-9], weights=1e-3, noise=True),
)
