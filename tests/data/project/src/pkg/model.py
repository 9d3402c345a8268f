from __future__ import annotations
from typing import TYPE_CHECKING
from pkg.layers import Block
from . import nn, F, Act
from .sub.head import Head
if TYPE_CHECKING:
    from torch import Tensor
    from .sub.head import Other
try:
    import flash_attn
except ImportError:
    flash_attn = None


class Net(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.block = Block(d)
        self.head = Head(d)
        self.act = Act()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(F.relu(self.head(self.block(x))))


def build(d=4):
    return Net(d)
