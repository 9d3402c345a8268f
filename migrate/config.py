"""Settings: what `[tool.jaxmigrate]` in the nearest pyproject.toml says, under what the command line says."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Literal, get_args

X64 = Literal["auto", "on", "off"]
ControlFlow = Literal["keep", "lax"]
FailOn = Literal["note", "warning", "error", "never"]


class ExitCode(IntEnum):
    """What every command answers with."""

    DONE = 0
    FINDINGS = 1
    USAGE = 2
    FAULT = 3


class ConfigError(Exception):
    """The settings cannot be used: the message is one line that names the file and the key."""


@dataclass(frozen=True)
class Settings:
    """What a run may be told.

    `todo` puts a comment where something was left; `control_flow` "lax" rewrites control flow on tensor values;
    `x64` says whether programs switch 64-bit types on ("auto": those that need them); `exclude` are patterns of
    paths below a folder that are not converted; `rules` extra rule files; `fail_on` the lowest severity that makes
    the exit code 1; `verify` the tables `[[tool.jaxmigrate.verify]]` as they stand; `origin` the pyproject.toml
    they came from.
    """

    todo: bool = True
    control_flow: ControlFlow = "keep"
    x64: X64 = "auto"
    exclude: tuple[str, ...] = ()
    rules: tuple[Path, ...] = ()
    fail_on: FailOn = "error"
    verify: tuple[Mapping[str, object], ...] = ()
    origin: Path | None = None


def load_settings(start: Path) -> Settings:
    """The settings for a file or folder: those of the nearest pyproject.toml at or above it, or the defaults.

    Raises ConfigError for TOML that does not parse, an unknown key and a value of the wrong kind.
    """
    path = nearest_pyproject(start)
    if path is None:
        return Settings()
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error
    tool = table.get("tool")
    own = tool.get("jaxmigrate", {}) if isinstance(tool, dict) else {}
    if not isinstance(own, dict):
        raise ConfigError(f"{path}: [tool.jaxmigrate] must be a table")
    return _settings(path, own)


def nearest_pyproject(start: Path) -> Path | None:
    """The pyproject.toml in the folder `start` (or the folder that holds the file `start`) or the closest one above."""
    start = start.resolve()
    folders = [start, *start.parents] if start.is_dir() else start.parents
    return next((f / "pyproject.toml" for f in folders if (f / "pyproject.toml").is_file()), None)


def _settings(path: Path, table: Mapping[str, Any]) -> Settings:
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in _KEYS:
            close = difflib.get_close_matches(key, _KEYS, n=1)
            known = f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(_KEYS)}"
            raise ConfigError(f"{path}: [tool.jaxmigrate] has no key {key!r}; {known}")
        convert, wanted = _KEYS[key]
        try:
            values[key.replace("-", "_")] = convert(value, path.parent)
        except TypeError as error:
            raise ConfigError(f"{path}: [tool.jaxmigrate] {key} must be {wanted}, not {value!r}") from error
    return Settings(**values, origin=path)


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


def _fail_on(value: object, _folder: Path) -> object:
    if value not in get_args(FailOn):
        raise TypeError
    return value


def _control_flow(value: object, _folder: Path) -> object:
    if value not in get_args(ControlFlow):
        raise TypeError
    return value


def _x64(value: object, _folder: Path) -> object:
    if value not in get_args(X64):
        raise TypeError
    return value


def _tables(value: object, _folder: Path) -> tuple[Mapping[str, object], ...]:
    if not isinstance(value, list) or not all(isinstance(v, dict) for v in value):
        raise TypeError
    return tuple(value)


_KEYS: Mapping[str, tuple[Callable[[Any, Path], object], str]] = {
    "todo": (_flag, "true or false"),
    "control-flow": (_control_flow, "one of " + ", ".join(get_args(ControlFlow))),
    "x64": (_x64, "one of " + ", ".join(get_args(X64))),
    "exclude": (_texts, "a list of patterns"),
    "rules": (_paths, "a list of paths"),
    "fail-on": (_fail_on, "one of " + ", ".join(get_args(FailOn))),
    "verify": (_tables, "an array of tables, [[tool.jaxmigrate.verify]]"),
}
