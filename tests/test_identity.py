"""Questions for the type of a value: the same answer as in torch, or a finding."""

from __future__ import annotations

import pytest
from runner import run_both

EQUAL = {
    "type is": "x = torch.ones(2)\nreturn type(x) is torch.Tensor, type([1]) == torch.Tensor",
    "type is not": "x = torch.ones(2)\nreturn not type(x) != torch.Tensor, type(x) is not torch.Tensor",
    "class": "x = torch.ones(2)\nreturn x.__class__ == torch.Tensor",
    "dtype is": "x = torch.ones(2)\nreturn x.dtype is torch.float32, x.long().dtype is not torch.float32",
    "dtype is a parameter": "def f(a, dtype):\n    return a.dtype is dtype\nreturn f(torch.ones(2), torch.float32)",
    "dtype of floats": "x = torch.ones(2)\nreturn x.dtype.is_floating_point, x.long().dtype.is_floating_point",
    "dtype of complex numbers": "x = torch.ones(2)\nreturn x.dtype.is_complex, torch.complex(x, x).dtype.is_complex",
    "a parameter": "m = nn.Linear(2, 2)\nreturn isinstance(m.bias, torch.Tensor)",
    "a parameter or a number": "m = nn.Linear(2, 2)\nreturn isinstance(m.bias, (int, torch.Tensor))",
    "items of a state_dict": """sd = nn.Linear(2, 2).state_dict()
return [isinstance(v, torch.Tensor) for v in sd.values()], isinstance(sd["bias"], torch.Tensor)""",
    "a parameter on one path": """class M(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2)) if k else 1.0
    def forward(self, x):
        return x + 1 if isinstance(self.scale, torch.Tensor) else x
return M(True)(torch.ones(2)), M(False)(torch.ones(2))""",
    "a layer": "m = nn.Linear(2, 2)\nreturn type(m) is nn.Linear, isinstance(m, nn.Module)",
    "no dtype": "x = torch.ones(2)\nreturn x.dtype is not None",
}
SAID = {
    "types in a tuple": ("x = torch.ones(2)\nreturn type(x) in (torch.Tensor, list)", "JM304"),
    "text of a dtype": ("x = torch.ones(2)\nreturn str(x.dtype) == 'torch.float32'", "JM101"),
    "a comment": ("x = torch.ones(2)\nreturn (type(x)  # a tensor\n    is torch.Tensor)", "JM204"),
    "dtypes as keys": ("x = torch.ones(2)\nreturn {torch.float32: 1, torch.int64: 2}[x.dtype]", "JM203"),
    "dtypes in a set": ("x = torch.ones(2)\nreturn x.dtype in {torch.float32}", "JM203"),
}


def program(body: str) -> str:
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return f"import torch\nfrom torch import nn\n\n\ndef main():\n{lines}\n"


@pytest.mark.parametrize("name", EQUAL)
def test_the_answer_is_the_same(name: str) -> None:
    both = run_both(program(EQUAL[name]))
    assert both.same and not both.left, both


@pytest.mark.parametrize("name", SAID)
def test_another_answer_is_said(name: str) -> None:
    body, code = SAID[name]
    both = run_both(program(body))
    assert not both.same and code in both.codes, both
