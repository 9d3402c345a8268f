"""PyTorch's own files. They are read with `weights_only=True`, so that no code in a file is ever run."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .checkpoint import Checkpoint, WeightsError, need

# Where programs put the state dict in a larger checkpoint.
USUAL = ("state_dict", "model_state_dict", "model", "module", "net", "weights")
SHOWN = 8
# torch's types that NumPy knows only through ml_dtypes, with the integers of their size.
EXTRA = {
    "bfloat16": "int16",
    "float8_e4m3fn": "uint8",
    "float8_e5m2": "uint8",
    "float8_e4m3fnuz": "uint8",
    "float8_e5m2fnuz": "uint8",
}


def read_torch(path: Path, key: str = "") -> Checkpoint:
    """The state dict in a .pt, .pth or .bin file: the whole of it, what lies under a usual name, or under `key`.

    Raises WeightsError for a file that is damaged, holds other objects than arrays, or holds no state dict.
    """
    need("torch", "ml_dtypes")
    found = _state_dict(path, _load(path), key)
    import torch

    arrays: dict[str, Any] = {}
    shared: dict[tuple[Any, ...], list[str]] = {}
    left_out: list[str] = []
    for name, value in found.items():
        if not isinstance(value, torch.Tensor):
            left_out.append(f"{name} ({type(value).__name__})")
            continue
        arrays[name] = _to_numpy(path, name, value)
        if value.numel():
            place = (value.data_ptr(), value.dtype, value.shape, value.stride())
            shared.setdefault(place, []).append(name)
    ties = tuple(tuple(group) for group in shared.values() if len(group) > 1)
    return Checkpoint(arrays, ties, tuple(left_out))


def write_torch(checkpoint: Checkpoint, path: Path) -> None:
    """Write a state dict for `torch.load(path, weights_only=True)`; names of one group share one tensor."""
    need("torch", "ml_dtypes")
    import torch

    first = {name: group[0] for group in checkpoint.ties for name in group}
    tensors: dict[str, Any] = {}
    for name, array in checkpoint.arrays.items():
        owner = first.get(name, name)
        if owner not in tensors:
            tensors[owner] = _to_tensor(name, array)
        tensors[name] = tensors[owner]
    torch.save({name: tensors[name] for name in checkpoint.arrays}, path)


def _load(path: Path) -> Any:
    import torch

    try:
        archive = zipfile.is_zipfile(path)
        if archive and any(n.endswith("/constants.pkl") for n in zipfile.ZipFile(path).namelist()):
            raise WeightsError(f"{path}: TorchScript; load it in torch and save its state_dict()")
        return torch.load(path, map_location="cpu", weights_only=True, mmap=archive)
    except pickle.UnpicklingError as error:
        text = " ".join(str(error).split())
        if "Unsupported global" in text or "Unsupported class" in text or "persistent" in text:
            what = text.partition("GLOBAL ")[2].split(" ")[0] or "objects"
            raise WeightsError(
                f"{path}: holds more than arrays ({what}); it is not read, as it could run code: "
                "load it in torch and save model.state_dict()"
            ) from error
        raise WeightsError(f"{path}: not a PyTorch checkpoint, or damaged") from error
    except (RuntimeError, EOFError, ValueError, KeyError, IndexError, AttributeError, TypeError) as error:
        raise WeightsError(f"{path}: not a PyTorch checkpoint, or damaged") from error
    except zipfile.BadZipFile as error:
        raise WeightsError(f"{path}: truncated or damaged") from error


def _state_dict(path: Path, value: Any, key: str) -> Mapping[str, Any]:
    if key:
        value = _below(path, value, key)
        if not _holds(value):
            raise WeightsError(f"{path}: no arrays by name under {key!r}, but {_kind(value)}")
        return dict(value)
    if not isinstance(value, Mapping):
        raise WeightsError(f"{path}: holds {_kind(value)}, not a state_dict")
    inside = [name for name in USUAL if _holds(value.get(name))]
    if len(inside) == 1 and not (inside[0] in ("module", "net") and _holds(value)):
        return dict(value[inside[0]])
    if len(inside) > 1:
        raise WeightsError(f"{path}: holds several state_dicts; name one: --key {' or --key '.join(inside)}")
    if _holds(value):
        return dict(value)
    other = [str(name) for name, part in value.items() if _holds(part)]
    if other:
        raise WeightsError(f"{path}: nothing says which part is the model; name it: --key {' or --key '.join(other)}")
    if {"state", "param_groups"} <= value.keys():
        raise WeightsError(f"{path}: the state of an optimizer, no weights of a model")
    raise WeightsError(f"{path}: holds no arrays, but {_names(value) or 'nothing'}")


def _below(path: Path, value: Any, key: str) -> Any:
    """The part under `key`, which may lead through several dicts: "a.b"."""
    if isinstance(value, Mapping) and key in value:
        return value[key]
    for part in key.split("."):
        if not isinstance(value, Mapping) or part not in value:
            there = _names(value) if isinstance(value, Mapping) else _kind(value)
            raise WeightsError(f"{path}: no key {key!r}; there is {there or 'nothing'}")
        value = value[part]
    return value


def _holds(value: object) -> bool:
    import torch

    return isinstance(value, Mapping) and any(
        isinstance(name, str) and isinstance(part, torch.Tensor) for name, part in value.items()
    )


def _kind(value: object) -> str:
    return f"a {type(value).__name__}"


def _names(value: Mapping[Any, Any]) -> str:
    names = [str(name) for name in value]
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def _to_numpy(path: Path, name: str, tensor: Any) -> Any:
    import ml_dtypes
    import numpy as np
    import torch

    kind = str(tensor.dtype).removeprefix("torch.")
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type != "cpu":
        what = "quantized" if tensor.is_quantized else f"of layout {tensor.layout} on {tensor.device.type}"
        raise WeightsError(f"{path}: {name} is {what}: NumPy has no such array")
    tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
    if kind in EXTRA:
        return tensor.view(getattr(torch, EXTRA[kind])).numpy().view(np.dtype(getattr(ml_dtypes, kind)))
    try:
        return tensor.numpy()
    except TypeError as error:
        raise WeightsError(f"{path}: {name} has the type {kind}, which NumPy lacks") from error


def _to_tensor(name: str, array: Any) -> Any:
    import numpy as np
    import torch

    array = np.array(array, order="C")  # a writable copy of its own
    kind = array.dtype.name
    if kind in EXTRA:
        return torch.from_numpy(array.view(EXTRA[kind])).view(getattr(torch, kind))
    try:
        return torch.from_numpy(array)
    except TypeError as error:
        raise WeightsError(f"{name} has the type {kind}, which torch lacks") from error
