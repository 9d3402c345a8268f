"""Loaders, samplers and splits draw from the program's own key, in the order in which they are made."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from converted import convert, under_jax, under_torch

HEAD = """
import torch
from torch.utils.data import DataLoader, RandomSampler, SubsetRandomSampler, TensorDataset, random_split


def read(loader):
    return [int(i) for (batch,) in loader for i in batch]

"""
PROGRAM = (
    HEAD
    + """
def run(seed: int):
    torch.manual_seed(seed)
    data = TensorDataset(torch.arange(40))
    first = DataLoader(data, batch_size=8, shuffle=True)
    second = DataLoader(data, 8, True)
    sampled = DataLoader(data, 8, sampler=RandomSampler(data))
    some = DataLoader(data, 8, sampler=SubsetRandomSampler(list(range(20))))
    train, rest = random_split(data, [30, 10])
    plain = DataLoader(data, batch_size=8)
    return [read(d) for d in (first, first, second, sampled, some, DataLoader(train, 8), DataLoader(rest, 8), plain)]
"""
)
GENERATOR = (
    HEAD
    + """
def run(seed: int):
    torch.manual_seed(seed)
    data = TensorDataset(torch.arange(40))
    generator = torch.Generator().manual_seed(7)
    return [read(DataLoader(data, batch_size=8, shuffle=True, generator=generator))]
"""
)
FRESH = (
    HEAD
    + """
def run(seed: int):
    data = TensorDataset(torch.arange(40))
    train, rest = random_split(data, [30, 10], generator=torch.Generator().manual_seed(seed))
    noise = torch.rand(3, generator=torch.Generator().manual_seed(7)).tolist()
    loader = DataLoader(train, batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(1))
    return [read(loader), read(DataLoader(rest, 8)), noise]
"""
)
TRAINER = (
    HEAD
    + """
class Trainer:
    def __init__(self, data, **options):
        self.loader = DataLoader(data, **options)


def run(seed: int):
    torch.manual_seed(seed)
    data = TensorDataset(torch.arange(40))
    one = Trainer(data, batch_size=8, shuffle=True)
    two = Trainer(data, batch_size=8, shuffle=True)
    return [read(one.loader), read(two.loader)]
"""
)


def program(source: str, folder: Path) -> Any:
    converted = convert(source)
    assert converted.status == "changed" and not converted.left, converted.left
    return under_jax(converted, folder)


def test_orders_differ_between_loaders_passes_and_seeds(tmp_path: Path) -> None:
    theirs, ours = under_torch(PROGRAM).run(0), program(PROGRAM, tmp_path).run
    orders = ours(0)
    assert [sorted(o) for o in orders[:4]] == [list(range(40))] * 4 and orders[-1] == theirs[-1]
    assert [len(o) for o in orders] == [len(o) for o in theirs] and sorted(orders[4]) == list(range(20))
    assert sorted(orders[5] + orders[6]) == list(range(40)) and orders[5] != sorted(orders[5])
    assert len({tuple(o) for o in orders[:4]}) == 4
    assert ours(0) == orders
    other = ours(1)
    assert all(a != b for a, b in zip(orders[:-1], other[:-1], strict=True))


def test_a_generator_alone_decides(tmp_path: Path) -> None:
    theirs, ours = under_torch(GENERATOR).run, program(GENERATOR, tmp_path).run
    assert theirs(0) == theirs(1)
    assert ours(0) == ours(1) and ours(0) != [list(range(40))]


def test_a_generator_that_is_made_where_it_is_used(tmp_path: Path) -> None:
    theirs, ours = under_torch(FRESH).run, program(FRESH, tmp_path).run
    for run in (theirs, ours):
        first, other = run(0), run(1)
        assert run(0) == first and sorted(first[0] + first[1]) == list(range(40))
        assert other[:2] != first[:2] and other[2] == first[2]
    assert "def run(seed: int):" in convert(FRESH).text


def test_a_class_that_makes_a_loader_is_given_a_key(tmp_path: Path) -> None:
    first, second = program(TRAINER, tmp_path).run(0)
    assert sorted(first) == sorted(second) == list(range(40)) and first != second


@pytest.mark.parametrize(
    ("call", "draws"),
    [
        ("DataLoader(d, shuffle=True)", True),
        ("DataLoader(d, 4, True)", True),
        ("DataLoader(d, shuffle=flag)", True),
        ("DataLoader(d, **options)", True),
        ("DataLoader(d, shuffle=False)", False),
        ("DataLoader(d, 4)", False),
        ("DataLoader(d, shuffle=False, **options)", False),
    ],
)
def test_only_what_shuffles_is_given_a_key(call: str, draws: bool) -> None:
    text = convert(HEAD + f"torch.manual_seed(0)\n\n\ndef run(d, flag, options):\n    return {call}\n").text
    assert ("key=subkey" in text) is draws


def test_the_order_is_that_of_construction() -> None:
    text = convert(PROGRAM).text
    made = [line.split(" = ")[0].strip() for line in text.splitlines() if "key=subkey" in line]
    assert made == ["first", "second", "sampled", "some", "train, rest"]
    assert text.count("key, subkey = jax.random.split(key)") == 5
