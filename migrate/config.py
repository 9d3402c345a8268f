"""Settings: what `[tool.jaxmigrate]` in the nearest pyproject.toml says, under what the command line says."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Literal, get_args

from .report.findings import CODES

LayerStyle = Literal["torch", "nnx"]
X64 = Literal["auto", "on", "off"]
ControlFlow = Literal["keep", "lax"]
FailOn = Literal["note", "warning", "error", "never"]
Outputs = Literal["clear-changed", "clear", "keep"]


class ExitCode(IntEnum):
    """What every command answers with."""

    DONE = 0
    FINDINGS = 1
    USAGE = 2
    FAULT = 3


class ConfigError(Exception):
    """The settings cannot be used: the message is one line that names the file and the key."""


@dataclass(frozen=True)
class PerFile:
    """Settings for the files that match `pattern`, a path below `home`: what is accepted there, and `todo` when
    given."""

    pattern: str
    home: Path
    accept: tuple[str, ...] = ()
    todo: bool | None = None

    def covers(self, path: Path) -> bool:
        """Whether a file is one of those."""
        try:
            relative = path.resolve().relative_to(self.home.resolve())
        except ValueError:
            return False
        return matches(relative, (self.pattern,))


@dataclass(frozen=True)
class Settings:
    """What a run may be told.

    `todo` puts a comment where something was left; `control_flow` "lax" rewrites control flow on tensor values;
    `layers` "nnx" uses Flax's own layers where the numbers agree; `x64` says whether programs switch 64-bit types
    on ("auto": those that need them); `exclude` are patterns of paths below a folder that are not converted,
    `gitignore` says that what git ignores is not either; `rules` extra rule files; `fail_on` the lowest severity
    and `fail_under` the lowest percentage of converted constructs that make the exit code 1; `accept` are codes
    whose findings do not count, `baseline` a file of findings that do not; `per_file` are settings of some files;
    `outputs` says what becomes of the outputs of a notebook; `jobs` is the number of processes (0: as many as
    help), `cache` whether results are kept for the next run; `verify` the tables `[[tool.jaxmigrate.verify]]` as
    they stand; `origin` the pyproject.toml they came from, `sources` which files each key came from.
    """

    todo: bool = True
    control_flow: ControlFlow = "keep"
    layers: LayerStyle = "torch"
    x64: X64 = "auto"
    exclude: tuple[str, ...] = ()
    gitignore: bool = True
    rules: tuple[Path, ...] = ()
    fail_on: FailOn = "error"
    fail_under: float | None = None
    accept: tuple[str, ...] = ()
    baseline: Path | None = None
    per_file: tuple[PerFile, ...] = ()
    outputs: Outputs = "clear-changed"
    jobs: int = 0
    cache: bool = True
    verify: tuple[Mapping[str, object], ...] = ()
    origin: Path | None = None
    sources: tuple[tuple[str, tuple[Path, ...]], ...] = field(default=(), compare=False)

    def todo_for(self, path: str) -> bool:
        """Whether comments are put into a file."""
        said = [p.todo for p in self.per_file if p.todo is not None and p.covers(Path(path))]
        return said[-1] if said else self.todo

    def accepts(self, path: str) -> frozenset[str]:
        """The codes that are accepted in a file."""
        return frozenset(self.accept).union(*(p.accept for p in self.per_file if p.accept and p.covers(Path(path))))


def load_settings(start: Path) -> Settings:
    """The settings for a file or folder: the table of the nearest pyproject.toml at or above it that has one, on top of
    what that extends; or the defaults.

    Raises ConfigError for TOML that does not parse, an unknown key and a value of the wrong kind.
    """
    start = start.resolve()
    for folder in [start, *start.parents] if start.is_dir() else start.parents:
        path = folder / "pyproject.toml"
        if path.is_file() and (table := _table(path)) is not None:
            values, sources = _read(path, table, ())
            return Settings(**values, origin=path, sources=tuple(sources.items()))
    return Settings()


def matches(relative: Path, patterns: tuple[str, ...]) -> bool:
    """Whether a pattern fits a path below a folder, the path's last part, or a folder that it is in."""
    below = [relative, *list(relative.parents)[:-1]]
    return any(fnmatch(r.as_posix(), p.rstrip("/")) or fnmatch(r.name, p.rstrip("/")) for p in patterns for r in below)


def suggestion(word: str, known: Mapping[str, object]) -> str:
    """`did you mean 'exclude'?`, or the list of what is known."""
    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(known)}"


def _table(path: Path) -> Mapping[str, Any] | None:
    """The table `[tool.jaxmigrate]` of a file, None when it has none."""
    try:
        whole = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error
    tool = whole.get("tool")
    own = tool.get("jaxmigrate") if isinstance(tool, dict) else None
    if own is not None and not isinstance(own, dict):
        raise ConfigError(f"{path}: [tool.jaxmigrate] must be a table")
    return own


def _read(
    path: Path, table: Mapping[str, Any], below: tuple[Path, ...]
) -> tuple[dict[str, Any], dict[str, tuple[Path, ...]]]:
    """The values of a table on top of those that it extends, and where each came from."""
    values: dict[str, Any] = {}
    sources: dict[str, tuple[Path, ...]] = {}
    if "extend" in table:
        values, sources = _extended(path, table["extend"], (*below, path))
    for key, value in table.items():
        if key == "extend":
            continue
        if key not in _KEYS:
            raise ConfigError(f"{path}: [tool.jaxmigrate] has no key {key!r}; {suggestion(key, _KEYS)}")
        convert, wanted = _KEYS[key]
        name = key.replace("-", "_")
        try:
            made = convert(value, path.parent)
        except (TypeError, ValueError) as error:
            why = f"; {error}" if str(error) else ""
            raise ConfigError(f"{path}: [tool.jaxmigrate] {key} must be {wanted}, not {value!r}{why}") from error
        values[name] = (*values.get(name, ()), *made) if key in _ADDED and isinstance(made, tuple) else made
        sources[key] = (*sources.get(key, ()), path) if key in _ADDED else (path,)
    return values, sources


def _extended(path: Path, value: object, below: tuple[Path, ...]) -> tuple[dict[str, Any], dict[str, tuple[Path, ...]]]:
    if not isinstance(value, str):
        raise ConfigError(f"{path}: [tool.jaxmigrate] extend must be a path, not {value!r}")
    base = (path.parent / value).resolve()
    if base in [p.resolve() for p in below]:
        raise ConfigError(f"{path}: [tool.jaxmigrate] extend leads back to {base}")
    if not base.is_file():
        raise ConfigError(f"{path}: [tool.jaxmigrate] extends {base}, which is no file")
    table = _table(base)
    if table is None:
        raise ConfigError(f"{path}: [tool.jaxmigrate] extends {base}, which has no [tool.jaxmigrate]")
    return _read(base, table, below)


def _flag(value: object, _folder: Path) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _texts(value: object, _folder: Path) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise TypeError
    return tuple(value)


def _paths(value: object, folder: Path) -> tuple[Path, ...]:
    return tuple(folder / text for text in _texts(value, folder))


def _path(value: object, folder: Path) -> Path:
    if not isinstance(value, str):
        raise TypeError
    return folder / value


def _one_of(*allowed: str) -> Callable[[object, Path], object]:
    def convert(value: object, _folder: Path) -> object:
        if value not in allowed:
            raise TypeError
        return value

    return convert


def _percent(value: object, _folder: Path) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 100:
        raise TypeError
    return float(value)


def _count(value: object, _folder: Path) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise TypeError
    return value


def _codes(value: object, folder: Path) -> tuple[str, ...]:
    for code in (codes := _texts(value, folder)):
        if code not in CODES:
            close = difflib.get_close_matches(code, CODES, n=1)
            raise ValueError(f"{code} is no code" + (f", did you mean {close[0]}?" if close else ""))
    return codes


def _tables(value: object, _folder: Path) -> tuple[Mapping[str, object], ...]:
    if not isinstance(value, list) or not all(isinstance(v, dict) for v in value):
        raise TypeError
    return tuple(value)


def _per_file(value: object, folder: Path) -> tuple[PerFile, ...]:
    if not isinstance(value, dict) or not all(isinstance(v, dict) for v in value.values()):
        raise TypeError
    found = []
    for pattern, table in value.items():
        for key in table:
            if key not in _PER_FILE:
                raise ValueError(f"a file has no key {key!r}; {suggestion(key, _PER_FILE)}")
        own = {key: _PER_FILE[key](entry, folder) for key, entry in table.items()}
        found.append(PerFile(pattern, folder, **own))  # type: ignore[arg-type]
    return tuple(found)


_PER_FILE: Mapping[str, Callable[[Any, Path], object]] = {"accept": _codes, "todo": _flag}

_KEYS: Mapping[str, tuple[Callable[[Any, Path], object], str]] = {
    "todo": (_flag, "true or false"),
    "control-flow": (_one_of(*get_args(ControlFlow)), "one of " + ", ".join(get_args(ControlFlow))),
    "layers": (_one_of(*get_args(LayerStyle)), "one of " + ", ".join(get_args(LayerStyle))),
    "x64": (_one_of(*get_args(X64)), "one of " + ", ".join(get_args(X64))),
    "exclude": (_texts, "a list of patterns"),
    "gitignore": (_flag, "true or false"),
    "rules": (_paths, "a list of paths"),
    "fail-on": (_one_of(*get_args(FailOn)), "one of " + ", ".join(get_args(FailOn))),
    "fail-under": (_percent, "a percentage, 0 to 100"),
    "accept": (_codes, "a list of codes"),
    "baseline": (_path, "a path"),
    "per-file": (_per_file, "a table of patterns, each with accept or todo"),
    "outputs": (_one_of(*get_args(Outputs)), "one of " + ", ".join(get_args(Outputs))),
    "jobs": (_count, "a number of processes, 0 for as many as help"),
    "cache": (_flag, "true or false"),
    "verify": (_tables, "an array of tables, [[tool.jaxmigrate.verify]]"),
}
_ADDED = frozenset({"exclude", "rules", "accept", "per-file"})  # lists that add to what is extended
KEYS = tuple(_KEYS)
