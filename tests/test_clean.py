"""Nothing is called converted that does not run: each program whose report leaves nothing imports and builds its models
in a process that has no torch. (`make cases`, `make golden` and `make wild` compare the numbers.)"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from jaxmigrate.project import convert_files
from jaxmigrate.read.source import Source
from jaxmigrate.report.findings import fate
from jaxmigrate.rulebook import load_rules

TESTS = Path(__file__).resolve().parent
BUILDS = {
    "01_mlp": "MLP(12, 16, 5, rngs=rngs)",
    "02_resnet": "ResNet(BasicBlock, [1, 1], width=4, rngs=rngs)",
    "03_gpt": "GPT(GPTConfig(n_layer=1), rngs=rngs)",
    "04_lstm": "LSTMClassifier(20, 8, 6, 4, rngs=rngs)",
    "05_unet": "UNet(features=(8,), rngs=rngs)",
    "06_vit": "VisionTransformer(depth=1, rngs=rngs)",
}
# Reads jobs as JSON, [[folder, module, expression], ...], and prints what failed in the same form.
RUNNER = """
import importlib, json, sys, traceback
for name in ("torch", "torchvision", "jaxmigrate"):
    sys.modules[name] = None
from flax import nnx
failed = {}
for folder, module, build in json.load(sys.stdin):
    sys.path.insert(0, folder)
    try:
        names = vars(importlib.import_module(module))
        if build:
            eval(build, {**names, "rngs": nnx.Rngs(0)})
    except Exception:
        failed[folder.rpartition("/")[2]] = traceback.format_exc().strip().splitlines()[-1]
    for name in [n for n, m in sys.modules.items() if (getattr(m, "__file__", None) or "").startswith(folder)]:
        del sys.modules[name]
    sys.path.remove(folder)
print(json.dumps(failed))
"""


def programs() -> dict[str, tuple[str, str]]:
    """Source and build expression ("" where there is nothing to build) of each program, by its name."""
    golden = TESTS / "golden"
    found = {f"modules-{n}": (_text(golden / "modules" / n / "torch_in.py"), b) for n, b in BUILDS.items()}
    for path in sorted((golden / "training").glob("*/torch_in.py")):
        found[f"training-{path.parent.name}"] = (_text(path), "")
    for path in sorted((TESTS / "cases").glob("[0-9]*.py")):
        text = path.read_bytes().decode("latin-1" if path.stem.startswith("091") else "utf-8-sig")
        if "\nFILES = {" not in text and "\nNOTEBOOK = {" not in text:
            found[path.stem] = (text, "")
    return found


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The clean programs by name: "" when it imports and builds, or the error."""
    folder, book, jobs = tmp_path_factory.mktemp("clean"), load_rules(), []
    for name, (text, build) in programs().items():
        run = convert_files([Source("program.py", text)], book)
        (outcome,) = run.outcomes
        assert outcome.status == "changed", (name, outcome.findings)
        if any(fate(f.code) in ("left", "unmapped") for f in outcome.findings):
            continue
        (folder / name).mkdir()
        (folder / name / "program.py").write_text(outcome.after, encoding="utf-8")
        (folder / name / "nnx_layers.py").write_text(run.layer_file, encoding="utf-8")
        jobs.append((str(folder / name), "program", build))
    done = subprocess.run(
        [sys.executable, "-c", RUNNER], input=json.dumps(jobs), capture_output=True, text=True, check=True
    )
    wrong = json.loads(done.stdout.splitlines()[-1])
    return {Path(job[0]).name: wrong.get(Path(job[0]).name, "") for job in jobs}


def test_clean_programs_run_without_torch(failed: dict[str, str]) -> None:
    assert {name: why for name, why in failed.items() if why} == {}


def test_most_programs_are_clean(failed: dict[str, str]) -> None:
    """The other test says little when few programs are clean."""
    assert len(failed) >= 40
    assert {f"modules-{name}" for name in BUILDS} <= failed.keys()
