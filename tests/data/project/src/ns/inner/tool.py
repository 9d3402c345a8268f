import torch
from pkg import Block


def apply(x: torch.Tensor):
    return Block(4)(x)
