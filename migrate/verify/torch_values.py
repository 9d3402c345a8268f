"""torch results as NumPy arrays and plain facts, and the scalar that gradients are taken of."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .leaves import flatten, weights_of_loss
from .worker import Result


def to_numpy(tensor: torch.Tensor) -> Any:
    """A copy as NumPy; bfloat16, which NumPy lacks, as float32."""
    tensor = tensor.detach().cpu()
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.float()
    return tensor.resolve_conj().resolve_neg().numpy().copy()


def outputs(result: Any) -> Result:
    """Arrays and facts of what a call returned."""
    arrays: dict[str, Any] = {}
    leaves: list[list[Any]] = []
    for path, leaf in flatten(result):
        if isinstance(leaf, torch.Tensor):
            arrays[f"out.{path}"] = to_numpy(leaf)
            leaves.append([path, "array", str(leaf.dtype).removeprefix("torch.")])
        elif isinstance(leaf, (bool, int, float, str, type(None))):
            leaves.append([path, "value", leaf])
        elif isinstance(leaf, np.ndarray):
            arrays[f"out.{path}"] = leaf
            leaves.append([path, "array", str(leaf.dtype)])
        else:
            leaves.append([path, "object", type(leaf).__name__])
    return arrays, {"leaves": leaves}


def scalar_loss(result: Any, path: str | None, mean: bool) -> torch.Tensor | None:
    """sum(w * output) over the floating outputs, or the output called `path`; None when no gradient passes.

    Outputs without a gradient count too: the converted program cannot tell them from the others.
    """
    total: torch.Tensor | None = None
    size = 0
    for name, leaf in flatten(result):
        if not isinstance(leaf, torch.Tensor) or not (leaf.is_floating_point() or leaf.is_complex()):
            continue
        if path is not None:
            if name == path and leaf.requires_grad:
                return leaf.sum()
            continue
        real = torch.view_as_real(leaf) if leaf.is_complex() else leaf
        w = torch.from_numpy(weights_of_loss(real.numel())).to(real).reshape(real.shape)
        total = (real * w).sum() if total is None else total + (real * w).sum()
        size += real.numel()
    if path is not None:
        raise ValueError(f"no output {path!r} that carries a gradient, to be the loss")
    if total is None or not total.requires_grad:
        return None
    return total / size if mean and total is not None and size else total


def changed(first: dict[str, Any], second: dict[str, Any]) -> list[str]:
    """Names of the outputs that differ between two runs."""
    return [
        name
        for name in first
        if name not in second
        or first[name].shape != second[name].shape
        or not np.allclose(first[name], second[name], rtol=1e-5, atol=1e-6, equal_nan=True)
    ]
