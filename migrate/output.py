"""Writing: where each result goes, what must not be overwritten, and files that are written whole or not at all."""

from __future__ import annotations

import ast
import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .files import Input
from .gate import LAYER_FILE
from .layers import catalogue, emit, native_in
from .report.findings import Outcome, Run


class OutputError(Exception):
    """Something cannot or must not be written: the message is one line that names it."""


@dataclass(frozen=True)
class Write:
    """One file to write; `like` is the file whose permissions a new one takes."""

    path: Path
    data: bytes
    like: Path | None = None

    @property
    def shown(self) -> str:
        """The path for people: from the current folder where it is below that."""
        here = Path.cwd()
        return str(self.path.relative_to(here) if self.path.is_relative_to(here) else self.path)


@dataclass(frozen=True)
class Place:
    """Where results go: `output` as the user gave it (None: in place), and whether it is a folder."""

    output: Path | None
    folder: bool

    def target(self, item: Input) -> Path:
        if self.output is None:
            return item.path.resolve()
        return self.output / item.relative if self.folder else self.output

    def layer_targets(self, items: Iterable[Input]) -> list[Path]:
        """Where the layer file goes: beside the output file, or at its home below the output or each input."""
        if self.output is not None:
            folder = self.output if self.folder else self.output.parent
            return list(dict.fromkeys(folder / item.home / LAYER_FILE for item in items)) or [folder / LAYER_FILE]
        return list(dict.fromkeys(item.root / item.home / LAYER_FILE for item in items))


def place(output: str | None, inputs: Sequence[Path]) -> Place:
    """Understand `-o`: a folder when the input is one or several, when it ends in a separator, or when it is one.

    Raises OutputError when a folder would have to be written to a file.
    """
    if output is None:
        return Place(None, folder=False)
    path = Path(output)
    several = len(inputs) > 1 or any(p.is_dir() for p in inputs)
    folder = several or output.endswith(("/", os.sep)) or path.is_dir()
    if folder and path.exists() and not path.is_dir():
        raise OutputError(f"{path}: a file, but the output of a folder needs a folder")
    return Place(path, folder)


def plan(run: Run, inputs: Sequence[Input], where: Place) -> list[Write]:
    """The files that `run` gives at `where`, without the layer file. In place only changed files are written; elsewhere
    the unchanged ones too, so that the result is whole. Failed ones never are.

    Raises OutputError when two results meet in one file, a result would overwrite an input, or no file can be there.
    """
    outcomes = {o.path: o for o in run.outcomes}
    written = {"changed"} if where.output is None else {"changed", "unchanged", "skipped"}
    sources = {item.path.resolve() for item in inputs}
    writes: dict[Path, Write] = {}
    for item in inputs:
        outcome = outcomes[str(item.path)]
        if outcome.status not in written:
            continue
        target = where.target(item)
        if where.output is not None and target.resolve() in sources:
            raise OutputError(f"{target}: would overwrite an input; use --write to convert in place")
        if target in writes:
            raise OutputError(f"{target}: two inputs would be written there")
        check_target(target)
        if where.output is None and not item.named and not target.is_relative_to(item.root.resolve()):
            raise OutputError(f"{item.path}: a link to {target}, outside of the folder; convert that by its own name")
        writes[target] = Write(target, _data(outcome, item), like=item.path)
    return list(writes.values())


def check_target(path: Path) -> None:
    """Raises OutputError when no regular file can be written at `path`."""
    if path.is_dir():
        raise OutputError(f"{path}: a folder, not a file")
    if path.exists() and not path.is_file():
        raise OutputError(f"{path}: not a regular file")
    if path.exists() and not os.access(path, os.W_OK):
        raise OutputError(f"{path}: permission denied")
    for parent in path.parents:
        if parent.exists():
            if not parent.is_dir():
                raise OutputError(f"{path}: {parent} is a file, not a folder")
            if not os.access(parent, os.W_OK):
                raise OutputError(f"{path}: permission denied")
            break


def write_all(writes: Iterable[Write]) -> None:
    """Write each file whole or not at all, making its folders. Raises OutputError with the system's reason."""
    for write in writes:
        try:
            _write_whole(write)
        except OSError as error:
            raise OutputError(f"{write.path}: {(error.strerror or str(error)).lower()}") from error


def uncommitted(paths: Sequence[Path]) -> list[Path]:
    """Those of `paths` whose present text git could not give back: changed, untracked or ignored. Without git: none."""
    lost = []
    for path in paths:
        command = ["git", "status", "--porcelain", "--ignored", "--", path.name]
        with contextlib.suppress(OSError):
            answer = subprocess.run(command, cwd=path.parent, capture_output=True, check=False)
            if answer.returncode == 0 and answer.stdout.strip():
                lost.append(path)
    return lost


def merged_layers(path: Path, text: str, names: Iterable[str]) -> bytes | None:
    """What the layer file at `path` should hold so that `names` are in it; None when it needs no writing.

    A file that stands there is the user's own: one that has every name is kept as it is. One that lacks some is written
    again, with what it had and what is new, only if it is still as this tool wrote it. `text` is the layer file of this
    run. Raises OutputError for a file that was edited, and for one whose layers are of the other dialect.
    """
    if not path.exists():
        return text.encode()
    try:
        old = path.read_bytes().decode()
        mine, theirs = defined_names(old), defined_names(text)
        had, has = native_in(old), native_in(text)
    except (OSError, SyntaxError, ValueError) as error:
        raise OutputError(f"{path}: not a layer file ({error}); --force writes it anew") from error
    if had & theirs != has & mine or ("torch_axes" in mine) != ("torch_axes" in theirs):
        raise OutputError(f"{path}: has layers of the other dialect (--layers); --force writes it anew")
    lacking = sorted(set(names) - mine)
    if not lacking:
        return None
    native = had | has
    if old != emit(mine & catalogue(native).keys(), native):
        raise OutputError(
            f"{path}: lacks {', '.join(lacking)} and was edited; write to another folder, or --force writes it anew"
        )
    return emit(mine & catalogue(native).keys() | set(names), native).encode()


def defined_names(text: str) -> set[str]:
    """The names of the classes, functions and variables at the top of a module. Raises SyntaxError."""
    found: set[str] = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found.update(t.id for t in targets if isinstance(t, ast.Name))
    return found


def _data(outcome: Outcome, item: Input) -> bytes:
    # A file without torch is passed on as the bytes it is.
    return outcome.encoded() if outcome.status == "changed" else item.path.read_bytes()


def _write_whole(write: Write) -> None:
    path = write.path
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        mode = path.stat().st_mode & 0o7777
    elif write.like is not None:
        mode = write.like.stat().st_mode & 0o7777
    else:
        mask = os.umask(0)
        os.umask(mask)
        mode = 0o666 & ~mask
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(write.data)
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
