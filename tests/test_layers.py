"""The layer library as a whole: its catalogue, its signatures, and the files that are cut from it."""

from __future__ import annotations

import ast
import inspect
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch.nn.functional as F
from torch import nn

from jaxmigrate.layers import Layer, catalogue, cut, emit

NAMES = sorted(catalogue())
SUBSETS = [random.Random(i).sample(NAMES, 3 + 4 * i) for i in range(12)]
# Arguments of torch that say nothing about numbers, or that are refused or dropped where they are given.
ABSENT = {
    "device", "dtype", "inplace", "_stacklevel", "out", "size_average", "reduce", "_weight", "_freeze",
    "sparse", "scale_grad_by_freq", "device_ids", "output_device", "enable_nested_tensor", "mask_check",
    "min_value", "max_value",
}  # fmt: skip
ONE_VALUE = ("ConvTranspose", "padding_mode")  # torch accepts "zeros" only
NOT_TORCH = {"key", "dropout_key"}  # what JAX needs besides
COMMON = "bias=True, batch_first=False, dropout=0.0, bidirectional=False"
RECURRENT = {  # torch has no signature for these
    "RNN": f"input_size, hidden_size, num_layers=1, nonlinearity='tanh', {COMMON}",
    "LSTM": f"input_size, hidden_size, num_layers=1, {COMMON}, proj_size=0",
    "GRU": f"input_size, hidden_size, num_layers=1, {COMMON}",
}
LAYERS = [
    n
    for n in NAMES
    if inspect.isclass(getattr(nn, n, None)) and n not in (*RECURRENT, "Identity", "Sequential", "Buffer")
]
FUNCTIONS = [n for n in NAMES if hasattr(F, n) and n not in ("gumbel_softmax", "embedding")]


def run(code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True)


def ruff(*args: str) -> str:
    done = subprocess.run([sys.executable, "-m", "ruff", *args], capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_catalogue_describes_its_names() -> None:
    conv = catalogue()["Conv2d"]
    assert isinstance(conv, Layer) and conv.kind == "class" and conv.needs_rngs and conv.takes_rngs
    assert conv.params[:4] == ("in_channels", "out_channels", "kernel_size", "stride") and "rngs" not in conv.params
    assert conv.defaults["padding_mode"] == "'zeros'" and conv.defaults["stride"] == "1"
    norm = catalogue()["BatchNorm2d"]
    assert norm.takes_rngs and not norm.needs_rngs and norm.params[0] == "num_features"
    assert catalogue()["InstanceNorm2d"].defaults["affine"] == "False"
    assert catalogue()["NonPersistentBuffer"].kind == "variable"
    assert catalogue()["Sequential"].params == ("*layers",)
    loss = catalogue()["cross_entropy"]
    assert loss.kind == "function" and loss.params[:2] == ("input", "target") and not loss.takes_rngs
    assert catalogue()["dropout"].params == ("input", "key", "p", "training")
    assert not any(name.startswith("_") for name in catalogue())


def test_every_layer_takes_rngs_and_needs_them_only_for_random_numbers() -> None:
    for name in LAYERS:
        assert catalogue()[name].takes_rngs, name
    for name in ("ReLU", "LayerNorm", "MaxPool2d", "CrossEntropyLoss", "Flatten", "PReLU", "ModuleList", "Rearrange"):
        assert not catalogue()[name].needs_rngs, name
    for name in ("Linear", "Embedding", "Dropout", "LSTM", "MultiheadAttention", "RReLU", "Transformer"):
        assert catalogue()[name].needs_rngs, name


def theirs(name: str) -> list[inspect.Parameter]:
    if name in RECURRENT:
        return list(inspect.signature(eval(f"lambda {RECURRENT[name]}: 0")).parameters.values())
    target = getattr(nn, name).__init__ if hasattr(nn, name) else getattr(F, name)
    try:
        parameters = list(inspect.signature(target).parameters.values())
    except ValueError:  # a builtin function: its first lines of documentation hold the signature
        text = target.__doc__.replace("\n", " ")
        text = text[text.index("(") + 1 : text.index(")", text.index(", "))].replace("=()", "=None").split(")")[0]
        parameters = list(inspect.signature(eval(f"lambda {text}: 0")).parameters.values())
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):  # a function that dispatches on an argument
        target = getattr(F, f"{name}_with_indices", target)
        parameters = list(inspect.signature(target).parameters.values())
    return [p for p in parameters if p.name != "self" and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


@pytest.mark.parametrize("name", [*LAYERS, *RECURRENT, *FUNCTIONS])
def test_signatures_are_torchs(name: str) -> None:
    extra = NOT_TORCH - {p.name for p in theirs(name)}  # the keys of attention are torch's
    ours = [p for p in catalogue()[name].params if p not in extra]
    given = theirs(name)
    wanted = [p.name for p in given if (p.name not in ABSENT or p.name in ours) and (name[:13], p.name) != ONE_VALUE]
    if name in ("Transformer", "TransformerEncoderLayer", "TransformerDecoderLayer"):
        given = [p for p in given if p.name != "activation"]  # the function F.relu there, its name here
    assert ours == wanted
    for parameter in given:
        if parameter.name in wanted and parameter.default is not parameter.empty:
            text = catalogue()[name].defaults[parameter.name]
            assert eval(text, {"nnx": None}) == parameter.default or (text, parameter.default) in DEFAULTS, (
                parameter.name
            )


DEFAULTS = {("()", None), ("False", None), ("()", "")}  # empty containers; align_corners=None means False


def test_every_layer_of_torch_is_here() -> None:
    missing = {
        n for n, c in vars(nn).items()
        if inspect.isclass(c) and issubclass(c, nn.Module) and n not in catalogue() and not n.startswith("Lazy")
    }  # fmt: skip
    assert missing == {
        "Module", "Container", "RNNBase", "RNNCellBase", "SyncBatchNorm", "NLLLoss2d",
        "CrossMapLRN2d", "AdaptiveLogSoftmaxWithLoss",
        "LinearCrossEntropyLoss",
    }  # fmt: skip


def test_no_name_is_defined_twice() -> None:
    assert sum(len(m.definitions) for m in cut._modules().values()) == len(cut._definitions())


def test_nothing_gives_an_empty_file_and_an_unknown_name_is_an_error() -> None:
    assert emit([]) == ""
    with pytest.raises(KeyError):
        emit(["NoSuchLayer"])


def test_emitted_file_holds_what_is_needed_and_no_more() -> None:
    text = emit(["Dropout", "Linear"])
    defined = [node.name for node in ast.parse(text).body if hasattr(node, "name")]
    assert defined == ["_uniform", "_array", "linear", "Linear", "_keep", "_drop", "dropout", "_Dropout", "Dropout"]
    assert "import numpy" not in text and "import lax" not in text
    assert emit(["Linear", "Dropout", "Linear"]) == text
    assert "import math\n\nimport jax\n" in text
    assert ast.get_docstring(ast.parse(text))


def test_a_parameter_does_not_bring_in_a_function_of_its_name() -> None:
    assert "def threshold" not in emit(["Softplus"])
    assert "def pad(" not in emit(["pad_sequence"])


@pytest.fixture(scope="module")
def emitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One file for each single name and for each subset."""
    folder = tmp_path_factory.mktemp("emitted")
    for name in NAMES:
        (folder / f"one_{name}.py").write_text(emit([name]), encoding="utf-8")
    for i, names in enumerate([*SUBSETS, NAMES]):
        (folder / f"many_{i}.py").write_text(emit(names), encoding="utf-8")
    return folder


def test_emitted_files_have_no_undefined_and_no_unused_names(emitted: Path) -> None:
    assert ruff("check", "--isolated", "--select", "F,E4,E7,E9,I", "--line-length", "120", str(emitted)) == ""
    for path in emitted.glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert not [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.level]
        private = {
            n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name.startswith("_")
        }
        used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
        assert private <= used, path.name


def test_emitted_files_are_formatted(emitted: Path) -> None:
    assert ruff("format", "--isolated", "--check", "--line-length", "120", str(emitted)) == ""


BLOCKED = """
import sys
sys.modules["torch"] = None
import importlib, jax, jax.numpy as jnp
from flax import nnx
for name in {names!r}:
    importlib.import_module(name)
from many_12 import Linear, LSTM, Conv2d, state_dict
assert Linear(3, 2, rngs=nnx.Rngs(0))(jnp.ones((1, 3))).shape == (1, 2)
assert list(state_dict(Conv2d(1, 2, 3, rngs=nnx.Rngs(0)))) == ["weight", "bias"]
assert not [m for m in sys.modules if m.startswith("jaxmigrate")]
"""


def test_emitted_files_import_without_torch(emitted: Path) -> None:
    done = run(BLOCKED.format(names=[p.stem for p in sorted(emitted.glob("*.py"))]), emitted)
    assert done.returncode == 0, done.stderr


LIGHT = """
import sys
from jaxmigrate.layers import catalogue, emit
emit(catalogue())
heavy = {"torch", "jax", "flax", "numpy", "optax", "libcst", "einops"} & set(sys.modules)
assert not heavy, heavy
"""


def test_cutting_imports_nothing_heavy(tmp_path: Path) -> None:
    done = run(LIGHT, tmp_path)
    assert done.returncode == 0, done.stderr


def test_cutting_is_fast() -> None:
    usual = ["Conv2d", "BatchNorm2d", "Linear", "MaxPool2d", "Dropout", "cross_entropy", "load_state_dict"]
    emit(usual)

    def fastest(f, times: int = 5) -> float:
        spans = []
        for _ in range(times):
            start = time.process_time()
            f()
            spans.append(time.process_time() - start)
        return min(spans)

    def cold() -> None:
        for cached in (cut.catalogue, cut._modules, cut._definitions):
            cached.cache_clear()
        catalogue()

    assert fastest(lambda: emit(usual)) < 0.03
    assert fastest(cold) < 0.1
