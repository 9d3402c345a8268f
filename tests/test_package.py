"""The package: what the wheel holds, what converting imports, and that nothing is called `migrate` once installed."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy so that no build folder is left in the checkout or read from it."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    tracked = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "migrate", "rules", "pyproject.toml",
         "README.md", "LICENSE"],
        cwd=ROOT, capture_output=True, check=True, text=True,
    ).stdout.split("\0")  # fmt: skip
    for name in filter(None, tracked):
        if (ROOT / name).is_file():
            target = source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q", "-w", folder, source]
    subprocess.run(command, check=True)
    (built,) = folder.glob("*.whl")
    return built


def sub_packages(folder: Path, package: str) -> set[str]:
    return {
        ".".join((package, *init.parent.relative_to(folder).parts)).rstrip(".") for init in folder.rglob("__init__.py")
    }


def test_the_list_of_packages_is_that_of_the_folders() -> None:
    folders = sub_packages(ROOT / "migrate", "jaxmigrate") | sub_packages(ROOT / "rules", "jaxmigrate.rules")
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == folders


def test_every_folder_with_python_is_a_package() -> None:
    bare = {p.parent for p in (ROOT / "migrate").rglob("*.py") if not (p.parent / "__init__.py").exists()}
    assert bare == set()


def test_the_wheel_holds_everything_and_only_under_its_own_name(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    assert {name.split("/")[0] for name in held} == {
        "jaxmigrate", f"jaxmigrate-{PROJECT['project']['version']}.dist-info"
    }  # fmt: skip
    for folder, target in (("migrate", "jaxmigrate"), ("rules", "jaxmigrate/rules")):
        wanted = {
            f"{target}/{path.relative_to(ROOT / folder).as_posix()}"
            for suffix in ("py", "toml", "json", "json.gz", "typed")
            for path in (ROOT / folder).rglob(f"*.{suffix}")
        }
        assert wanted - held == set()
    assert {"jaxmigrate/py.typed", "jaxmigrate/report/report.schema.json"} <= held
    assert any(name.startswith("jaxmigrate/rules/") and name.endswith(".toml") for name in held)
    assert "jaxmigrate/rulebook/torch_signatures.json.gz" in held


def test_installing_is_light(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        name = f"jaxmigrate-{PROJECT['project']['version']}.dist-info/METADATA"
        required = Parser().parsestr(archive.read(name).decode()).get_all("Requires-Dist") or []
    assert sorted(r.split(">")[0] for r in required if "extra ==" not in r) == ["libcst", "pathspec", "typer"]


def test_the_version_is_said_once() -> None:
    import jaxmigrate

    assert jaxmigrate.__version__ == PROJECT["project"]["version"]
    assert "migrate" not in sys.modules


SOURCE = """import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 4)

    def forward(self, x):
        return torch.relu(self.fc(x)).view(-1)
"""


def test_converting_imports_no_framework_and_works_from_the_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    """The installed wheel, in a process where torch, jax, flax and numpy cannot be imported, converts a module."""
    installed = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    source = tmp_path / "net.py"
    source.write_text(SOURCE, encoding="utf-8")
    script = (
        "import sys\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "for name in ('torch', 'jax', 'flax', 'optax', 'numpy'): sys.modules[name] = None\n"
        "import jaxmigrate\n"
        "assert jaxmigrate.__file__.startswith(sys.argv[1]), jaxmigrate.__file__\n"
        "from jaxmigrate.cli import main\n"
        "sys.exit(main(['convert', sys.argv[2], '-o', sys.argv[3]]))\n"
    )
    output = tmp_path / "out" / "net.py"
    done = subprocess.run(
        [sys.executable, "-c", script, installed, source, output], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "torch" not in output.read_text(encoding="utf-8")
    assert (output.parent / "nnx_layers.py").exists()


def test_start_up_loads_nothing_heavy() -> None:
    script = (
        "import sys, jaxmigrate.cli\n"
        "heavy = {'torch', 'jax', 'flax', 'optax', 'numpy', 'libcst', 'rich'} & sys.modules.keys()\n"
        "sys.exit(', '.join(sorted(heavy)) or 0)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
