"""Projects as a whole: what crosses files, where it ends, and that speed changes nothing."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from jaxmigrate.cache import WORTH, Cache
from jaxmigrate.cli import main
from jaxmigrate.config import Settings
from jaxmigrate.engine import Source
from jaxmigrate.project import convert_files
from jaxmigrate.report.findings import Run
from jaxmigrate.rulebook import load_rules

BOOK = load_rules()

DATA = Path(__file__).parent / "data" / "project"
FILES = sorted(p for p in DATA.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
PACKAGE = {p.relative_to(DATA).as_posix(): p.read_text(encoding="utf-8") for p in FILES}


def lay_out(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def outputs(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    lay_out(tmp_path / "in", PACKAGE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


BLOCKED = (
    "import sys\nclass No:\n    def find_spec(self, name, path=None, target=None):\n"
    "        if name.partition('.')[0] in ('torch', 'jaxmigrate'):\n            raise ImportError(name)\n"
    "sys.meta_path.insert(0, No())\n"
)


def test_a_package_runs_without_torch(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Re-exports of torch's names, stars, `__all__`, circular and type-only imports, namespace packages, `__main__`."""
    assert main(["convert", "in", "-o", "out"]) == 0
    assert "still need torch" not in capfd.readouterr().err
    assert (project / "out/src/pkg/sub/__init__.py").exists()
    assert not (project / "out/src/pkg/data.txt").exists()
    script = BLOCKED + (
        "import runpy\nimport jax.numpy as jnp\nfrom pkg import Linear, Act, Identity, Block, mish, Model\n"
        "import ns.inner.tool\nassert ns.inner.tool.apply(jnp.ones((1, 4))).shape == (1, 4)\n"
        "sys.path.insert(0, '../tests')\nimport check_pkg\ncheck_pkg.test_it()\n"
        "runpy.run_module('pkg', run_name='__main__')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=project / "out/src", capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("(2, 2)\n", 0), done.stderr


def findings(run: Run) -> list[tuple[str, int, str, str]]:
    return [(f.path, f.start[0], f.code, f.name) for f in run.findings if f.severity != "note"]


def test_what_a_package_no_longer_hands_on_is_said() -> None:
    run = convert_files([Source(f"in/{n}", t) for n, t in PACKAGE.items() if n.endswith(".py")], BOOK)
    assert findings(run) == [
        ("in/src/pkg/__init__.py", 1, "JM101", "torch.nn"),
        ("in/src/pkg/__init__.py", 2, "JM101", "torch.nn.functional"),
    ]


def test_a_name_that_is_still_needed_is_imported_from_torch_itself() -> None:
    files = {
        "p/__init__.py": "from torch import nn as layers\n",
        "p/m.py": "from . import layers\n\nx = layers.NoSuch()\n",
    }
    run = convert_files([Source(n, t) for n, t in files.items()], BOOK)
    text = {o.path: o.after for o in run.outcomes}
    assert "from torch import nn as layers\n" in text["p/m.py"]
    assert "from . import layers" not in text["p/m.py"]
    assert ("p/m.py", 3, "JM302", "torch.nn.NoSuch") in findings(run)


@pytest.mark.parametrize("line", ["from .layers import Block", "from pkg.layers import Block", "from . import layers"])
def test_what_is_not_in_the_run_is_a_border(project: Path, capfd: pytest.CaptureFixture[str], line: str) -> None:
    lay_out(project, {"in/src/pkg/only.py": f"import torch\n{line}\n\nx = torch.zeros(3)\n"})
    assert main(["check", "in/src/pkg/only.py", "--fail-on", "warning"]) == 1
    assert "in/src/pkg/only.py:2:1: JM401" in capfd.readouterr().out
    assert main(["check", "in/src/pkg", "--fail-on", "never"]) == 0
    assert "only.py:2:1: JM401" not in capfd.readouterr().out


def many(number: int = 30) -> list[Source]:
    body = PACKAGE["src/pkg/layers.py"]
    head = f"from .m0 import Block as First\n{body}" + "# filler\n" * 400
    return [Source("p/__init__.py", ""), *(Source(f"p/m{n}.py", head if n else body) for n in range(number))]


def test_several_processes_give_the_same_bytes() -> None:
    script = (
        "import test_projects as t\n"
        "runs = [t.convert_files(t.many(), t.BOOK, t.Settings(jobs=n)) for n in (1, 2, 3, 50)]\n"
        "assert all(run == runs[0] for run in runs[1:])\nprint(sum(o.status == 'changed' for o in runs[0].outcomes))\n"
    )
    # In a process of its own: the tests' own may have threads of JAX, which a fork would not survive.
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("30\n", 0), done.stderr


def test_the_cache_gives_what_the_run_gave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAXMIGRATE_CACHE_DIR", str(tmp_path / "cache"))
    sources, settings = many(), Settings()
    assert sum(len(s.text) for s in sources) > WORTH
    run = convert_files(sources, BOOK, settings)
    cache = Cache.for_run(sources, settings)
    assert cache is not None
    assert cache.load() is None
    cache.store(run)
    assert cache.load() == run
    cache.path.write_bytes(cache.path.read_bytes()[:-20])
    assert cache.load() is None, "a broken file is no result"


def test_anything_that_matters_makes_another_cache_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAXMIGRATE_CACHE_DIR", str(tmp_path / "cache"))
    sources = many()
    rules = tmp_path / "my.toml"
    rules.write_text("", encoding="utf-8")

    def name(sources: list[Source], refused: object = None, **settings: object) -> str:
        cache = Cache.for_run(sources, Settings(**settings), refused)  # type: ignore[arg-type]
        assert cache is not None
        return cache.path.name

    plain = name(sources)
    other = [*sources[:-1], Source("p/m29.py", sources[-1].text + " ")]
    moved = [*sources[:-1], Source("p/m29b.py", sources[-1].text)]
    names = {plain, name(other), name(moved), name(sources, todo=False), name(sources, x64="on")}
    names |= {name(sources, rules=(rules,)), name(sources, {"p/m1.py": frozenset({"a#1"})})}
    rules.write_text("# changed\n", encoding="utf-8")
    names |= {name(sources, rules=(rules,))}
    assert len(names) == 8
    assert name(sources, jobs=4, fail_on="note", exclude=("x",)) == plain
    assert Cache.for_run(sources, Settings(cache=False)) is None


def test_a_second_run_over_a_folder_is_the_first(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAXMIGRATE_CACHE_DIR", str(project / "cache"))
    lay_out(project / "big", {s.path: s.text for s in many()})
    assert main(["convert", "big", "-o", "one"]) == 0
    assert len(list((project / "cache").iterdir())) == 1
    assert main(["convert", "big", "-o", "two"]) == 0
    command = [sys.executable, "-m", "jaxmigrate.cli", "convert", "big", "-o", "three", "--no-cache", "--jobs", "2"]
    subprocess.run(command, check=True, capture_output=True)
    assert outputs(project / "one") == outputs(project / "two") == outputs(project / "three")


def test_a_terminal_sees_progress_and_a_pipe_does_not(project: Path) -> None:
    lay_out(project / "big", {s.path: s.text for s in many()})
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "jaxmigrate.cli", "check", "big", "--no-cache"]
    with subprocess.Popen(command, cwd=project, stdout=subprocess.DEVNULL, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:
                break
            if not part:
                break
            shown += part
    assert process.returncode == 0
    assert b"converting" in shown
    assert b"30/31" in shown or b"30/30" in shown
    piped = subprocess.run(command, cwd=project, capture_output=True, check=True)
    assert b"converting" not in piped.stderr


SCRIPTS = {
    "one/models.py": "from torch import nn\n\n\nclass Net(nn.Linear):\n    def size(self):\n        return 'one'\n",
    "one/train.py": "from models import *\n\nnet = Net(3, 2)\nnet.cuda()\n",
    "two/models.py": "class Net:\n    def cuda(self):\n        return 'two'\n",
    "two/train.py": "import torch\nimport models\n\nnet = models.Net()\nprint(net.cuda(), torch.ones(2))\n",
}


def test_scripts_import_what_lies_beside_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders of scripts that each have a `models.py`, one by a star import: each means its own."""
    lay_out(tmp_path / "in", SCRIPTS)
    monkeypatch.chdir(tmp_path)
    assert main(["convert", "in", "-o", "out"]) == 0
    assert "net = Net(3, 2, rngs=nnx.Rngs(" in (tmp_path / "out/one/train.py").read_text()
    assert ".cuda()" not in (tmp_path / "out/one/train.py").read_text()
    assert "print(net.cuda(), jnp.ones((2,)))" in (tmp_path / "out/two/train.py").read_text()


def test_a_default_type_set_in_one_file_counts_in_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`torch.Tensor(…)` is float64 then, which no file without the call shows."""
    library = "import torch\n\n\ndef make():\n    return torch.Tensor([1.0])\n"
    lay_out(tmp_path / "in", {"lib.py": library, "main.py": "import torch\n\ntorch.set_default_dtype(torch.float64)\n"})
    lay_out(tmp_path / "alone", {"lib.py": library})
    monkeypatch.chdir(tmp_path)
    assert main(["convert", "alone", "-o", "out1"]) == 0
    assert "jnp.array([1.0], dtype=jnp.float32)" in (tmp_path / "out1/lib.py").read_text()
    main(["convert", "in", "-o", "out2", "--fail-on", "never"])
    assert "# TODO(jaxmigrate JM202)" in (tmp_path / "out2/lib.py").read_text()
