"""Switching dropout off leaves torch's functions as they are called."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from jaxmigrate.verify import torch_dropout


def test_attention_called_by_position_alone() -> None:
    names = (*torch_dropout._FUNCTIONS, "scaled_dot_product_attention")
    saved, plain = {n: getattr(F, n) for n in names}, torch.dropout
    x = torch.randn(1, 2, 3, 4)
    wanted = F.scaled_dot_product_attention(x, x, x, None, 0.0, True)
    dropouts = torch_dropout.Dropouts()
    dropouts.off = True
    try:
        dropouts.install()
        torch.testing.assert_close(F.scaled_dot_product_attention(x, x, x, None, 0.5, True), wanted)
    finally:
        for name, function in saved.items():
            setattr(F, name, function)
        torch.dropout = plain
    assert dropouts.rates == {0.5}
