"""The second dialect, `--layers nnx`: which layers become Flax's own, how they are written, and that numbers agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import measure
import numpy as np
import pytest
import torch
from converted import Converted, convert, under_jax, under_torch
from flax import nnx
from judged import verified
from torch import nn

from jaxmigrate.cli import main
from jaxmigrate.config import Settings
from jaxmigrate.layers.library import native

FLAX = Settings(layers="nnx")
HEAD = "import torch\nimport torch.nn as nn\nfrom functools import partial\n\n\n"
TOLERANCE = {"rtol": 2e-5, "atol": 2e-5}


def module(built: str, used: str = "return x", outside: str = "") -> str:
    init = f"    def __init__(self, n: int, m: int = 4):\n        super().__init__()\n        {built}\n\n"
    return f"{HEAD}{outside}\n\nclass Net(nn.Module):\n{init}    def forward(self, x):\n        {used}\n"


CONSTRUCTIONS = {
    "nn.Linear(n, 4)": "nnx.Linear(n, 4, kernel_init=torch_uniform(n), bias_init=torch_uniform(n), rngs=rngs)",
    "nn.Linear(n, 4, False)": "nnx.Linear(n, 4, use_bias=False, kernel_init=torch_uniform(n), rngs=rngs)",
    "nn.Linear(out_features=4, in_features=2 * n, bias=n > 1)": (
        "nnx.Linear(out_features=4, in_features=2 * n, use_bias=n > 1, kernel_init=torch_uniform(2 * n), "
        "bias_init=torch_uniform(2 * n), rngs=rngs)"
    ),
    "nn.Linear(n, 4, device='cpu')": (
        "nnx.Linear(n, 4, kernel_init=torch_uniform(n), bias_init=torch_uniform(n), rngs=rngs)"
    ),
    "nn.Linear(max(n, 3), 4)": "Linear(max(n, 3), 4, rngs=rngs)",
    "nn.Linear(*[n, 4])": "Linear(*[n, 4], rngs=rngs)",
    "nn.Embedding(9, n)": "nnx.Embed(9, n, embedding_init=nnx.initializers.normal(1.0), rngs=rngs)",
    "nn.Embedding(9, embedding_dim=n)": (
        "nnx.Embed(9, features=n, embedding_init=nnx.initializers.normal(1.0), rngs=rngs)"
    ),
    "nn.LayerNorm(n)": "nnx.LayerNorm(n, epsilon=1e-5, use_fast_variance=False, rngs=rngs)",
    "nn.LayerNorm(n, 1e-6)": "nnx.LayerNorm(n, epsilon=1e-6, use_fast_variance=False, rngs=rngs)",
    "nn.LayerNorm(normalized_shape=n, eps=1e-3, bias=False)": (
        "nnx.LayerNorm(num_features=n, epsilon=1e-3, use_bias=False, use_fast_variance=False, rngs=rngs)"
    ),
    "nn.LayerNorm(n, 1e-6, True)": "nnx.LayerNorm(n, epsilon=1e-6, use_fast_variance=False, rngs=rngs)",
    "nn.LayerNorm(n, elementwise_affine=False)": "LayerNorm(n, elementwise_affine=False, rngs=rngs)",
    "nn.RMSNorm(n, eps=1e-6)": "nnx.RMSNorm(n, epsilon=1e-6, rngs=rngs)",
    "nn.RMSNorm(n, 1e-6, elementwise_affine=False)": "nnx.RMSNorm(n, epsilon=1e-6, use_scale=False, rngs=rngs)",
    "nn.GroupNorm(2, n)": "GroupNorm(2, n, rngs=rngs)",
    "nn.Conv2d(n, 4, 3, padding=1)": "Conv2d(n, 4, 3, padding=1, rngs=rngs)",
}


@pytest.mark.parametrize("torch_text", CONSTRUCTIONS)
def test_a_construction_as_text(torch_text: str, tmp_path: Path) -> None:
    made = convert(module(f"self.layer = {torch_text}"), settings=FLAX)
    assert f"self.layer = {CONSTRUCTIONS[torch_text]}\n" in made.text
    assert not made.left
    built = under_jax(made, tmp_path).Net(4, rngs=nnx.Rngs(0))
    theirs = under_torch(module(f"self.layer = {torch_text}")).Net(4)
    given = {k: v.detach().numpy() for k, v in theirs.state_dict().items()}
    functions = _functions(tmp_path, made)
    functions["load_state_dict"](built, given)
    x = torch.ones(2, 4, 3, 3) if "Conv" in torch_text else torch.ones(2, 4)
    x = torch.tensor([[1, 2]]) if "Embedding" in torch_text else x
    x = torch.ones(2, 8) if "2 * n" in torch_text else x
    theirs.eval(), built.eval()
    np.testing.assert_allclose(built.layer(jnp.asarray(x.numpy())), theirs.layer(x).detach(), **TOLERANCE)


def _functions(folder: Path, made: Converted) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "layers"}
    exec(compile(made.layers, str(folder / "nnx_layers.py"), "exec"), names)
    return names


def test_a_multiline_call_keeps_its_layout_and_comments() -> None:
    text = module("self.layer = nn.Linear(\n            n,  # in\n            4,\n        )")
    made = convert(text, settings=FLAX).text
    assert "nnx.Linear(\n            n,  # in\n            4,\n            kernel_init=torch_uniform(n)," in made
    assert "            rngs=rngs,\n        )" in made


STAYING = {
    "functional use": ("self.fc = nn.Linear(n, 4)", "return x @ self.fc.weight", "", "Linear", "self.fc.weight"),
    "tying": (
        "self.e, self.fc = nn.Embedding(n, m), nn.Linear(m, n)\n        self.fc.weight = self.e.weight",
        "return x", "", "Embedding", "self.e.weight",
    ),
    "an owner that nothing shows": (
        "self.fc = nn.Linear(n, 4)", "return x", "def scale(layer):\n    layer.weight *= 2\n", "Linear", "layer.weight",
    ),
    "by name": ("self.fc = nn.Linear(n, 4)", "return getattr(self.fc, 'weight')", "", "Linear", "getattr"),
    "a subclass": (
        "self.fc = Mine(n, 4)", "return self.fc(x)", "class Mine(nn.Linear):\n    pass\n", "Linear", "Mine extends it",
    ),
    "a layer built of it": (
        "self.l, self.fc = nn.TransformerEncoderLayer(n, 1), nn.Linear(n, 4)", "return x", "", "Linear", "built of it",
    ),
    "padding_idx": ("self.e = nn.Embedding(9, n, padding_idx=0)", "return x", "", "Embedding", "padding_idx is given"),
    "several dimensions": ("self.n = nn.LayerNorm((n, m))", "return x", "", "LayerNorm", "several dimensions"),
    "eps of the type": ("self.n = nn.RMSNorm(n)", "return x", "", "RMSNorm", "eps depends"),
    "groups": ("self.c = nn.ConvTranspose2d(4, 4, 2, groups=2)", "return x", "", "ConvTranspose2d", "groups"),
    "output_size": (
        "self.c = nn.ConvTranspose2d(n, 4, 2)", "return self.c(x, output_size=(3, 3))", "", "ConvTranspose2d",
        "output_size",
    ),
    "its attributes": ("self.c = nn.Conv2d(n, 4, 3)", "return self.c.stride", "", "Conv2d", "self.c.stride"),
    "initialised by shape": (
        "self.c = nn.Conv2d(n, 4, 3)\n        for p in self.parameters():\n            nn.init.xavier_uniform_(p)",
        "return x", "", "Conv2d", "order of axes",
    ),
    "weight norm": (
        "self.c = nn.utils.parametrizations.weight_norm(nn.Linear(n, 4))", "return x", "", "Linear", "by name or order",
    ),
    "batch norm": ("self.b = nn.BatchNorm1d(n)", "return x", "", "BatchNorm1d", "running variance is the biased"),
}  # fmt: skip


@pytest.mark.parametrize("case", STAYING)
def test_what_stays_torchs_and_why(case: str) -> None:
    built, used, outside, name, reason = STAYING[case]
    made = convert(module(built, used, outside), settings=FLAX)
    if case != "a subclass":
        (message,) = [
            f.message for f in made.findings if f.name == f"torch.nn.{name}" and "not Flax's own" in f.message
        ]
        assert reason in message
    assert f"class {name}(nnx.Linear)" not in made.layers and f"nnx.{name}(" not in made.text


NET = """
import torch
import torch.nn as nn
import torch.nn.functional as F
from functools import partial


class Block(nn.Module):
    def __init__(self, dim, hidden=None, norm_layer=nn.LayerNorm):
        super().__init__()
        self.norm = norm_layer(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, hidden or dim), nn.GELU(), nn.Linear(hidden or dim, dim, bias=False))

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class Net(nn.Module):
    def __init__(self, classes: int, dim: int = 16):
        super().__init__()
        self.conv = nn.Conv2d(3, dim, 3, stride=2, padding=1)
        self.gn = nn.GroupNorm(4, dim)
        self.bn = nn.BatchNorm2d(dim)
        self.up = nn.ConvTranspose2d(dim, dim, 2, stride=2)
        self.emb = nn.Embedding(num_embeddings=7, embedding_dim=dim)
        self.blocks = nn.ModuleList([Block(dim, 32, norm_layer=partial(nn.LayerNorm, eps=1e-6)) for _ in range(2)])
        self.norm = nn.LayerNorm(dim)
        self.rms = nn.RMSNorm(dim, eps=1e-6)
        self.head = nn.Linear(dim, classes)
        self.apply(self._init)

    def _init(self, m):
        if isinstance(m, nn.Linear):
            nn.init.xavier_uniform_(m.weight)
            if m.bias is not None:
                nn.init.constant_(m.bias, 0.5)
        elif isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(m, nn.LayerNorm):
            nn.init.constant_(m.weight, 2.0)
        elif isinstance(m, nn.Embedding):
            nn.init.normal_(m.weight, std=0.02)

    def forward(self, x, ids):
        x = F.relu(self.bn(self.gn(self.conv(x))))
        x = self.up(x).flatten(2).mean(2)
        x = x[:, None] + self.emb(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.rms(self.norm(x)))
"""


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_a_network_gives_torchs_numbers(mode: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    theirs = under_torch(NET).Net(5)
    made = convert(NET, settings=FLAX)
    assert not made.left
    ours = under_jax(made, tmp_path).Net(5, rngs=nnx.Rngs(0))
    layers = _functions(tmp_path, made)
    layers["load_state_dict"](ours, {k: v.detach().numpy() for k, v in theirs.state_dict().items()})
    getattr(theirs, mode)(), getattr(ours, mode)()
    x, ids = torch.randn(2, 3, 8, 8), torch.tensor([[0, 6, 3], [2, 2, 5]])
    out = theirs(x, ids)
    (out * torch.cos(torch.arange(out.numel()).reshape(out.shape))).sum().backward()
    weight = jnp.cos(jnp.arange(out.numel()).reshape(out.shape))

    def loss(model: Any) -> tuple[jax.Array, jax.Array]:
        y = model(jnp.asarray(x.numpy()), jnp.asarray(ids.numpy()))
        return (y * weight).sum(), y

    gradients, y = nnx.jit(nnx.grad(loss, has_aux=True))(ours)
    np.testing.assert_allclose(y, out.detach(), **TOLERANCE)
    state = native.state_dict(ours)
    for name, value in theirs.state_dict().items():
        np.testing.assert_allclose(state[name], value, **TOLERANCE)
    named = dict(layers["named_variables"](ours))
    by_path = {p: g[...] for p, g in nnx.to_flat_state(gradients)}
    assert len(by_path) == len(list(theirs.parameters()))
    axes = layers["torch_axes"](ours)
    for name, parameter in theirs.named_parameters():
        path = next(path for path, node in nnx.iter_graph(ours) if node is named[name])
        gradient = by_path[path].transpose(axes.get(name, range(parameter.ndim)))
        np.testing.assert_allclose(gradient, parameter.grad, rtol=2e-4, atol=2e-5, err_msg=name)


def test_initial_values_are_torchs(tmp_path: Path) -> None:
    """The initialisers of the program, which go by fans, and the layers' own."""
    torch.manual_seed(0)
    wide = NET.replace("dim: int = 16", "dim: int = 64")
    theirs = under_torch(wide).Net(50).state_dict()
    made = convert(wide, settings=FLAX)
    ours = native.state_dict(under_jax(made, tmp_path).Net(50, rngs=nnx.Rngs(0)))
    for name, value in theirs.items():
        if value.dtype != torch.float32:
            continue
        if value.numel() > 1000:
            assert np.std(ours[name]) == pytest.approx(value.std().item(), rel=0.06), name
            assert np.abs(ours[name]).max() == pytest.approx(value.abs().max().item(), rel=0.25), name
        elif value.std() == 0:
            np.testing.assert_array_equal(ours[name], value)
        else:
            assert np.std(ours[name]) == pytest.approx(value.std().item(), rel=0.25), name


LAYERS = {
    "Conv1d": [{"kernel_size": 3, "padding": 1}],
    "Conv2d": [
        {"kernel_size": (2, 3), "stride": 2, "padding": 1},
        {"kernel_size": (2, 3), "padding": "same", "dilation": 2},
        {"kernel_size": 3, "groups": 2, "bias": False, "padding": "valid"},
        {"kernel_size": 3, "padding": 1, "padding_mode": "reflect"},
        {"kernel_size": 3, "padding": (1, 2), "padding_mode": "circular", "stride": (1, 2)},
    ],
    "Conv3d": [{"kernel_size": 2}],
    "ConvTranspose1d": [{"kernel_size": 3, "stride": 2}],
    "ConvTranspose2d": [
        {"kernel_size": (2, 3), "stride": 2, "padding": 1, "output_padding": 1},
        {"kernel_size": (2, 3), "stride": 3, "padding": (0, 1), "dilation": (1, 2), "bias": False},
    ],
    "ConvTranspose3d": [{"kernel_size": 2, "stride": 2}],
}


@pytest.mark.parametrize(("name", "options"), [(n, o) for n, many in LAYERS.items() for o in many])
@pytest.mark.parametrize("batch", [(2,), ()])
def test_convolutions(name: str, options: dict[str, Any], batch: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    theirs = getattr(nn, name)(4, 6, **options)
    ours = getattr(native, name)(4, 6, **options, rngs=nnx.Rngs(0))
    x = torch.randn(*batch, 4, *(7, 6, 5)[: int(name[-2])])
    given = {k: v.numpy() for k, v in theirs.state_dict().items()}
    native.load_state_dict(ours, given)
    np.testing.assert_allclose(ours(jnp.asarray(x.numpy())), theirs(x).detach(), **TOLERANCE)
    back = native.state_dict(ours)
    assert all(np.array_equal(back[k], v) for k, v in given.items())


def test_norms_far_from_zero() -> None:
    x = torch.randn(3, 4, 5) * 1e-1 + 1000
    for theirs, ours in (
        (nn.LayerNorm(5), native.LayerNorm(5, rngs=nnx.Rngs(0))),
        (nn.GroupNorm(2, 4), native.GroupNorm(2, 4, rngs=nnx.Rngs(0))),
    ):
        expected = theirs.double()(x.double()).detach()
        np.testing.assert_allclose(ours(jnp.asarray(x.numpy())), expected, rtol=1e-2, atol=1e-2)


def test_the_command_line_and_a_layer_file_of_the_other_dialect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(NET)
    assert main(["convert", "net.py", "-o", "out/", "--layers", "nnx"]) == 0
    assert "nnx.Linear(" in Path("out/net.py").read_text()
    assert main(["convert", "net.py", "-o", "out/"]) == 2
    assert "other dialect" in capfd.readouterr().err
    assert main(["convert", "net.py", "-o", "out/", "--layers", "nnx"]) == 0
    Path("pyproject.toml").write_text('[tool.jaxmigrate]\nlayers = "nnx"\n')
    assert main(["convert", "net.py", "-o", "new/"]) == 0
    assert Path("new/net.py").read_text() == Path("out/net.py").read_text()
    model = "new/net.py:Net(5)"
    theirs = under_torch(NET).Net(5).state_dict()
    torch.save(theirs, "in.pt")
    assert main(["weights", "in.pt", "--model", model, "-o", "w.npz"]) == 0
    with np.load("w.npz") as file:
        np.testing.assert_array_equal(file["head.kernel"], theirs["head.weight"].numpy().T)
        assert "blocks.0.norm.scale" in file.files and "bn.weight" in file.files
    assert main(["weights", "w.npz", "--model", model, "--invert", "-o", "out.pt"]) == 0
    back = torch.load("out.pt", weights_only=True)
    assert back.keys() == theirs.keys() and all(torch.equal(back[k], v) for k, v in theirs.items())


def test_a_golden_module_is_verified_in_this_dialect(tmp_path: Path) -> None:
    source = Path(__file__).parent / "golden" / "modules" / "01_mlp" / "torch_in.py"
    converted = measure.convert(source, tmp_path / "torch_in.py", tmp_path / "report.json", "nnx")
    assert "nnx.Linear(" in converted.output.read_text(encoding="utf-8")
    found = verified("01_mlp", source, converted, ["MLP(12, 16, 5)(f32[8, 3, 4])"])
    assert found.verdict == "equal", found
