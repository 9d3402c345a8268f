"""Importing a user's file in a worker process, and telling in one line why it failed."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import re
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

# Where JAX's errors about traced values go on to its own functions; the place in the user's file is told anyway.
_JAX_GOES_ON = re.compile(r" (?:The error occurred while tracing the function|See https://docs\.jax\.dev)")
BLOCKED = ("torch", "torchvision", "torchaudio", "functorch", "jaxmigrate")


class Blocker(importlib.abc.MetaPathFinder):
    """Makes the named packages impossible to import, as if they were not installed.

    A package of such a name that lies beside the program is the program's own (a converted torchvision).
    """

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        if path is None and name in BLOCKED and not Path(sys.path[0], name, "__init__.py").is_file():
            raise ModuleNotFoundError(f"No module named {name!r} (blocked: the converted program must not need it)")


def root(file: Path) -> Path:
    """The folder from which a file and its siblings are imported: the one around all packages that it lies in."""
    folder = file.resolve().parent
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return folder


def load(file: Path) -> ModuleType:
    """Import a file under the name that its siblings know it by: its package's when it lies in one.

    Where the package's `__init__` cannot be imported, the file is imported with an empty package around it.
    Raises whatever the file raises.
    """
    file, folder = file.resolve(), root(file)
    names = list(file.relative_to(folder).with_suffix("").parts)
    if len(names) == 1:
        return _load_alone(file)
    if names[-1] == "__init__":
        names.pop()
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        importlib.import_module(".".join(names[:-1] or names))
    except Exception:
        for depth in range(1, len(names)):
            name = ".".join(names[:depth])
            package = ModuleType(name)
            package.__path__ = [str(folder.joinpath(*names[:depth]))]
            sys.modules[name] = package
    return importlib.import_module(".".join(names))


def _load_alone(file: Path) -> ModuleType:
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    taken = file.stem in sys.stdlib_module_names or file.stem in sys.modules or not file.stem.isidentifier()
    name = f"_file_{''.join(c if c.isalnum() else '_' for c in file.stem)}" if taken else file.stem
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not a Python source file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def forget(folder: Path) -> None:
    """Drop what was imported from a folder, so that the next program may have modules of the same names."""
    root = str(folder.resolve())
    for name, module in list(sys.modules.items()):
        origin = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", []) or []), "")
        if str(origin).startswith(root + "/") or str(origin) == root:
            del sys.modules[name]
    sys.path[:] = [p for p in sys.path if p != root]
    importlib.invalidate_caches()


def explain(error: BaseException, folder: Path) -> str:
    """One line: the error, and where in the user's own files it came from (or where at all)."""
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, SyntaxError) and error.filename:
        return f"SyntaxError: {error.msg} ({Path(error.filename).name}:{error.lineno})"
    root = str(folder.resolve())
    own = [f for f in frames if f.filename.startswith(root)]
    place = (own or frames)[-1] if frames else None
    text = _JAX_GOES_ON.split(" ".join(str(error).split()))[0]
    text = text if len(text) <= 300 else text[:300] + " ..."
    if isinstance(error, PermissionError):
        text += ": a program that is verified can write in its scratch folder only"
    if isinstance(error, MemoryError):
        text = text or "the limit of memory is reached"
    where = f" ({Path(place.filename).name}:{place.lineno})" if place else ""
    return f"{type(error).__name__}{': ' if text else ''}{text}{where}"


def namespace(module: ModuleType) -> dict[str, Any]:
    """The names that a build expression may use: the module's own, and a few of the standard library."""
    import functools
    import math

    return {"math": math, "partial": functools.partial, **vars(module)}
