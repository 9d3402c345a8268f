"""The pages that are made from data say what the data says, and what the hand-written ones name exists."""

from __future__ import annotations

import importlib.util
import re
import types
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
WRITTEN = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "docs" / "architecture.md",
    ROOT / "docs" / "measuring.md",
]


def write_docs() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("write_docs", ROOT / "tools" / "write_docs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MADE: dict[Path, str] = write_docs().pages()


@pytest.mark.parametrize("path", MADE, ids=lambda p: p.relative_to(ROOT / "docs").as_posix())
def test_pages_are_what_the_data_says(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == MADE[path], "run `make docs`"


def test_no_page_is_left_of_rules_that_are_gone() -> None:
    assert write_docs().stale(MADE) == [], "run `make docs`"


@pytest.mark.parametrize("path", MADE, ids=lambda p: p.relative_to(ROOT / "docs").as_posix())
def test_links_of_made_pages_lead_somewhere(path: Path) -> None:
    for link in re.findall(r"(?<!`)\]\(([^)#:`]+\.(?:md|toml|py))\)", MADE[path]):
        assert (path.parent / link).exists(), link


@pytest.mark.parametrize("path", WRITTEN, ids=lambda p: p.name)
def test_links_lead_somewhere(path: Path) -> None:
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
        assert (path.parent / link).exists(), link


@pytest.mark.parametrize("path", WRITTEN, ids=lambda p: p.name)
def test_make_targets_exist(path: Path) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for target in re.findall(r"(?:`|^    )make ([a-z-]+)", path.read_text(encoding="utf-8"), re.MULTILINE):
        assert target in targets, target
