"""Which variable of a hand-written module holds which torch tensor, and with its axes in which order.

Names decide where they agree once the usual renamings are undone (`kernel`, `scale`, `embedding` for `weight`, `mean`,
`var` for the running statistics), then shapes. What they leave open is paired in order of definition and reported.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import permutations
from pathlib import Path
from typing import Any

from .cases import CaseError

Shape = tuple[int, ...]

_LEAVES = {"kernel": "weight", "scale": "weight", "embedding": "weight", "mean": "running_mean", "var": "running_var"}
_OPTIONAL = "num_batches_tracked"  # torch counts batches, Flax does not


@dataclass(frozen=True)
class NameMap:
    """What the user says, each by torch's name.

    `names`: the variable; `orders`: the order of axes that makes its array torch's; `inputs`: the order that makes
    torch's input ("0", "1.2", "mask") the program's; `outputs`: the order that makes the program's output torch's
    ("output" for a single array, else its number).
    """

    names: Mapping[str, str] = field(default_factory=dict)
    orders: Mapping[str, Shape] = field(default_factory=dict)
    inputs: Mapping[str, Shape] = field(default_factory=dict)
    outputs: Mapping[str, Shape] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """As data that `from_plain` reads."""
        return {k: {n: v if isinstance(v, str) else list(v) for n, v in t.items()} for k, t in vars(self).items()}


def from_plain(data: Mapping[str, Any]) -> NameMap:
    """The map in `data`. Raises CaseError where it has another form."""
    known = ("names", "orders", "inputs", "outputs")
    if unknown := sorted(set(data) - set(known)):
        raise CaseError(f"name map: unknown table [{unknown[0]}]; known: {', '.join(known)}")
    tables: dict[str, dict[str, Any]] = {k: dict(data.get(k, {})) for k in known}
    for table, entries in tables.items():
        for name, value in entries.items():
            if table == "names" and not isinstance(value, str):
                raise CaseError(f'name map: names.{name}: expected a text such as "Dense_0.kernel"')
            if table != "names" and sorted(value if isinstance(value, list) else ()) != list(range(len(value))):
                raise CaseError(f"name map: {table}.{name}: expected an order of axes such as [1, 0]")
    return NameMap(tables["names"], *({n: tuple(v) for n, v in tables[k].items()} for k in known[1:]))


def read_map(file: Path) -> NameMap:
    """Read a TOML file with the tables [names], [orders], [inputs], [outputs]. Raises CaseError."""
    try:
        return from_plain(tomllib.loads(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise CaseError(f"{file}: {(error.strerror or str(error)).lower()}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise CaseError(f"{file}: {error}") from None


@dataclass(frozen=True)
class Pairing:
    """Variable and order of axes for each torch name; what neither names nor shapes decided; what has no partner."""

    names: dict[str, str]
    orders: dict[str, Shape]
    guessed: tuple[str, ...]
    missing: tuple[str, ...]
    extra: tuple[str, ...]


def infer(torch: Mapping[str, Shape], jax: Mapping[str, Shape], given: NameMap) -> Pairing:
    """Pair the shapes of torch's state, in order, with those of the variables, in order."""
    names = {t: j for t, j in given.names.items() if t in torch and j in jax}
    guessed: list[str] = []
    ours, theirs = [n for n in torch if n not in names], [n for n in jax if n not in names.values()]
    for key in (_path, _parts, _signature):
        for group in dict.fromkeys(key(n, torch[n]) for n in ours):
            left = [n for n in ours if key(n, torch[n]) == group]
            right = [n for n in theirs if key(n, jax[n]) == group]
            fits = len(left) == len(right) and all(_orders(jax[r], torch[n]) for n, r in zip(left, right, strict=True))
            if not fits or (key is not _signature and len(left) > 1):
                continue
            names |= dict(zip(left, right, strict=True))
            if len(left) > 1:
                pairs = ", ".join(f"{n} = {r}" for n, r in zip(left, right, strict=True))
                guessed.append(f"paired in order of definition: {pairs}")
            ours = [n for n in ours if n not in left]
            theirs = [n for n in theirs if n not in right]
    orders = {}
    for name, variable in names.items():
        order, sure = _order(variable, jax[variable], torch[name])
        order = given.orders.get(name, order)
        if order != tuple(range(len(order))):
            orders[name] = order
        if not sure and name not in given.orders:
            guessed.append(f"several orders of axes fit {variable}: taken {list(order)}")
    return Pairing(names, orders, tuple(guessed), tuple(n for n in ours if not n.endswith(_OPTIONAL)), tuple(theirs))


def _leaf(name: str) -> str:
    leaf = name.rpartition(".")[2]
    return _LEAVES.get(leaf, leaf)


def _path(name: str, _: Shape) -> Any:
    return name.rpartition(".")[0], _leaf(name)


def _parts(name: str, _: Shape) -> Any:
    """The path without case and separators: `layer1.0` is `Layer1_0`."""
    return re.sub(r"[^a-z0-9]", "", name.rpartition(".")[0].lower()), _leaf(name)


def _signature(name: str, shape: Shape) -> Any:
    return _leaf(name), tuple(sorted(shape))


def _orders(jax: Shape, torch: Shape) -> list[Shape]:
    if len(jax) > 6:
        return [tuple(range(len(jax)))] if jax == torch else []
    return [o for o in permutations(range(len(jax))) if tuple(jax[i] for i in o) == torch]


def _order(name: str, jax: Shape, torch: Shape) -> tuple[Shape, bool]:
    """The order that makes an array torch's; Flax's kernels have (..., in, out). And whether only one fits."""
    fitting = _orders(jax, torch)
    plain = tuple(range(len(jax)))
    if name.rpartition(".")[2] == "kernel" and len(jax) >= 2:
        usual = (len(jax) - 1, len(jax) - 2, *range(len(jax) - 2))
        if usual in fitting:
            return usual, True
    if plain in fitting:
        return plain, len(jax) < 2 or name.rpartition(".")[2] in ("embedding", "weight")
    return fitting[0], len(fitting) == 1
