"""What `--propose` finds to run: in corpus and golden modules without their own examples, and in small files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jaxmigrate.cli import main
from jaxmigrate.verify import VerifyOptions, cases_from_toml
from jaxmigrate.verify.propose import Proposed, cases_file, propose_all
from jaxmigrate.verify.roots import read_roots

from .slips import EXAMPLES, MODULES

CORPUS = Path(__file__).parents[2] / "corpus"
SMALL = """
import time
from dataclasses import dataclass
from typing import Literal, Optional
import torch
from torch import nn

@dataclass
class Sizes:
    rows: int
    width: int = 6
    bias: bool = True

class Configured(nn.Module):
    def __init__(self, sizes: Sizes, form: Literal["sum", "mean"], extra: Optional[int]):
        super().__init__()
        self.table = nn.Embedding(sizes.rows, sizes.width)
        self.head = nn.Linear(sizes.width, 3)
    def forward(self, idx, labels=None):
        y = self.head(self.table(idx))
        return y if labels is None else (y, nn.functional.cross_entropy(y.flatten(0, 1), labels.flatten()))

class Flattened(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1)
        self.fc = nn.Linear(4 * 11 * 11, 5)
    def forward(self, x):
        return self.fc(self.conv(x).flatten(1))

class Two(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
    def forward(self, query, key, scale: float):
        return self.fc(query) @ key.transpose(-1, -2) * scale

class Large(nn.Module):
    def __init__(self, d_model=4096, depth=8):
        super().__init__()
        self.body = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(depth))
    def forward(self, x):
        for layer in self.body:
            x = layer(x)
        return x

class Wrapped(nn.Module):
    def __init__(self, backbone):
        super().__init__()
        self.backbone = backbone
    def forward(self, x):
        return self.backbone(x)

class Inner(nn.Module):
    def __init__(self, dim, seq_len=12):
        super().__init__()
        self.rows = nn.Parameter(torch.ones(seq_len, dim))
        self.fc = nn.Linear(dim, dim)
    def forward(self, x):
        return self.fc(x) * self.rows

class Outer(nn.Module):
    def __init__(self, criterion):
        super().__init__()
        self.inner = Inner(8)
    def forward(self, x):
        return self.inner(x)

class Never(nn.Module):
    def forward(self, x):
        raise ValueError("not for arrays")

class Empty(nn.Module):
    pass

class Crash(nn.Module):
    def forward(self, x):
        import os
        os.abort()

class Last(nn.Module):
    def forward(self, x):
        return x + 1
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Proposed]]:
    """The proposals by file, all from one process."""
    folder = tmp_path_factory.mktemp("propose")
    originals = {p.stem: p for p in sorted(CORPUS.glob("*.py"))} | {n: MODULES / n / "torch_in.py" for n in EXAMPLES}
    texts = {name: re.sub(r"#\s*jaxmigrate: example.*", "", p.read_text()) for name, p in originals.items()}
    texts["small"] = SMALL
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
    sources = [(folder / f"{name}.py", text) for name, text in texts.items()]
    return dict(zip(texts, propose_all(sources, VerifyOptions(timeout=30, memory=2)), strict=True))


def shown(proposed: list[Proposed]) -> list[str]:
    return [f"{p.build}({', '.join(p.inputs)})" for p in proposed if p.build]


@pytest.mark.parametrize(
    ("name", "cases"),
    [
        ("01_mlp", ["MLP(in_dim=16, hidden=16, out_dim=5)(f32[4, 16])"]),
        ("02_resnet", ["ResNet(block=BasicBlock, layers=[1, 1])(f32[2, 3, 16, 12])"]),
        ("03_gpt", ["GPT(config=GPTConfig())(i64[2, 8] < 65)",
                    "GPT(config=GPTConfig())(i64[2, 8] < 65, targets=i64[2, 8] < 65)"]),
        ("04_lstm", ["LSTMClassifier(vocab_size=50, embed_dim=16, hidden_dim=16, num_classes=5)(i64[2, 8] < 50)"]),
        ("06_vit", ["VisionTransformer()(f32[2, 3, 32, 32])"]),
        ("mlp", ["MLP(12, 32, 5)(f32[4, 12])"]),
        ("mnist_train", ["Net()(f32[2, 1, 16, 16])"]),
        ("vae_train", ["VAE()(f32[4, 64])"]),
    ],
)  # fmt: skip
def test_known_programs(name: str, cases: list[str], found: dict[str, list[Proposed]]) -> None:
    assert shown(found[name]) == cases


def test_every_program_of_ours_has_a_proposal(found: dict[str, list[Proposed]]) -> None:
    assert len(found) == 17
    for name, proposed in found.items():
        if name != "small":
            assert all(p.build or p.reason.startswith("it is a part of ") for p in proposed), (name, proposed)
            assert shown(proposed)


def test_small_classes(found: dict[str, list[Proposed]]) -> None:
    by_name = {p.name: p for p in reversed(found["small"])}
    assert shown(found["small"]) == [
        "Configured(sizes=Sizes(rows=16), form='sum', extra=16)(i64[2, 8] < 16)",
        "Configured(sizes=Sizes(rows=16), form='sum', extra=16)(i64[2, 8] < 16, labels=i64[2, 8] < 3)",
        "Flattened()(f32[2, 2, 11, 11])",
        "Two(dim=16)(f32[4, 16], f32[4, 16], 0.5)",
        "Large(d_model=64, depth=2)(f32[4, 64])",
        "Last()(f32[4, 8])",
        "Inner(8)(f32[2, 12, 8])",
    ]
    reasons = {name: p.reason for name, p in by_name.items() if p.reason}
    assert reasons["Wrapped"] == "its constructor needs `backbone`, which cannot be guessed"
    assert "ValueError: not for arrays" in reasons["Never"] and "none of" in reasons["Never"]
    assert reasons["Empty"] == "it has no forward"
    assert "SIGABRT" in reasons["Crash"]
    assert set(reasons) == {"Wrapped", "Outer", "Never", "Empty", "Crash"}
    assert "made smaller, to be quick: d_model 4096 to 64, depth 8 to 2" in by_name["Large"].found[0]
    assert by_name["Flattened"].found[1].endswith("in_channels=2; sides that make a later layer fit")


def test_the_file_is_one_that_verify_reads(found: dict[str, list[Proposed]], tmp_path: Path) -> None:
    original, target = tmp_path / "src" / "small.py", tmp_path / "cases.toml"
    original.parent.mkdir()
    original.write_text(SMALL)
    text = cases_file(original, target, found["small"])
    target.write_text(text)
    assert [c.text for c in cases_from_toml(target, original)] == shown(found["small"])
    assert cases_from_toml(target, tmp_path / "another.py") == []
    assert "# idx: whole numbers below the 16 rows of the table that they are looked up in\n" in text
    assert "\n# Not proposed:\n#   Wrapped: its constructor needs `backbone`" in text


def test_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "functions.py", tmp_path / "cases.toml"
    source.write_text("import torch\ndef fn(x):\n    return x + 1\n")
    assert main(["verify", str(source), "--propose", str(target)]) == 2
    assert "no class of it is a module" in capsys.readouterr().err
    target.write_text("# mine\n")
    assert main(["verify", str(source), "--propose", str(target)]) == 2
    assert "it exists" in capsys.readouterr().err
    assert target.read_text() == "# mine\n"


def test_roots() -> None:
    text = """
class Part(nn.Module): pass
class Base(nn.Module): pass
def make(): return Part()
class Net(Base):
    def __init__(self, block, n): self.part = make()
class Block(nn.Module): pass
class Data(Dataset): pass
size = 4
def main():
    width = 3
    Net(Block, n=width)
    Net(Block, size)
    Net(open(size), 1)
"""
    roots = read_roots(text)
    assert roots.classes == ("Net",)
    assert roots.parts == {"Part": ("Net",), "Base": ("Net",), "Block": ("Net",)}
    assert [b.text for b in roots.built["Net"]] == ["Net(Block, n=3)", "Net(Block, 4)"]
