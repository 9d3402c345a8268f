"""What was decided in a review, in a file: so that it can be resumed, and applied by `convert --decisions`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from ..files import Input, InputError
from ..output import Write, write_all

SCHEMA = "jaxmigrate-decisions/1"
DEFAULT = Path(".jaxmigrate-review.json")


@dataclass
class Decisions:
    """`refused` holds the keys of findings by file, `accepted` keys of hunks, `edited` new texts by the key of the
    hunk; `rules` those whose hunks are all accepted. Files are named from the folder of `path`."""

    path: Path
    accepted: set[str] = field(default_factory=set)
    refused: dict[str, set[str]] = field(default_factory=dict)
    edited: dict[str, dict[str, str]] = field(default_factory=dict)
    rules: set[str] = field(default_factory=set)

    def name(self, path: str | Path) -> str:
        """How a file is named here."""
        return PurePath(os.path.relpath(path, self.path.parent)).as_posix()

    def refuse(self, path: str, keys: Iterable[str]) -> None:
        self.refused.setdefault(self.name(path), set()).update(keys)

    def refused_in(self, inputs: Iterable[Input]) -> dict[str, frozenset[str]]:
        """The refused keys by the path of each input that has some."""
        named = {str(item.path): self.refused.get(self.name(item.path)) for item in inputs}
        return {path: frozenset(keys) for path, keys in named.items() if keys}

    def edits_of(self, path: str) -> Mapping[str, str]:
        return self.edited.get(self.name(path), {})

    def save(self) -> None:
        """Write the file, whole or not at all."""
        data = {
            "schema": SCHEMA,
            "accepted": sorted(self.accepted),
            "refused": {path: sorted(keys) for path, keys in sorted(self.refused.items())},
            "edited": self.edited,
            "rules": sorted(self.rules),
        }
        write_all([Write(self.path, (json.dumps(data, indent=1, ensure_ascii=False) + "\n").encode())])


def load_decisions(path: Path, *, must_exist: bool = False) -> Decisions:
    """The decisions in a file, none when it does not exist. Raises InputError for a file that holds none."""
    if not path.exists() and not must_exist:
        return Decisions(path)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["schema"] != SCHEMA:
            raise InputError(f"{path}: not decisions of this version: {data['schema']!r} instead of {SCHEMA!r}")
        refused = {str(k): set(map(str, v)) for k, v in data["refused"].items()}
        edited = {str(k): {str(a): str(b) for a, b in v.items()} for k, v in data["edited"].items()}
        return Decisions(path, set(data["accepted"]), refused, edited, set(data["rules"]))
    except OSError as error:
        raise InputError(f"{path}: {(error.strerror or str(error)).lower()}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: not the decisions of a review") from error
