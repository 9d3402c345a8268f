"""The files that a program needs of its own project: what it imports from beside itself, transitively."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from .verify.loading import root as import_root


def with_local_imports(file: Path) -> tuple[Path, list[Path]]:
    """The folder that imports start from, and `file` with every project file that its imports may load.

    Imports are found in the text, also those inside functions; what lies outside of the folder is not the project's.
    """
    file = file.resolve()
    root = import_root(file)
    found: list[Path] = []
    todo = [file]
    while todo:
        path = todo.pop()
        if path in found:
            continue
        found.append(path)
        package = path.relative_to(root).parent.parts
        for name in imported_names(path, package):
            todo += _files(root, name)
    return root, found


def _files(root: Path, name: tuple[str, ...]) -> Iterator[Path]:
    """The file of a dotted name, and the `__init__.py` of each package around it."""
    path = root.joinpath(*name)
    module = next((p for p in (path.with_name(path.name + ".py"), path / "__init__.py") if p.is_file()), None)
    if module is None:
        return
    yield module
    for depth in range(1, len(name)):
        init = root.joinpath(*name[:depth], "__init__.py")
        if init.is_file():
            yield init


def imported_names(file: Path, package: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Every dotted name that an import of the file may load: `from a.b import c` gives a.b.c and a.b.

    `package` is the dotted name of the package that the file lies in. A file that does not parse imports nothing.
    """
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            base = (*base, *(node.module.split(".") if node.module else ()))
            yield from ((*base, alias.name) for alias in node.names)
            if base:
                yield base
