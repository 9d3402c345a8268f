"""The command `config`: what is in force, for a folder or a file, and where each value comes from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from .config import KEYS, Settings, load_settings, matches
from .files import SKIPPED_FOLDERS, InputError
from .gate import LAYER_FILE
from .ignored import Ignored
from .options import DryRun


def config(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A file or folder.")] = Path(),
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable.")] = False,
    dry_run: DryRun = False,
) -> int:
    """Show the settings in force at a place, where each comes from, and whether a file would be converted."""
    if not path.exists():
        raise InputError(f"{path}: no such file or directory")
    settings = load_settings(path)
    if as_json:
        print(json.dumps(_data(path, settings), indent=2, ensure_ascii=False))
    else:
        print("\n".join([*_settings_lines(settings), *(_file_lines(path, settings) if path.is_file() else ())]))
    return 0


def excluded(path: Path, settings: Settings) -> str:
    """Why a file would be passed over in a run over the folder of its settings, "" when it would not."""
    root = (settings.origin.parent if settings.origin else Path.cwd()).resolve()
    inside = path.resolve()
    if not inside.is_relative_to(root):
        root = inside.parent
    relative = inside.relative_to(root)
    if path.name == LAYER_FILE:
        return "it is the layer file"
    if path.suffix not in (".py", ".ipynb"):
        return "it is neither .py nor .ipynb (named itself, it is read as Python)"
    for folder in relative.parts[:-1]:
        if folder.startswith(".") or folder in SKIPPED_FOLDERS:
            return f"the folder {folder} is always passed over"
    pattern = next((p for p in settings.exclude if matches(relative, (p,))), None)
    if pattern is not None:
        return f"exclude has {pattern!r}"
    if (settings.gitignore and Ignored(root).covers(inside, folder=False)) or _ignored_above(inside, root, settings):
        return "git ignores it"
    return ""


def _ignored_above(path: Path, root: Path, settings: Settings) -> bool:
    ignored = Ignored(root)
    return settings.gitignore and any(
        ignored.covers(folder, folder=True) for folder in path.parents if folder != root and folder.is_relative_to(root)
    )


def _settings_lines(settings: Settings) -> Iterator[str]:
    where = dict(settings.sources)
    shown = {key: _text(getattr(settings, key.replace("-", "_"))) for key in KEYS}
    width, wide = max(map(len, shown)), min(50, max(map(len, shown.values())))
    for key, value in shown.items():
        yield f"{key:<{width}}  {value:<{wide}}  {', '.join(map(str, where.get(key, ('default',))))}"


def _file_lines(path: Path, settings: Settings) -> Iterator[str]:
    yield ""
    reason = excluded(path, settings)
    yield f"{path}: {f'passed over in a folder: {reason}' if reason else 'converted'}"
    for entry in settings.per_file:
        if entry.covers(path):
            said = {"accept": list(entry.accept)} | ({"todo": entry.todo} if entry.todo is not None else {})
            yield f"  per-file {entry.pattern!r}: " + ", ".join(f"{k} = {_text(v)}" for k, v in said.items() if v != [])
    yield f"  todo = {_text(settings.todo_for(str(path)))}, accept = {_text(sorted(settings.accepts(str(path))))}"


def _data(path: Path, settings: Settings) -> dict[str, Any]:
    where = dict(settings.sources)
    data: dict[str, Any] = {
        "origin": str(settings.origin) if settings.origin else None,
        "settings": {
            key: {
                "value": _plain(getattr(settings, key.replace("-", "_"))),
                "from": [str(p) for p in where.get(key, ())],
            }
            for key in KEYS
        },
    }
    if path.is_file():
        data["file"] = {
            "path": str(path),
            "passed_over": excluded(path, settings) or None,
            "todo": settings.todo_for(str(path)),
            "accept": sorted(settings.accepts(str(path))),
        }
    return data


def _plain(value: object) -> Any:
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    if hasattr(value, "__dataclass_fields__"):
        return {k: _plain(v) for k, v in asdict(value).items()}  # type: ignore[call-overload]
    return str(value) if isinstance(value, Path) else value


def _text(value: object) -> str:
    """A value as TOML would write it, a missing one as `-`."""
    return "-" if value is None else json.dumps(_plain(value), ensure_ascii=False)
