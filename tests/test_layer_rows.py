"""The layer rows against torch's classes and against the layer library."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

import pytest
import torch
from converted import convert

from jaxmigrate.layers import catalogue
from jaxmigrate.rulebook.load import load_rules
from jaxmigrate.rulebook.rows import Row

ROWS: Mapping[str, Row] = {row.name: row for row in load_rules()}
LAYERS = [
    row for row in ROWS.values() if row.get("layer") and row.name.startswith("torch.nn.") and row.short[0].isupper()
]

# How to build the layers that have parameters of their own.
BUILD = {
    "Linear": "2, 3",
    "Bilinear": "2, 3, 4",
    "PReLU": "",
    "Embedding": "5, 4",
    "EmbeddingBag": "5, 4",
    "LayerNorm": "4",
    "RMSNorm": "4",
    "GroupNorm": "2, 4",
    **{f"{kind}{n}d": "2, 4, 3" for kind in ("Conv", "ConvTranspose") for n in (1, 2, 3)},
    **{f"BatchNorm{n}d": "4" for n in (1, 2, 3)},
    **{f"InstanceNorm{n}d": "4, affine=True, track_running_stats=True" for n in (1, 2, 3)},
    **{kind + cell: "2, 3" for kind in ("RNN", "LSTM", "GRU") for cell in ("", "Cell")},
}


def test_every_class_of_torch_nn_has_a_row() -> None:
    classes = {n for n, c in vars(torch.nn).items() if inspect.isclass(c) and issubclass(c, torch.nn.Module)}
    assert {n for n in classes if f"torch.nn.{n}" not in ROWS} == set()


@pytest.mark.parametrize("row", LAYERS, ids=lambda r: r.short)
def test_signature_is_complete(row: Row) -> None:
    """Each argument of torch's class is one of the library's, or dropped or refused with a reason."""
    layer = catalogue()[row.get("layer")]
    assert row.signature is not None
    known = {p.lstrip("*") for p in layer.params} | set(row.drop) | set(row.refuse)
    assert [p.name for p in row.signature.params if p.name not in known] == []


@pytest.mark.parametrize("name", BUILD)
def test_own_variables(name: str) -> None:
    """`params` and `buffers` are what torch's layer has."""
    row, layer = ROWS[f"torch.nn.{name}"], eval(f"torch.nn.{name}({BUILD[name]})", {"torch": torch})
    assert row.get("params", []) == [n for n, _ in layer.named_parameters(recurse=False)]
    assert row.get("buffers", []) == [n for n, _ in layer.named_buffers(recurse=False)]


@pytest.mark.parametrize(
    "row", [r for r in ROWS.values() if r.name.startswith(("torch.nn.", "torch.utils.data."))], ids=lambda r: r.name
)
def test_library_has_what_the_templates_call(row: Row) -> None:
    names = {n for o in row.options for n in o.template.free_names} | {row.get("layer", "")}
    foreign = {"jnp", "jax", "lax", "np", "optax", "nnx", "int", "len", ""}
    assert names - foreign - set(catalogue()) == set()


def test_options_that_the_library_lacks_may_not_hide_in_stars() -> None:
    """`nn.ReLU(**options)` may be given `inplace`, which the library lacks: it goes; `nn.Linear` lacks nothing."""
    source = "import torch.nn as nn\n\n\ndef f(**options):\n    return nn.{}(**options)\n"
    made = convert(source.format("ReLU"))
    assert "JM207" not in made.codes() and 'ReLU(**{k: v for k, v in options.items() if k != "inplace"})' in made.text
    assert "JM207" not in convert(source.format("Linear")).codes()


def test_starred_positions_mean_the_same() -> None:
    """`nn.CrossEntropyLoss(*args)`: the second of torch's arguments is not the library's second."""
    source = "import torch.nn as nn\n\n\ndef f(args):\n    return nn.{}(*args)\n"
    assert "JM207" in convert(source.format("CrossEntropyLoss")).codes()
    assert "JM207" not in convert(source.format("BatchNorm2d")).codes()
