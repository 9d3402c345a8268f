"""From the arguments of `jaxmigrate weights` to an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..config import ExitCode
from .checkpoint import Checkpoint, WeightsError, renamed
from .formats import format_of, read, write
from .mapping import Applied, Entry, apply, identity, read_map, write_map
from .model import entries_of

SHOWN = 20


@dataclass(frozen=True)
class Request:
    """What the command was asked. `model` is "FILE.py:Net(3)"; `map` and `write_map` are mapping files."""

    checkpoint: Path
    output: Path | None = None
    format: str = ""
    key: str = ""
    strip: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    model: str = ""
    map: Path | None = None
    write_map: Path | None = None
    invert: bool = False
    strict: bool = True
    dry_run: bool = False


def run_weights(request: Request) -> ExitCode:
    """Read, rename, check, write; returns 0, or 1 when names or shapes do not fit, and then writes nothing.

    Raises WeightsError for everything that cannot be read, understood or written.
    """
    if request.invert and request.map is None and not request.model:
        raise WeightsError("--invert needs --map or --model: without them the names are the same both ways")
    kind = format_of(request.output, request.format) if request.output else ""
    entries = _entries(request)
    checkpoint = renamed(read(request.checkpoint, request.key), request.strip, request.prefixes)
    if not checkpoint.arrays:
        raise WeightsError(f"{request.checkpoint}: holds no arrays")
    if checkpoint.left_out:
        _say(f"left out, no array: {_some(checkpoint.left_out)}")
    applied = apply(entries, checkpoint, invert=request.invert) if entries is not None else Applied(checkpoint)
    for what, names in (("missing", applied.missing), ("unexpected", applied.unexpected), ("shape", applied.wrong)):
        _list(what, names)
    if applied.wrong or (request.strict and not applied.fits):
        _say("nothing written" if request.output or request.write_map else "does not fit")
        return ExitCode.FINDINGS
    _finish(request, kind, applied.checkpoint, entries if entries is not None else identity(checkpoint))
    return ExitCode.DONE


def _entries(request: Request) -> list[Entry] | None:
    """The mapping that the request names. With a model and a map, the map's names and the model's shapes."""
    model = entries_of(request.model) if request.model else None
    if request.map is None:
        return model
    entries = read_map(request.map)
    if model is None:
        return entries
    shapes = {e.nnx: e.shape for e in model}
    if strange := [e.nnx for e in entries if e.nnx not in shapes]:
        raise WeightsError(f"{request.map}: the model has no {strange[0]}")
    if absent := sorted(shapes.keys() - {e.nnx for e in entries}):
        raise WeightsError(f"{request.map}: says nothing of the model's {absent[0]}")
    return [Entry(e.torch, e.nnx, e.axes, e.tied, shapes[e.nnx]) for e in entries]


def _finish(request: Request, kind: str, checkpoint: Checkpoint, entries: Sequence[Entry]) -> None:
    verb = "would write" if request.dry_run else "wrote"
    if request.output:
        if not request.dry_run:
            write(checkpoint, request.output, kind)
        _say(f"{verb} {request.output} ({kind}, {_summary(checkpoint)})")
    if request.write_map:
        if not request.dry_run:
            try:
                request.write_map.write_text(write_map(entries, request.write_map), encoding="utf-8")
            except OSError as error:
                raise WeightsError(f"{request.write_map}: {error.strerror or error}") from error
        _say(f"{verb} {request.write_map} ({len(entries)} names)")
    if not request.output and not request.write_map:
        if request.model or request.map:
            _say(f"fits: {_summary(checkpoint)}")
        else:
            width = max(map(len, checkpoint.arrays), default=0)
            for name, array in checkpoint.arrays.items():
                print(f"{name:<{width}}  {array.dtype.name} {list(array.shape)}")
            _say(_summary(checkpoint))


def _summary(checkpoint: Checkpoint) -> str:
    tied = sum(len(group) - 1 for group in checkpoint.ties)
    shared = f", {tied} tied" if tied else ""
    return f"{len(checkpoint.arrays)} arrays{shared}, {checkpoint.size / 1e6:,.1f} MB"


def _list(what: str, names: Sequence[str]) -> None:
    for name in names[:SHOWN]:
        _say(f"{what}: {name}")
    if len(names) > SHOWN:
        _say(f"{what}: and {len(names) - SHOWN} more")


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


def _say(line: str) -> None:
    print(line, file=sys.stderr)
