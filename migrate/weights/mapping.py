"""The mapping between torch's names and layouts and those of a converted model: written, read, applied, inverted."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .checkpoint import Checkpoint, WeightsError, doubled, same_bytes

_HEAD = """# Written by `jaxmigrate weights --write-map`: one table for each weight.
# torch: name in the state_dict; nnx: path in the converted model; axes: the model's array is torch's array transposed
# to this order; tied: names of one group share one array.
"""


@dataclass(frozen=True)
class Entry:
    """One weight. `axes` is "" for an array that stays as it is; `shape` is the model's, None when no model was asked.

    `tied` names a group of entries that share one array; "" for an array of its own.
    """

    torch: str
    nnx: str
    axes: tuple[int, ...] = ()
    tied: str = ""
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Applied:
    """A checkpoint under its new names, and what did not fit: lists of lines."""

    checkpoint: Checkpoint
    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        return not (self.missing or self.unexpected or self.wrong)


def identity(checkpoint: Checkpoint) -> list[Entry]:
    """The mapping that keeps every name, with the ties of the checkpoint."""
    group = {name: names[0] for names in checkpoint.ties for name in names}
    return [Entry(name, name, tied=group.get(name, "")) for name in checkpoint.arrays]


def apply(entries: Sequence[Entry], checkpoint: Checkpoint, *, invert: bool = False) -> Applied:
    """Rename and transpose a checkpoint of torch's names; `invert`: one of the model's names, back to torch's.

    A name that is missing is taken from another one of its group. Arrays of one group must have the same bytes.
    """
    old = [e.nnx if invert else e.torch for e in entries]
    held = _of_groups(entries, checkpoint, invert)
    arrays: dict[str, Any] = {}
    wrong: list[str] = []
    for entry, name in zip(entries, old, strict=True):
        array = checkpoint.arrays.get(name, held.get(entry.tied) if entry.tied else None)
        if array is None:
            continue
        if problem := _problem(entry, array, held, invert):
            wrong.append(f"{name}: {problem}")
            continue
        axes = _inverse(entry.axes) if invert else entry.axes
        arrays[entry.torch if invert else entry.nnx] = array.transpose(axes) if axes else array
    known = set(old)
    missing = [n for e, n in zip(entries, old, strict=True) if n not in checkpoint.arrays and e.tied not in held]
    unexpected = [name for name in checkpoint.arrays if name not in known]
    return Applied(Checkpoint(arrays, _ties(entries, arrays, invert)), tuple(missing), tuple(unexpected), tuple(wrong))


def _of_groups(entries: Iterable[Entry], checkpoint: Checkpoint, invert: bool) -> dict[str, Any]:
    """The first array that the checkpoint has of each group."""
    held: dict[str, Any] = {}
    for entry in entries:
        name = entry.nnx if invert else entry.torch
        if entry.tied and name in checkpoint.arrays:
            held.setdefault(entry.tied, checkpoint.arrays[name])
    return held


def _problem(entry: Entry, array: Any, held: Mapping[str, Any], invert: bool) -> str:
    if entry.axes and len(entry.axes) != array.ndim:
        return f"shape {array.shape} has not the {len(entry.axes)} axes of the mapping"
    shape = array.shape if invert or not entry.axes else tuple(array.shape[a] for a in entry.axes)
    if entry.shape is not None and shape != entry.shape:
        order = f", stored as {entry.shape}" if entry.axes and not invert else ""
        needed = entry.shape if invert or not entry.axes else tuple(entry.shape[a] for a in _inverse(entry.axes))
        return f"{tuple(array.shape)} given, {needed} needed{order}"
    if entry.tied and not same_bytes(array, held[entry.tied]):
        return f"tied to {entry.tied}, but another array in the checkpoint"
    return ""


def _inverse(axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(axes.index(i) for i in range(len(axes)))


def _ties(entries: Iterable[Entry], arrays: Mapping[str, Any], invert: bool) -> tuple[tuple[str, ...], ...]:
    groups: dict[str, list[str]] = {}
    for entry in entries:
        name = entry.torch if invert else entry.nnx
        if entry.tied and name in arrays:
            groups.setdefault(entry.tied, []).append(name)
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)


def write_map(entries: Iterable[Entry], path: Path) -> str:
    """The text of a mapping file: JSON when the path says so, else TOML."""
    rows = [
        {"torch": e.torch, "nnx": e.nnx}
        | ({"axes": list(e.axes)} if e.axes else {})
        | ({"tied": e.tied} if e.tied else {})
        for e in entries
    ]
    if path.suffix.lower() == ".json":
        return json.dumps({"weight": rows}, indent=2, ensure_ascii=False) + "\n"
    tables = ("[[weight]]\n" + "".join(f"{k} = {_toml(v)}\n" for k, v in row.items()) for row in rows)
    return "\n".join((_HEAD, *tables))


def _toml(value: object) -> str:
    # JSON's strings and lists of numbers are TOML's, but for DEL, which TOML wants escaped.
    return json.dumps(value).replace("\x7f", "\\u007F")


def read_map(path: Path) -> list[Entry]:
    """The entries of a mapping file. Raises WeightsError for what is no mapping."""
    try:
        text = path.read_text(encoding="utf-8")
        table = json.loads(text) if path.suffix.lower() == ".json" else tomllib.loads(text)
    except OSError as error:
        raise WeightsError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise WeightsError(f"{path}: {' '.join(str(error).split())}") from error
    rows = table.get("weight") if isinstance(table, dict) else None
    if not isinstance(rows, list):
        raise WeightsError(f"{path}: no [[weight]] tables")
    entries = [_entry(path, i, row) for i, row in enumerate(rows, 1)]
    for side in ("torch", "nnx"):
        if twice := doubled(getattr(e, side) for e in entries):
            raise WeightsError(f"{path}: {side} = {twice!r} stands there twice")
    return entries


def _entry(path: Path, number: int, row: object) -> Entry:
    where = f"{path}: weight {number}"
    if not isinstance(row, dict) or not all(isinstance(row.get(k), str) and row[k] for k in ("torch", "nnx")):
        raise WeightsError(f"{where}: needs torch and nnx, both names")
    if more := sorted(row.keys() - {"torch", "nnx", "axes", "tied"}):
        raise WeightsError(f"{where}: unknown key {more[0]!r}")
    axes, tied = row.get("axes", []), row.get("tied", "")
    if not isinstance(axes, list) or any(type(a) is not int for a in axes) or sorted(axes) != list(range(len(axes))):
        raise WeightsError(f"{where}: axes must be an order of 0, 1, ..., not {axes!r}")
    if not isinstance(tied, str):
        raise WeightsError(f"{where}: tied must be the name of a group")
    return Entry(row["torch"], row["nnx"], tuple(axes), tied)
