"""Finding and reading source files: what is input, in which encoding, with its line ends kept."""

from __future__ import annotations

import codecs
import io
import os
import stat
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .config import matches
from .ignored import Ignored
from .notebook import NotebookError, read_notebook
from .read.source import Source
from .report.findings import Finding, Outcome, Position

SKIPPED_FOLDERS = frozenset({"__pycache__", "node_modules", "build"})
STDIN = "<stdin>"


class InputError(Exception):
    """An input cannot be taken at all: the message is one line that names it."""


class DecodeError(Exception):
    """The bytes are not text in the encoding that the file declares, or that Python assumes."""

    def __init__(self, position: Position, message: str) -> None:
        super().__init__(message)
        self.position = position
        self.message = message


@dataclass(frozen=True)
class Input:
    """A file to read. `relative` is its place below the folder that was named (its name when it was named itself);
    `home` is where the layer file goes, below that folder: "" at its root, or the one package that has the torch in it.
    """

    path: Path
    relative: Path
    named: bool
    home: Path = Path()

    @property
    def root(self) -> Path:
        """The folder that `relative` counts from."""
        return self.path.parents[len(self.relative.parts) - 1]


@dataclass(frozen=True)
class Reading:
    """What reading gave: the sources, and an outcome with status "failed" for each file of a folder that is no text."""

    sources: tuple[Source, ...]
    failed: tuple[Outcome, ...] = ()


def find_inputs(
    paths: Sequence[Path], exclude: Iterable[str] = (), without: Path | None = None, *, gitignore: bool = True
) -> list[Input]:
    """The Python files and notebooks that `paths` (files and folders) name, each once, folders recursively and in order
    of name.

    Hidden folders, virtual environments, `SKIPPED_FOLDERS`, what a pattern in `exclude` matches, what git ignores and
    the folder `without` are passed over; a file named outright is always taken. Raises InputError for a path that
    does not exist or is neither file nor folder, and for a folder without any Python file.
    """
    found: dict[Path, Input] = {}
    patterns = tuple(exclude)
    for path in paths:
        mode = _mode(path)
        if stat.S_ISREG(mode):
            members = [Input(path, Path(path.name), named=True)]
        elif stat.S_ISDIR(mode):
            walk = _Walk(path, patterns, without, Ignored(path) if gitignore else None)
            members = _with_home([Input(m, m.relative_to(path), named=False) for m in walk.files()])
            if not members:
                passed = f" that is not excluded or ignored by git ({walk.passed} are)" if walk.passed else ""
                raise InputError(f"{path}: no Python file in this folder{passed}")
        else:
            raise InputError(f"{path}: neither a file nor a folder")
        for member in members:
            found.setdefault(member.path.resolve(), member)
    return list(found.values())


# Folders beside a package that use it, and are not shipped with it.
BESIDE = frozenset({"test", "tests", "example", "examples", "docs", "scripts", "tools", "bench", "benchmarks"})


def _with_home(members: list[Input]) -> list[Input]:
    """The files of one folder with the place of their layer file. A package that alone has torch in it keeps the layer
    file inside, so that it can be imported wherever the package is installed."""
    if not members or (members[0].root / "__init__.py").exists():
        return members
    homes = {_package(m) for m in members if _mentions_torch(m.path)} - {Path()}
    homes = {h for h in homes if not BESIDE.intersection(h.parts)}
    return [replace(m, home=next(iter(homes))) for m in members] if len(homes) == 1 else members


def _package(item: Input) -> Path:
    """The outermost package around a file, as a folder below the root; empty when there is none."""
    folders = [f for f in item.relative.parents if (item.root / f / "__init__.py").exists()]
    return folders[-1] if folders else Path()


def _mentions_torch(path: Path) -> bool:
    try:
        return b"torch" in path.read_bytes()
    except OSError:
        return False


def check_paths(paths: Iterable[Path]) -> None:
    """Raises InputError for a path that does not exist, or that leads nowhere."""
    for path in paths:
        _mode(path)


def read_all(inputs: Iterable[Input], *, in_place: bool = True) -> Reading:
    """Read every input. One that is no text raises InputError if it was named itself, else it is a failed outcome.

    `in_place` says that a file that was named itself is written where it stands.
    """
    readings = [_read(item, layer_module(item, in_place=in_place)) for item in inputs]
    return Reading(tuple(s for r in readings for s in r.sources), tuple(f for r in readings for f in r.failed))


def decode_outcome(path: str, data: bytes) -> Reading:
    """A reading of one file's bytes: its source, or the failure (JM901) that its bytes are not in its encoding.

    Raises InputError for bytes that are no text at all.
    """
    try:
        return Reading((decode(path, data),))
    except DecodeError as error:
        return Reading((), (_failed(path, error.position, error.message),))


def read_bytes(path: Path) -> bytes:
    """The bytes of a regular file. Raises InputError, with the reason, for anything else."""
    if not stat.S_ISREG(_mode(path)):
        raise InputError(f"{path}: not a regular file")
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {_reason(error)}") from error


def decode(path: str, data: bytes) -> Source:
    """A Source from the bytes of a Python file: BOM, then the PEP 263 cookie, then UTF-8; line ends stay as they are.

    Raises InputError for bytes that are no text in any encoding that Python reads, and DecodeError for bytes that do
    not fit the encoding.
    """
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise InputError(f"{path}: UTF-16 text, which Python does not read; save it as UTF-8")
    if b"\0" in data:
        raise InputError(f"{path}: a binary file, not Python source")
    if path.endswith(".ipynb"):
        return _decode_notebook(path, data)
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    except SyntaxError as error:
        encoding = "utf-8"
        if "unknown encoding" in str(error) or "encoding problem" in str(error):
            raise DecodeError((1, 1), str(error).splitlines()[0]) from error
    bom = data.startswith(codecs.BOM_UTF8)
    encoding = "utf-8" if bom else encoding
    body = data.removeprefix(codecs.BOM_UTF8)
    try:
        return Source(path, body.decode(encoding), encoding, bom)
    except UnicodeDecodeError as error:
        head = body[: error.start]
        line = head.count(b"\n") + 1
        column = len(head.rpartition(b"\n")[2].decode(encoding, "replace")) + 1
        message = f"byte 0x{body[error.start]:02x} is not {encoding}; declare the encoding or save the file as UTF-8"
        raise DecodeError((line, column), message) from error


def _decode_notebook(path: str, data: bytes) -> Source:
    """The code cells of a notebook as one source."""
    bom = data.startswith(codecs.BOM_UTF8)
    try:
        notebook = read_notebook(data.removeprefix(codecs.BOM_UTF8).decode())
    except (UnicodeDecodeError, NotebookError) as error:
        raise InputError(f"{path}: {error}") from error
    return Source(path, notebook.module(), bom=bom, notebook=notebook)


def layer_module(item: Input, *, in_place: bool = True) -> str:
    """How the converted file imports the layer file, which stands at `item.home` below `item.root`: relatively inside
    of a package, by the package's name outside.

    A file that was named itself and is written elsewhere leaves its package.
    """
    if item.home.parts:
        inside = item.relative.is_relative_to(item.home)
        depth = len(item.relative.relative_to(item.home).parts) if inside else 0
        return "." * depth + "nnx_layers" if inside else f"{item.home.name}.nnx_layers"
    if (item.named and not in_place) or not (item.root / "__init__.py").exists():
        return "nnx_layers"
    return "." * len(item.relative.parts) + "nnx_layers"


def top_package(path: Path) -> str:
    """The name of the topmost package that a file is in, "" when its folder has no `__init__.py`."""
    folder, name = path.resolve().parent, ""
    while (folder / "__init__.py").is_file():
        folder, name = folder.parent, folder.name
    return name


def _read(item: Input, layers: str) -> Reading:
    try:
        reading = decode_outcome(str(item.path), read_bytes(item.path))
        package = top_package(item.path)
        return replace(reading, sources=tuple(replace(s, layers=layers, package=package) for s in reading.sources))
    except InputError as error:
        if item.named:
            raise
        return Reading((), (_failed(str(item.path), (1, 1), str(error).removeprefix(f"{item.path}: ")),))


SUFFIXES = (".py", ".ipynb")


@dataclass
class _Walk:
    """A walk through a folder. `passed` counts the source files that a pattern or git keeps out."""

    root: Path
    exclude: tuple[str, ...]
    without: Path | None
    ignored: Ignored | None
    passed: int = 0

    def files(self) -> Iterator[Path]:
        barred = self.without.resolve() if self.without else None

        def raise_error(error: OSError) -> None:
            raise InputError(f"{error.filename}: {_reason(error)}")

        for here, folders, files in os.walk(self.root, onerror=raise_error):
            at = Path(here)
            folders[:] = sorted(f for f in folders if not self._skips(at / f) and (at / f).resolve() != barred)
            for name in sorted(files):
                path = at / name
                if not name.endswith(SUFFIXES) or not path.is_file():
                    continue
                if self._out(path, folder=False):
                    self.passed += 1
                else:
                    yield path

    def _skips(self, path: Path) -> bool:
        name = path.name
        if name.startswith(".") or name in SKIPPED_FOLDERS or (path / "pyvenv.cfg").exists():
            return True
        if not self._out(path, folder=True):
            return False
        self.passed += sum(1 for p in path.rglob("*") if p.name.endswith(SUFFIXES))
        return True

    def _out(self, path: Path, *, folder: bool) -> bool:
        if matches(path.relative_to(self.root), self.exclude):
            return True
        return self.ignored is not None and self.ignored.covers(path, folder=folder)


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode
    except OSError as error:
        raise InputError(f"{path}: {_reason(error)}") from error


def _reason(error: OSError) -> str:
    text = error.strerror or str(error)
    return text[:1].lower() + text[1:]


def _failed(path: str, at: Position, message: str) -> Outcome:
    finding = Finding(path, at, at, "JM901", name="", rule="", message=message)
    return Outcome(path, "failed", "", "", (finding,))
