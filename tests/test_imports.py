"""The imports of a written file: what it needs, what it no longer needs, and where the layer file is."""

from __future__ import annotations

from pathlib import Path

import pytest

from jaxmigrate.files import find_inputs, read_all
from jaxmigrate.project import convert_files
from jaxmigrate.read.source import Source
from jaxmigrate.rulebook import load_rules


def head(text: str, layers: str = "nnx_layers") -> str:
    outcome = convert_files([Source("m.py", text, layers=layers)], load_rules()).outcomes[0]
    assert outcome.status == "changed", outcome.findings
    return outcome.after


USE = "x = torch.relu(torch.ones(3))\n"
NEW = "import jax\nimport jax.numpy as jnp\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("import torch\n", NEW),
        ('"""Doc."""\nimport torch\n', '"""Doc."""\n' + NEW),
        ("from __future__ import annotations\nimport torch\n", "from __future__ import annotations\n" + NEW),
        ("import os\nimport torch  # the library\nimport re\n", f"import os\n{NEW[:-1]}  # the library\nimport re\n"),
        ("import torch, os\n", NEW + "import os\n"),
        ("import torch; import os\n", NEW[:-1] + "; import os\n"),
        ("import os; import torch\n", "import os; " + NEW),
        ("import torch\nimport jax\n", "import jax.numpy as jnp\nimport jax\n"),
        ("import torch\nimport torch.nn.functional as F\nfrom torch import nn, Tensor\n", NEW),
    ],
)
def test_torch_imports_give_way(before: str, after: str) -> None:
    assert head(before + USE).startswith(after)


def test_names_in_strings_and_all_keep_their_import() -> None:
    text = "import torch\nfrom torch import nn\n\n__all__ = ['nn']\nx = torch.ones(3)\n"
    assert "from torch import nn" in head(text)


def test_an_import_in_a_block_leaves_python() -> None:
    text = "try:\n    import torch\nexcept ImportError:\n    torch = None\n" + USE
    after = head(text)
    compile(after, "m.py", "exec")
    assert "import torch" not in after


def test_a_name_of_the_file_itself_is_not_shadowed() -> None:
    text = "from torch import nn\n\n\nclass Linear:\n    pass\n\n\nx = nn.Linear(3, 3)\n"
    after = head(text)
    assert "import nnx_layers" in after
    assert "nnx_layers.Linear(3, 3" in after


def test_a_layer_name_that_torch_bound_is_imported_from_the_layer_file() -> None:
    after = head("from torch.nn import Linear\n\n\nx = Linear(3, 3)\n")
    assert "from nnx_layers import Linear" in after
    assert "torch" not in after


LAYERS = "from torch import nn\n\n\nx = nn.Linear(3, 3)\n"
OWN = LAYERS + "\n\nclass LayerNorm:\n    y = nn.LayerNorm(3)\n"


@pytest.mark.parametrize(
    ("module", "line", "whole"),
    [
        ("nnx_layers", "from nnx_layers import Linear\n", "import nnx_layers\n"),
        (".nnx_layers", "from .nnx_layers import Linear\n", "from . import nnx_layers\n"),
        ("..nnx_layers", "from ..nnx_layers import Linear\n", "from .. import nnx_layers\n"),
    ],
)
def test_the_layer_file_is_imported_by_depth(module: str, line: str, whole: str) -> None:
    assert line in head(LAYERS, module)
    assert whole in head(OWN, module)


def test_packages_import_relatively_other_folders_do_not(tmp_path: Path) -> None:
    for name in ("pkg/__init__.py", "pkg/a.py", "pkg/sub/__init__.py", "pkg/sub/b.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(LAYERS, encoding="utf-8")
    sources = read_all(find_inputs([tmp_path / "pkg"])).sources
    inside = {Path(s.path).relative_to(tmp_path).as_posix(): s.layers for s in sources}
    assert inside["pkg/__init__.py"] == inside["pkg/a.py"] == ".nnx_layers"
    assert inside["pkg/sub/__init__.py"] == inside["pkg/sub/b.py"] == "..nnx_layers"
    above = {s.layers for s in read_all(find_inputs([tmp_path])).sources}
    assert above == {".nnx_layers", "..nnx_layers"}, "it stands in the one package that has torch in it"
    named = find_inputs([tmp_path / "pkg/a.py"])
    assert [s.layers for s in read_all(named, in_place=True).sources] == [".nnx_layers"]
    assert [s.layers for s in read_all(named, in_place=False).sources] == ["nnx_layers"]


def test_the_projects_own_package_is_no_foreign_one() -> None:
    sources = [
        Source("vit_pytorch/__init__.py", "from vit_pytorch.vit import ViT\n"),
        Source("vit_pytorch/vit.py", "from torch import nn\n\n\nclass ViT(nn.Module):\n    pass\n"),
        Source("vit_pytorch/use.py", "import torch\nfrom vit_pytorch.vit import ViT\n\nv = ViT()\nx = torch.ones(3)\n"),
    ]
    run = convert_files(sources, load_rules())
    assert "JM303" not in [f.code for f in run.findings]
