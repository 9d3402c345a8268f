"""Files are imported as their siblings know them, in packages too, and errors point into the user's files."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jaxmigrate.verify.loading import explain, forget, load


@pytest.fixture(autouse=True)
def clean(tmp_path: Path) -> Iterator[None]:
    before = list(sys.path)
    yield
    forget(tmp_path)
    sys.path[:] = before


def write(folder: Path, **files: str) -> None:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)


def test_siblings_and_forgetting(tmp_path: Path) -> None:
    write(tmp_path, vl_net="import vl_parts\nsize = vl_parts.size\n", vl_parts="size = 3\n")
    assert load(tmp_path / "vl_net.py").size == 3
    forget(tmp_path)
    write(tmp_path, vl_parts="size = 4567\n")
    assert "vl_parts" not in sys.modules
    assert load(tmp_path / "vl_net.py").size == 4567


def test_a_file_may_be_called_like_a_standard_module(tmp_path: Path) -> None:
    import random

    write(tmp_path, random="size = 3\n")
    assert load(tmp_path / "random.py").size == 3
    assert sys.modules["random"] is random


def test_a_package_is_imported_as_a_package(tmp_path: Path) -> None:
    write(
        tmp_path / "vlpack",
        __init__="base = 2\n",
        net="from . import base\nfrom .parts import size\n",
        parts="size = 3\n",
    )
    module = load(tmp_path / "vlpack" / "net.py")
    assert (module.__name__, module.base, module.size) == ("vlpack.net", 2, 3)


def test_a_package_whose_init_fails_is_passed_over(tmp_path: Path) -> None:
    write(
        tmp_path / "vlbroken",
        __init__="import no_such_module_here\n",
        net="from .parts import size\n",
        parts="size = 3\n",
    )
    assert load(tmp_path / "vlbroken" / "net.py").size == 3


def test_errors_point_to_the_innermost_own_line(tmp_path: Path) -> None:
    write(tmp_path, vl_bad="import json\n\n\ndef fn():\n    json.loads('{')\n\n\nfn()\n")
    with pytest.raises(ValueError) as error:
        load(tmp_path / "vl_bad.py")
    assert explain(error.value, tmp_path).startswith("JSONDecodeError: ")
    assert explain(error.value, tmp_path).endswith("(vl_bad.py:5)")


def test_a_syntax_error_has_its_line(tmp_path: Path) -> None:
    write(tmp_path, vl_syntax="x = 1\ny = (\n")
    with pytest.raises(SyntaxError) as error:
        load(tmp_path / "vl_syntax.py")
    assert explain(error.value, tmp_path) == "SyntaxError: '(' was never closed (vl_syntax.py:2)"


def test_an_error_of_tracing_is_told_without_what_jax_says_of_its_own_functions(tmp_path: Path) -> None:
    write(tmp_path, vl_traced="import jax\n\n\n@jax.jit\ndef fn(x):\n    return x if x > 0 else -x\n\n\nfn(1.0)\n")
    with pytest.raises(TypeError) as error:
        load(tmp_path / "vl_traced.py")
    text = "Attempted boolean conversion of traced array with shape bool[]."
    assert explain(error.value, tmp_path) == f"TracerBoolConversionError: {text} (vl_traced.py:6)"
