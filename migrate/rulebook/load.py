"""Read rule files into a rule book: an index by torch name."""

from __future__ import annotations

import gzip
import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from pathlib import Path
from typing import Any

from .rows import Row, RuleError, check


@dataclass(frozen=True)
class RuleBook:
    """All rows, by each of their names. `digest` is "sha256:…" over the files' bytes."""

    rows: Mapping[str, Row]
    digest: str

    def find(self, name: str) -> Row | None:
        """The row for a canonical torch name, or None."""
        return self.rows.get(name)

    def find_called(self, name: str) -> Row | None:
        """The row for a call of the name: of a type that may be called (`torch.Tensor`) another row speaks."""
        row = self.rows.get(name)
        called = row.get("called") if row is not None else None
        return self.rows.get(str(called)) if called else row

    @cached_property
    def methods(self) -> frozenset[str]:
        """Bare names of the tensor, module and optimizer methods that some row knows."""
        heads = ("torch.Tensor.", "torch.nn.Module.", "torch.optim.Optimizer.")
        return frozenset(n.rpartition(".")[2] for n in self.rows if n.startswith(heads))

    def __iter__(self) -> Iterator[Row]:
        """Each row once, by name."""
        return iter(sorted({id(r): r for r in self.rows.values()}.values(), key=lambda r: r.name))


def load_rules(extra: Sequence[Path] = (), *, strict: bool = False) -> RuleBook:
    """The built-in rows and those of the user's files, which may replace built-in ones.

    `strict` also checks signatures against torch's snapshot. Raises RuleError with file, row and reason.
    """
    built_in, digest = _built_in(strict)
    rows = dict(built_in)
    seen: dict[str, str] = {}
    hasher = hashlib.sha256(digest.encode())
    for path in extra:
        try:
            data = path.read_bytes()
        except OSError as error:
            raise RuleError(str(path), "", f"cannot be read: {error.strerror}") from error
        hasher.update(data)
        for row in parse(data.decode("utf-8", "replace"), str(path)):
            check(row)
            for name in row.names:
                if name in seen:
                    raise RuleError(str(path), row.name, f"two rules for {name}: also in {seen[name]}")
                seen[name] = str(path)
                rows[name] = row
    return RuleBook(rows, f"sha256:{hasher.hexdigest()}" if extra else digest)


def parse(text: str, path: str) -> list[Row]:
    """The rows of one TOML text. Raises RuleError when it is not TOML or a row is no table."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RuleError(path, "", f"not TOML: {error}") from error
    rows = []
    for name, value in data.items():
        if name == "packages":
            continue
        if not isinstance(value, dict):
            raise RuleError(path, name, 'a row is a table: ["torch.name"]')
        rows.append(Row(name, path, value))
    return rows


@cache
def _built_in(strict: bool) -> tuple[dict[str, Row], str]:
    hasher = hashlib.sha256()
    rows: dict[str, Row] = {}
    snapshot = signatures() if strict else None
    for path, text in _files():
        hasher.update(text.encode())
        for row in parse(text, path):
            if strict:
                check(row, snapshot)
            for name in row.names:
                if name in rows and strict:
                    raise RuleError(path, row.name, f"two rules for {name}: also in {rows[name].path}")
                rows.setdefault(name, row)
    return rows, f"sha256:{hasher.hexdigest()}"


def _files() -> list[tuple[str, str]]:
    root = resources.files("jaxmigrate.rules")
    found: list[tuple[str, str]] = []

    def walk(folder: Any, prefix: str) -> None:
        for entry in folder.iterdir():
            if entry.is_dir():
                walk(entry, f"{prefix}{entry.name}/")
            elif entry.name.endswith(".toml"):
                found.append((f"rules/{prefix}{entry.name}", entry.read_text(encoding="utf-8")))

    walk(root, "")
    return sorted(found)


@cache
def packages() -> Mapping[str, str]:
    """Import names of packages built on torch, with advice."""
    for path, text in _files():
        if path.endswith("packages.toml"):
            return tomllib.loads(text).get("packages", {})  # type: ignore[no-any-return]
    return {}


@cache
def signatures() -> Mapping[str, Any]:
    """torch's own signatures by canonical name (a snapshot made by tools/snapshot_signatures.py)."""
    data = (resources.files(__package__) / "torch_signatures.json.gz").read_bytes()
    return json.loads(gzip.decompress(data))["signatures"]  # type: ignore[no-any-return]


@dataclass(frozen=True)
class TorchNames:
    """torch's public names.

    names: module -> name -> kind letter. aliases: name -> canonical name. exports: module -> what a star import brings.
    """

    names: Mapping[str, Mapping[str, str]]
    aliases: Mapping[str, str]
    exports: Mapping[str, Sequence[str]]

    def known(self, dotted: str) -> bool:
        module, _, name = dotted.rpartition(".")
        return name in self.names.get(module, {})


@cache
def torch_names() -> TorchNames:
    data = json.loads((resources.files(__package__) / "torch_names.json").read_bytes())
    return TorchNames(data["names"], data["aliases"], data["exports"])
