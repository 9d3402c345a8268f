"""Integers beyond 32 bits: torch computes them, JAX wraps around without x64. Each program that differs says so."""

from __future__ import annotations

import pytest
from runner import convert, run_both

GROWING = {
    "a sum of places": "return torch.arange(100000).sum().item()",
    "a product with a number": "ids = torch.tensor([70000, 80000])\nreturn (ids * 70000).tolist()",
    "a product of two": "a = torch.arange(70000)\nreturn (a * a).max().item()",
    "a power": "return (torch.arange(70000) ** 2)[-1].item()",
    "powers of two": "return (2 ** torch.arange(40)).tolist()",
    "a method": "return torch.tensor(3, dtype=torch.int64).pow(25).item()",
    "a running product": "return torch.arange(1, 16).cumprod(0)[-1].item()",
    "a product of matrices": "m = torch.arange(4).reshape(2, 2) * 10000\nm = m * 5\nreturn (m @ m).tolist()",
    "counts": "return (torch.bincount(torch.tensor([0, 1, 1])) * 2000000000).tolist()",
    "a generator": """
x, out = torch.tensor(12345), []
for _ in range(5):
    x = (1103515245 * x + 12345) % 1000003
    out.append(x.item())
return out
""",
    "elements": "return [(i * 1000000007).item() for i in torch.arange(4)]",
}
SAFE = {
    "a count of truths": "return (torch.arange(9.0) > 3).sum().item()",
    "a count of casts": "return (torch.arange(9.0) > 3).long().sum().item()",
    "a count of counts": "m = torch.arange(9.0).reshape(3, 3) > 3\nreturn m.sum(1).sum().item()",
    "floats": "return (torch.arange(0, 9, 0.5) * 70000).sum().item()",
    "floats of places": "return (torch.arange(9).float() * 70000).sum().item()",
    "a small multiple": "return (torch.arange(9) * 2 + 1).tolist()",
    "a mask": "x = torch.arange(9)\nreturn (x * (x > 3)).tolist()",
    "a quotient": "return (torch.arange(9) / 70000).sum().item()",
    "Python's own": "n = 70000 * 70000\nreturn n",
}


def program(body: str) -> str:
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    return f"import torch\n\n\ndef main():\n{lines}\n"


@pytest.mark.parametrize("name", GROWING)
def test_what_may_pass_32_bits_is_said(name: str) -> None:
    both = run_both(program(GROWING[name]))
    assert not both.left and not both.same
    (said,) = (f for f in both.outcome.findings if f.rule == "integer range")
    assert said.code == "JM111" and "wraps around" in said.message


@pytest.mark.parametrize("name", SAFE)
def test_what_stays_below_is_not(name: str) -> None:
    both = run_both(program(SAFE[name]))
    assert both.same
    assert all(f.rule != "integer range" for f in both.outcome.findings)


def test_it_is_said_once_a_file_and_not_where_64_bits_are_on() -> None:
    body = "a = torch.arange(70000)\nb = a * a\nreturn (b * 3 + a * a).sum().item()"
    both = run_both(program(body))
    (said,) = (f for f in both.outcome.findings if f.rule == "integer range")
    assert "in 1 more line of this file" in said.message
    wide = program("torch.set_default_dtype(torch.float64)\n" + body)
    assert all(f.rule != "integer range" for f in convert(wide)[0].findings)
