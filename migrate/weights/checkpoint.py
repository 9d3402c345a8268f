"""What every format is read into and written from: arrays by name, and which names share one array."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

Group = tuple[str, ...]


class WeightsError(Exception):
    """A checkpoint, a mapping or a model cannot be used: the message is one line that names it."""


@dataclass(frozen=True)
class Checkpoint:
    """Arrays by name, in the order of the file.

    `arrays` holds NumPy arrays (bfloat16 and the 8-bit floats in the types of ml_dtypes). `ties` are groups of names
    that share one array; a name is in one group at most. `left_out` names what the file held beside arrays.
    """

    arrays: Mapping[str, Any]
    ties: tuple[Group, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """The bytes of all arrays, a shared one counted once."""
        again = {name for group in self.ties for name in group[1:]}
        return sum(a.nbytes for name, a in self.arrays.items() if name not in again)


def renamed(checkpoint: Checkpoint, strip: Sequence[str], prefixes: Sequence[str]) -> Checkpoint:
    """The checkpoint with the prefixes `strip` taken off, then each "old=new" of `prefixes` applied.

    Raises WeightsError for a prefix that no name has, and when two names become one.
    """
    pairs = [(prefix, "") for prefix in strip]
    for text in prefixes:
        old, equals, new = text.partition("=")
        if not equals:
            raise WeightsError(f"--prefix {text}: give it as old=new")
        pairs.append((old, new))
    names = {name: name for name in checkpoint.arrays}
    for old, new in pairs:
        if not any(name.startswith(old) for name in names.values()):
            raise WeightsError(f"no name begins with {old!r}; the first is {next(iter(names.values()), '')!r}")
        names = {k: new + name.removeprefix(old) if name.startswith(old) else name for k, name in names.items()}
    if twice := doubled(names.values()):
        raise WeightsError(f"two names become {twice!r}; change --strip or --prefix")
    arrays = {names[name]: array for name, array in checkpoint.arrays.items()}
    return replace(checkpoint, arrays=arrays, ties=tuple(tuple(names[n] for n in group) for group in checkpoint.ties))


def doubled(names: Iterable[str]) -> str | None:
    """The first name that occurs twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def same_bytes(a: Any, b: Any) -> bool:
    """Whether two arrays have one type, one shape and the same bytes (NaN included)."""
    return bool(a is b or (a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()))


def groups_in(value: object, names: Iterable[str]) -> tuple[Group, ...]:
    """The tied groups that a file's own note gives, without the names that the file does not have."""
    known = set(names)
    if not isinstance(value, list):
        return ()
    groups = (tuple(n for n in group if n in known) for group in value if isinstance(group, list))
    return tuple(group for group in groups if len(group) > 1)


def need(*packages: str) -> None:
    """Raise WeightsError when a package that this format needs is not installed."""
    if missing := [name for name in packages if find_spec(name.partition(".")[0]) is None]:
        raise WeightsError(f"weights needs {', '.join(missing)}: pip install 'jaxmigrate[weights]'")
