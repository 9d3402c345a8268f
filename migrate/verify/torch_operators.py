"""torchvision beside a torch that lacks some of its operators: its wheel on PyPI beside torch for the CPU."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch.library


def tolerate_missing_operators() -> None:
    """Let torchvision be imported where an operator that it describes does not exist; a call of that still fails."""
    library: Any = torch.library
    register = library.register_fake

    def tolerant(name: Any, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        if not (isinstance(name, str) and name.startswith("torchvision::")):
            return register(name, function, **options)

        def describe(described: Callable[..., Any]) -> Callable[..., Any]:
            with contextlib.suppress(RuntimeError):  # "operator torchvision::nms does not exist"
                register(name, described, **options)
            return described

        return describe if function is None else describe(function)

    library.register_fake = tolerant
