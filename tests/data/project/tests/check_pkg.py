import torch
from pkg.model import build


def test_it():
    assert build(4)(torch.zeros(1, 4)).shape == (1, 2)
