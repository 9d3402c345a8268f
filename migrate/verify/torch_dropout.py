"""Switching dropout off in a torch program, however it is written, and noting the rates that it asked for."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

_FUNCTIONS = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
_SDPA = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")


class Dropouts:
    """`off` makes every drop rate zero; `rates` collects the rates above zero that were used in train mode.

    The functions of `torch.nn.functional` are replaced before the user's file is imported, so that names imported from
    there are the replaced ones; torch's own modules call the same functions.
    """

    def __init__(self) -> None:
        self.off = False
        self.rates: set[float] = set()

    def install(self) -> None:
        for name in _FUNCTIONS:
            setattr(F, name, self._wrapped(getattr(F, name)))
        attention, plain = F.scaled_dot_product_attention, torch.dropout

        @functools.wraps(attention)
        def scaled_dot_product_attention(*args: Any, **kwargs: Any) -> Any:
            given = dict(zip(_SDPA, args, strict=False)) | kwargs
            given["dropout_p"] = self._rate(given.get("dropout_p", 0.0))
            return attention(*args[len(_SDPA) :], **given)

        def dropout(input: Any, p: float, train: bool) -> Any:
            return plain(input, self._rate(p) if train else p, train)

        F.scaled_dot_product_attention = scaled_dot_product_attention
        torch.dropout = dropout

    def _wrapped(self, function: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            if bound.arguments["training"]:
                bound.arguments["p"] = self._rate(bound.arguments["p"])
            return function(*bound.args, **bound.kwargs)

        return wrapped

    def _rate(self, rate: float) -> float:
        if rate > 0:
            self.rates.add(float(rate))
        return 0.0 if self.off else rate
