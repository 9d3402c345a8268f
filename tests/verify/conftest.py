"""One torch recording of the six golden modules, shared by every test that compares something with it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from jaxmigrate.verify import Case, VerifyOptions, parse_case
from jaxmigrate.verify.record import Recording
from jaxmigrate.verify.run import run_original

MODULES = Path(__file__).parents[1] / "golden" / "modules"
EXAMPLES = {
    "01_mlp": "MLP(6, 8, 3)(f32[8, 3, 2])",
    "02_resnet": "ResNet(BasicBlock, [1, 1], width=4)(f32[2, 3, 24, 24])",
    "03_gpt": "GPT(GPTConfig(n_layer=1, n_embd=16))(i64[2, 12] < 65, targets=-1 <= i64[2, 12] < 5)",
    "04_lstm": "LSTMClassifier(20, 8, 6, 4)(i64[4, 9] < 6)",
    "05_unet": "UNet(features=(8,))(f32[2, 3, 9, 7])",
    "06_vit": "VisionTransformer(depth=2, embed_dim=16)(f32[2, 3, 32, 32])",
}


@dataclass(frozen=True)
class Golden:
    """The recorded originals: case, recording and the folder it lies in, by the module's name."""

    cases: dict[str, Case]
    recordings: dict[str, Recording]
    folders: dict[str, Path]
    options: VerifyOptions


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Golden:
    scratch = tmp_path_factory.mktemp("golden")
    options = VerifyOptions(precisions=())
    cases = {name: parse_case(text) for name, text in EXAMPLES.items()}
    recordings = run_original([(MODULES / n / "torch_in.py", c) for n, c in cases.items()], options, scratch)
    folders = {name: scratch / str(i) for i, name in enumerate(cases)}
    return Golden(cases, dict(zip(cases, recordings, strict=True)), folders, options)
