"""What shows that a value is a tensor: methods that no other common type has, and keywords that only torch has."""

from __future__ import annotations

import collections
import datetime
import io
import logging
import pathlib
import random
import re

import numpy as np
import pytest
import torch

from jaxmigrate.project import convert_files
from jaxmigrate.read.source import Source
from jaxmigrate.read.tensor_only import TENSOR_ONLY
from jaxmigrate.rulebook.load import load_rules

OTHERS = [
    np.ndarray, np.float32, np.random.Generator, np.random.RandomState, np.ma.MaskedArray, str, bytes, list, dict,
    set, tuple, int, float, complex, range, collections.deque, collections.Counter, io.StringIO, io.BytesIO,
    pathlib.Path, re.Pattern, logging.Logger, datetime.datetime, random.Random, torch.nn.Module,
    torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ModuleDict, torch.optim.SGD, torch.optim.lr_scheduler.StepLR,
    torch.Generator, torch.utils.data.DataLoader, torch.device,
]  # fmt: skip
# Names of pandas objects and matplotlib axes, which are not installed here.
PANDAS = {
    "eq",
    "ne",
    "gt",
    "ge",
    "lt",
    "le",
    "add",
    "sub",
    "mul",
    "div",
    "mean",
    "sum",
    "clip",
    "where",
    "diff",
    "scatter",
}
TOLD_APART = {"detach", "log"}  # no one detaches a file in torch code; a logger's `log` takes arguments


def test_all_are_methods_of_tensors() -> None:
    assert {n for n in TENSOR_ONLY if not callable(getattr(torch.Tensor, n, None))} == set()


def test_no_other_type_has_them() -> None:
    shared = {n for n in TENSOR_ONLY for cls in OTHERS if hasattr(cls, n)} | TENSOR_ONLY & PANDAS
    assert shared == TOLD_APART


def test_every_writing_method_is_there() -> None:
    """In-place methods are missed silently otherwise: they are rarely the only use of a name."""
    writing = {
        n for n in dir(torch.Tensor) if n.endswith("_") and not n.startswith("_") and callable(getattr(torch.Tensor, n))
    }
    assert {n for n in writing - TENSOR_ONLY if not hasattr(torch.nn.Module, n)} == set()


@pytest.mark.parametrize(
    ("expression", "is_tensor"),
    [
        ("x.cos()", True),
        ("x.sum(dim=1)", True),
        ("x.div(2, rounding_mode='floor')", True),
        ("x.sum(1)", False),
        ("x.mean(axis=1)", False),
        ("x.mean(dim='time')", False),  # xarray
        ("x.matmul(a, b)", False),  # a module that has the function
        ("x.log('loss', 1)", False),  # a logger
        ("x.scatter(a, b)", False),  # axes of a plot
    ],
)
def test_evidence(expression: str, is_tensor: bool) -> None:
    """A tensor's `abs` is converted; that of something unknown is reported."""
    text = f"import torch\n\n\ndef f(x, a, b):\n    y = {expression}\n    return y, x.abs()\n"
    outcome = convert_files([Source("a.py", text)], load_rules()).outcomes[0]
    assert ("jnp.abs(x)" in outcome.after) is is_tensor, outcome.after
