"""Parameters and buffers that may be None reach functions that take None, as torch's own values show."""

from __future__ import annotations

import numpy as np
import pytest
from runner import run_both

HEAD = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n\n"

LINEAR = """
class Scaled(nn.Module):
    def __init__(self, bias):
        super().__init__()
        self.weight = nn.Parameter(torch.arange(6.0).reshape(2, 3))
        if bias:
            self.bias = nn.Parameter(torch.ones(2))
        else:
            self.register_parameter("bias", None)

    def forward(self, x):
        return F.linear(x, self.weight, self.bias)

def main(x):
    return Scaled(True)(x), Scaled(False)(x)
"""
SUBCLASS = """
class Scaled(nn.Linear):
    def forward(self, x):
        return F.linear(x, torch.ones_like(self.weight), self.bias)

def main(x):
    return Scaled(3, 2, bias=False)(x), Scaled(3, 2)(x).shape
"""
LOCAL = """
class Held(nn.Module):
    def __init__(self, bias):
        super().__init__()
        self.fc = nn.Linear(3, 2, bias=bias)
        nn.init.ones_(self.fc.weight)
        if self.fc.bias is not None:
            nn.init.ones_(self.fc.bias)

    def forward(self, x):
        bias = self.fc.bias
        return F.linear(x, self.fc.weight, bias), F.linear(x, self.fc.weight, self.fc.bias)

def main(x):
    return *Held(True)(x), *Held(False)(x)
"""
NORM = """
class Norm(nn.Module):
    def __init__(self, affine, bias):
        super().__init__()
        self.weight = nn.Parameter(torch.arange(3.0)) if affine else None
        self.bias = nn.Parameter(torch.ones(3)) if bias else None

    def forward(self, x):
        x = F.layer_norm(x, (3,), self.weight, self.bias, 1e-5)
        return F.group_norm(x, 1, weight=self.weight, bias=self.bias)

def main(x):
    return Norm(True, True)(x), Norm(True, False)(x), Norm(False, False)(x)
"""
CONV = """
class Conv(nn.Module):
    def __init__(self, bias=False):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2, 1, 2))
        self.bias = nn.Parameter(torch.ones(2)) if bias else None

    def forward(self, x):
        return F.conv1d(x[:, None], self.weight, self.bias)

def main(x):
    return Conv()(x), Conv(True)(x)
"""
RUNNING = """
class Norm(nn.Module):
    def __init__(self, affine):
        super().__init__()
        self.weight = nn.Parameter(torch.arange(3.0)) if affine else None
        self.register_buffer("running_mean", torch.ones(3))
        self.register_buffer("running_var", torch.full((3,), 2.0))

    def forward(self, x):
        return F.batch_norm(x, self.running_mean, self.running_var, self.weight, None, False)

def main(x):
    return Norm(True)(x), Norm(False)(x)
"""
OWN = """
def scaled(x, scale):
    return x if scale is None else x * scale

class Own(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = nn.Parameter(torch.full((3,), 2.0)) if scale else None

    def forward(self, x):
        return scaled(x, self.scale)

def main(x):
    return Own(True)(x), Own(False)(x)
"""


@pytest.mark.parametrize("program", [LINEAR, SUBCLASS, LOCAL, NORM, CONV, RUNNING, OWN])
def test_none_stays_none(program: str) -> None:
    result = run_both(HEAD + program, "main", np.arange(6.0, dtype=np.float32).reshape(2, 3))
    assert result.same and not result.left, (result.error, result.outcome.after)


def test_what_is_always_there_stays_an_operator() -> None:
    source = f"""{HEAD}
class Held(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x):
        return F.linear(x, self.fc.weight, self.fc.bias)

def main(x):
    return Held()(x).shape
"""
    result = run_both(source, "main", np.ones((2, 3), np.float32))
    assert result.same and "x @ self.fc.weight[...].T + self.fc.bias[...]" in result.outcome.after
