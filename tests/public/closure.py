"""The files that a program of a package needs: itself and, transitively, what it imports from the same packages."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from jaxmigrate.local_imports import imported_names


def lay_out(roots: Sequence[Path], file: str, target: Path, without: Sequence[str] = ()) -> list[Path]:
    """Copy `file` (relative to one of `roots`, unpacked wheels) and what it imports from the roots into `target`.

    Every package gets an `__init__.py`: its own where something is imported from the package itself, else an empty
    one, so that nothing runs that the program does not ask for. Modules `without` are left out, and what is in them.
    Returns the copied files, relative to `target`.
    """
    needed: dict[str, Path] = {}
    todo = [_find(roots, file)]
    while todo:
        root, relative = todo.pop()
        if str(relative) in needed:
            continue
        needed[str(relative)] = root
        for parts in imported_names(root / relative, relative.parent.parts):
            found = _module(roots, parts)
            if found is not None and not any(f"{'.'.join(parts)}.".startswith(f"{name}.") for name in without):
                todo.append(found)
    for name, root in needed.items():
        destination = target / name
        destination.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / name, destination)
    for name in needed:
        for parent in list((target / name).relative_to(target).parents)[:-1]:
            (target / parent / "__init__.py").touch()
    return [Path(name) for name in needed]


def _find(roots: Sequence[Path], file: str) -> tuple[Path, Path]:
    for root in roots:
        if (root / file).is_file():
            return root, Path(file)
    raise FileNotFoundError(f"{file}: in none of {', '.join(map(str, roots))}")


def _module(roots: Sequence[Path], parts: tuple[str, ...]) -> tuple[Path, Path] | None:
    """The file of a dotted name: a module, or a package's `__init__.py`."""
    for root in roots:
        path = Path(*parts)
        if (root / path.with_suffix(".py")).is_file():
            return root, path.with_suffix(".py")
        if (root / path / "__init__.py").is_file():
            return root, path / "__init__.py"
    return None
