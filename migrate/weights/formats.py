"""The other formats: safetensors, npz, orbax; and which format a path means."""

from __future__ import annotations

import json
import shutil
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .checkpoint import Checkpoint, WeightsError, groups_in, need
from .torchfile import read_torch, write_torch

SUFFIXES = {
    ".pt": "torch", ".pth": "torch", ".bin": "torch", ".ckpt": "torch",
    ".safetensors": "safetensors", ".npz": "npz", ".orbax": "orbax", "": "orbax",
}  # fmt: skip
INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
SINGLE = ("model.safetensors", "pytorch_model.bin")
_NOTE = "jaxmigrate.ties"
_ORBAX_MARK = "_METADATA"
_SAFE_TYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
    "I16": "int16", "I8": "int8", "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool",
    "C64": "complex64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
}  # fmt: skip


def read(path: Path, key: str = "") -> Checkpoint:
    """Read a checkpoint: a file, the index of a sharded one, or a folder (orbax, or one that holds such a file).

    Raises WeightsError, with one line, for whatever cannot be read.
    """
    if not path.exists():
        raise WeightsError(f"{path}: no such file or folder")
    try:
        return _read(path, key)
    except OSError as error:
        raise WeightsError(f"{path}: {error.strerror or error}") from error


def _read(path: Path, key: str) -> Checkpoint:
    if path.is_dir():
        if (path / _ORBAX_MARK).is_file():
            return _without_key(path, key, _read_orbax(path))
        inside = [path / name for name in (*INDEXES, *SINGLE) if (path / name).is_file()]
        if not inside:
            raise WeightsError(f"{path}: no checkpoint in this folder; name the file")
        return _read(inside[0], key)
    if path.name.endswith(".index.json"):
        return _without_key(path, key, _read_shards(path))
    kind = SUFFIXES.get(path.suffix.lower(), "torch")
    if kind == "safetensors":
        return _without_key(path, key, _read_safetensors(path))
    if kind == "npz":
        return _without_key(path, key, _read_npz(path))
    return read_torch(path, key)


def _without_key(path: Path, key: str, checkpoint: Checkpoint) -> Checkpoint:
    if key:
        raise WeightsError(f"{path}: --key is for .pt files; take a prefix off with --strip {key}.")
    return checkpoint


def format_of(path: Path, name: str = "") -> str:
    """The format to write: `name`, or what the suffix means. Raises WeightsError when neither tells."""
    kind = name or SUFFIXES.get(path.suffix.lower(), "")
    if not kind:
        raise WeightsError(f"{path}: no known suffix ({', '.join(s for s in SUFFIXES if s)}); give --format")
    return kind


def write(checkpoint: Checkpoint, path: Path, kind: str) -> None:
    """Write a checkpoint beside its place, then move it there. Raises WeightsError and leaves nothing half-written."""
    if not path.parent.is_dir():
        raise WeightsError(f"{path}: no folder {path.parent}")
    if path.is_dir() and (kind != "orbax" or not (path / _ORBAX_MARK).is_file()):
        raise WeightsError(f"{path}: a folder that is no orbax checkpoint stands there")
    if path.is_file() and kind == "orbax":
        raise WeightsError(f"{path}: a file stands there, and orbax writes a folder")
    scratch = path.with_name(f".{path.name}.part")
    writers = {"torch": write_torch, "safetensors": _write_safetensors, "npz": _write_npz, "orbax": _write_orbax}
    try:
        writers[kind](checkpoint, scratch)
        if path.is_dir():
            shutil.rmtree(path)
        scratch.replace(path)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as a RuntimeError
        text = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise WeightsError(f"{path}: cannot be written: {text}") from error
    finally:
        if scratch.is_dir():
            shutil.rmtree(scratch, ignore_errors=True)
        else:
            scratch.unlink(missing_ok=True)


def _read_shards(path: Path) -> Checkpoint:
    try:
        table = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
        files = sorted(set(table.values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WeightsError(f"{path}: not an index of shards (no weight_map)") from error
    if strange := [f for f in files if not isinstance(f, str) or Path(f).name != f]:
        raise WeightsError(f"{path}: {strange[0]!r} is not the name of a file beside it")
    parts = {name: read(path.parent / name) for name in files}
    if absent := [key for key, name in table.items() if key not in parts[name].arrays]:
        raise WeightsError(f"{path}: {absent[0]} is not in {table[absent[0]]}")
    arrays = {key: parts[name].arrays[key] for key, name in table.items()}
    if more := [key for part in parts.values() for key in part.arrays if key not in arrays]:
        raise WeightsError(f"{path}: {more[0]} is in a shard, but not in the index")
    return Checkpoint(arrays, tuple(group for part in parts.values() for group in part.ties))


def _read_safetensors(path: Path) -> Checkpoint:
    need("safetensors", "ml_dtypes")
    import ml_dtypes
    import numpy as np
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as checked:  # checks the header against the length of the file
            note = checked.metadata() or {}
    except SafetensorError as error:
        raise WeightsError(f"{path}: not a safetensors file, or truncated ({error})") from error
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    data = np.memmap(path, np.uint8, "r") if path.stat().st_size > 8 + length else np.empty(8 + length, np.uint8)
    arrays: dict[str, Any] = {}
    header.pop("__metadata__", None)
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        kind = _SAFE_TYPES.get(entry["dtype"])
        if kind is None:
            raise WeightsError(f"{path}: {name} has the type {entry['dtype']}, which NumPy lacks")
        start, end = (8 + length + offset for offset in entry["data_offsets"])
        # A copy, as the data of a file need not be aligned.
        raw = np.array(data[start:end])
        arrays[name] = raw.view(np.dtype(getattr(ml_dtypes, kind, kind))).reshape(entry["shape"])
    return _with_dropped(Checkpoint(arrays, groups_in(_json(note.get(_NOTE)), arrays)), note)


def _with_dropped(checkpoint: Checkpoint, note: Mapping[str, str]) -> Checkpoint:
    """`safetensors.torch.save_model` leaves out the second name of a shared tensor and notes {second: first}."""
    arrays = dict(checkpoint.arrays)
    shared: dict[str, list[str]] = {}
    for name, kept in note.items():
        if name not in arrays and kept in checkpoint.arrays:
            arrays[name] = arrays[kept]
            shared.setdefault(kept, [kept]).append(name)
    return Checkpoint(arrays, (*checkpoint.ties, *map(tuple, shared.values())))


def _write_safetensors(checkpoint: Checkpoint, path: Path) -> None:
    need("safetensors", "ml_dtypes")
    import numpy as np
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    note = {"format": "pt"} | ({_NOTE: json.dumps(checkpoint.ties)} if checkpoint.ties else {})
    if bad := [n for n, a in checkpoint.arrays.items() if a.dtype.name not in _SAFE_TYPES.values()]:
        raise WeightsError(f"{bad[0]} has the type {checkpoint.arrays[bad[0]].dtype.name}, which safetensors lacks")
    try:
        save_file({n: np.ascontiguousarray(a).reshape(a.shape) for n, a in checkpoint.arrays.items()}, path, note)
    except SafetensorError as error:  # a full disk
        raise OSError(str(error)) from error


def _read_npz(path: Path) -> Checkpoint:
    need("numpy", "ml_dtypes")
    import ml_dtypes
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
            note = file.zip.comment
    except (ValueError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise WeightsError(f"{path}: not an .npz file of plain arrays, or damaged") from error
    arrays = {n: a.view(ml_dtypes.bfloat16) if a.dtype == np.dtype("V2") else a for n, a in arrays.items()}
    return Checkpoint(arrays, groups_in(_json(note), arrays))


def _write_npz(checkpoint: Checkpoint, path: Path) -> None:
    """NumPy's format has no bfloat16: its two bytes are written as such (`V2`), as np.savez does."""
    need("numpy", "ml_dtypes")
    import numpy as np

    note = json.dumps(checkpoint.ties).encode() if checkpoint.ties else b""
    if len(note) > zipfile.ZIP_MAX_COMMENT:
        raise WeightsError("too many tied names for an .npz file; write safetensors")
    with zipfile.ZipFile(path, "w") as archive:
        archive.comment = note
        for name, array in checkpoint.arrays.items():
            kind = array.dtype.name
            if array.dtype.kind == "V" and kind != "bfloat16":
                raise WeightsError(f"{name} has the type {kind}, which .npz cannot tell from others; write safetensors")
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as file:
                plain = array.view("V2") if kind == "bfloat16" else array
                np.lib.format.write_array(file, np.asarray(plain, order="C"), allow_pickle=False)


def _read_orbax(path: Path) -> Checkpoint:
    need("orbax", "jax")
    import jax
    import numpy as np
    import orbax.checkpoint as ocp

    try:
        with ocp.PyTreeCheckpointer() as reader:
            about = reader.metadata(path.resolve())
            plain = ocp.RestoreArgs(restore_type=np.ndarray)
            wanted = jax.tree.map(lambda _: plain, about.item_metadata.tree)
            tree = reader.restore(path.resolve(), restore_args=wanted)
    except (ValueError, KeyError, FileNotFoundError, AttributeError, TypeError) as error:
        raise WeightsError(f"{path}: not an orbax checkpoint, or damaged") from error
    arrays: dict[str, Any] = {}
    for keys, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        parts = [str(getattr(k, "key", getattr(k, "idx", getattr(k, "name", k)))) for k in keys]
        if parts[-1] == "value" and len(parts) > 1:  # as Flax saved Variables before 0.11
            parts.pop()
        arrays[".".join(parts)] = np.asarray(leaf)
    return Checkpoint(arrays, groups_in((about.custom_metadata or {}).get(_NOTE), arrays))


def _write_orbax(checkpoint: Checkpoint, path: Path) -> None:
    """A tree of dicts along the dots of the names, as `nnx.to_pure_dict(nnx.state(model))` has it."""
    need("orbax")
    import numpy as np
    import orbax.checkpoint as ocp

    tree: dict[str, Any] = {}
    for name, array in checkpoint.arrays.items():
        *folders, last = name.split(".")
        place = tree
        for part in folders:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                raise WeightsError(
                    f"{name}: orbax keeps a tree, and a part of this name is an array; write safetensors"
                )
        if last in place:
            raise WeightsError(f"{name}: orbax keeps a tree, and other names continue this one; write safetensors")
        if not array.size:
            raise WeightsError(f"{name}: orbax cannot keep an array of no elements; write safetensors")
        place[last] = np.asarray(array, order="C")
    note = {_NOTE: [list(group) for group in checkpoint.ties]} if checkpoint.ties else None
    with ocp.StandardCheckpointer() as writer:
        writer.save(path.resolve(), tree, custom_metadata=note)


def _json(text: str | bytes | None) -> object:
    try:
        return json.loads(text) if text else None
    except ValueError:
        return None
