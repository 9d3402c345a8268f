"""Arguments of a call run once each and in their order, or the call is left."""

from __future__ import annotations

import pytest
from runner import run_both

HEAD = """
import torch

def main():
    log = []
    def f(v):
        log.append(v)
        return torch.tensor(float(v))
    def g(v):
        log.append(v)
        return v
    r = {}
    return r, log
"""
KEPT = [
    "torch.add(f(1), f(2), alpha=3)",
    "torch.where(f(1) > 0, f(2), f(3))",
    "torch.sum(f(1).view(1, 1), g(0))",
    "torch.rsub(torch.tensor(1.0), f(2))",
    "torch.sub(f(3), torch.tensor(2.0).abs(), alpha=2)",
]
LEFT = [
    "torch.add(f(1), f(2), alpha=g(3))",
    "torch.rsub(f(1), f(2))",
    "torch.gather(torch.ones(2, 2), index=f(0).long().view(1, 1), dim=g(1))",
    "torch.addcmul(f(1), f(2), f(3), value=g(4))",
]


@pytest.mark.parametrize("call", KEPT)
def test_converted_calls_run_their_arguments_as_torch_does(call: str) -> None:
    both = run_both(HEAD.format(call).strip())
    assert both.same and not both.left, both


@pytest.mark.parametrize("call", LEFT)
def test_calls_whose_arguments_would_run_otherwise_are_left(call: str) -> None:
    both = run_both(HEAD.format(call).strip())
    assert [f.code for f in both.left] == ["JM203"]
    assert "another order" in both.left[0].message
