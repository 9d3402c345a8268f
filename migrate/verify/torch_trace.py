"""Inputs and outputs of every sub-module of a torch module, in the order in which their calls end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from .leaves import flatten
from .torch_values import to_numpy
from .worker import Result

_NARROW = (torch.float32, torch.float16, torch.bfloat16, torch.complex64)


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the floating types narrower than float64 of all that operations take and give while it is on."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for _, leaf in flatten([args, kwargs or {}, result]):
            if isinstance(leaf, torch.Tensor) and leaf.dtype in _NARROW:
                self.seen.add(str(leaf.dtype).removeprefix("torch."))
        return result


def traced(module: nn.Module, call: Callable[[], Any]) -> Result:
    """Run `call` with hooks on every sub-module. Facts: the calls in the order of their ends, each with its path."""
    arrays: dict[str, Any] = {}
    calls: list[dict[str, Any]] = []
    counts: Counter[str] = Counter()
    waiting: dict[str, list[list[Any]]] = {}

    def save(key: str, value: Any) -> list[str]:
        leaves = [v for _, v in flatten(value) if isinstance(v, torch.Tensor)]
        for i, leaf in enumerate(leaves):
            arrays[f"{key}.{i}"] = to_numpy(leaf)
        return [f"{key}.{i}" for i in range(len(leaves))]

    def before(path: str) -> Callable[..., None]:
        def hook(_: nn.Module, args: Any, kwargs: Any) -> None:
            inputs = [v.clone() for _, v in flatten((args, list(kwargs.values()))) if isinstance(v, torch.Tensor)]
            waiting.setdefault(path, []).append(inputs)

        return hook

    def after(path: str) -> Callable[..., None]:
        def hook(child: nn.Module, args: Any, kwargs: Any, result: Any) -> None:
            number = counts[path]
            counts[path] += 1
            key = f"{path}#{number}"
            entry = {"path": path, "call": number, "kind": type(child).__name__}
            calls.append(
                entry | {"inputs": save(f"{key}.in", waiting[path].pop()), "outputs": save(f"{key}.out", result)}
            )

        return hook

    for path, child in module.named_modules():
        child.register_forward_pre_hook(before(path), with_kwargs=True)
        child.register_forward_hook(after(path), with_kwargs=True)
    call()
    return arrays, {"calls": calls}
