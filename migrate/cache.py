"""Results of earlier runs: a second run over the same text with the same rules and settings reads them back.

One file holds one whole run, since what becomes of a file depends on the others. Its name is a digest of all that the
result depends on: this tool's own files, the rules, the settings, and every source with its path. The content is JSON:
a file that somebody else put there can give a wrong report, but runs nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from . import __version__
from .config import Settings
from .output import OutputError, Write, write_all
from .read.source import Source
from .report.findings import Finding, Outcome, Run

WORTH = 100_000  # characters of source from which a run is kept: less is converted as fast
MOST = 64  # runs that are kept
PACKAGE = Path(__file__).resolve().parent


def cache_folder() -> Path:
    """JAXMIGRATE_CACHE_DIR, or `jaxmigrate` in the user's folder for caches."""
    if own := os.environ.get("JAXMIGRATE_CACHE_DIR"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jaxmigrate"


@dataclass(frozen=True)
class Cache:
    """The place of one run's result."""

    path: Path
    sources: tuple[Source, ...]

    @classmethod
    def for_run(cls, sources: Sequence[Source], settings: Settings, refused: object = None) -> Cache | None:
        """None when the settings say no, or the run is too small to be worth it."""
        if not settings.cache or sum(len(s.text) for s in sources) < WORTH:
            return None
        try:
            return cls(cache_folder() / f"{_digest(sources, settings, refused)}.json.z", tuple(sources))
        except OSError:
            return None

    def load(self) -> Run | None:
        """The result, None when there is none that can be read."""
        try:
            data = json.loads(zlib.decompress(self.path.read_bytes()))
            run = _decoded(data, self.sources)
            os.utime(self.path)
        except (OSError, ValueError, KeyError, TypeError, IndexError, zlib.error):
            return None
        return run

    def store(self, run: Run) -> None:
        """Keep a result, and no more than `MOST` in all. A folder that cannot be written is no fault."""
        data = json.dumps(_encoded(run), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
        with suppress(OutputError, OSError):
            write_all([Write(self.path, zlib.compress(data, 1))])
            kept = sorted(self.path.parent.glob("*.json.z"), key=lambda p: p.stat().st_mtime)
            for old in kept[:-MOST]:
                old.unlink(missing_ok=True)


def _digest(sources: Sequence[Source], settings: Settings, refused: object) -> str:
    digest = hashlib.sha256()
    for part in _parts(sources, settings, refused):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(f"{len(data)}:".encode())
        digest.update(data)
    return digest.hexdigest()


def _parts(sources: Sequence[Source], settings: Settings, refused: object) -> Iterator[str]:
    yield f"{__version__} {sys.version}"
    rules = PACKAGE.parent / "rules" if (PACKAGE.parent / "rules").is_dir() else PACKAGE / "rules"
    for folder in (PACKAGE, rules):
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".py", ".toml", ".json", ".gz"):
                stat = path.stat()
                yield f"{path} {stat.st_size} {stat.st_mtime_ns}"
    for path in settings.rules:
        yield path.read_text(encoding="utf-8", errors="replace")
    yield repr((settings.todo, settings.per_file, settings.outputs, _sorted(refused)))
    yield repr([(key, getattr(settings, key)) for key in sorted(vars(settings)) if key not in _NO_EFFECT])
    for source in sources:
        yield f"{source.path}\0{source.layers}\0{source.package}\0{source.encoding}\0{source.bom}"
        yield source.notebook.text if source.notebook else source.text


# Settings that do not change what a conversion gives (the rules are read above).
_NO_EFFECT = frozenset(
    ("exclude", "gitignore", "rules", "fail_on", "fail_under", "accept", "baseline", "jobs", "cache", "verify")
) | {"origin", "sources"}


def _sorted(refused: object) -> object:
    return sorted((k, sorted(v)) for k, v in refused.items()) if isinstance(refused, dict) else refused


def _encoded(run: Run) -> dict[str, Any]:
    return {
        "rules": run.rules,
        "layer_file": run.layer_file,
        "extra": [astuple(f) for f in run.extra],
        "outcomes": [_outcome(o) for o in run.outcomes],
    }


def _outcome(outcome: Outcome) -> list[Any]:
    after = outcome.after if outcome.after != outcome.before else None
    findings = [[getattr(f, name) for name in _FIELDS] for f in outcome.findings]
    lines = [[*key, line] for key, line in outcome.lines.items()]
    return [outcome.path, outcome.status, after, findings, sorted(outcome.layers), outcome.torch_free, lines]


_FIELDS = tuple(Finding.__dataclass_fields__)


def _decoded(data: dict[str, Any], sources: Sequence[Source]) -> Run:
    by_path = {s.path: s for s in sources}
    outcomes = []
    for path, status, after, findings, layers, torch_free, lines in data["outcomes"]:
        source = by_path[path]
        before = source.notebook.text if source.notebook and status != "skipped" else source.text
        found = tuple(_finding(f) for f in findings)
        at = {(cell, line): number for cell, line, number in lines}
        outcomes.append(
            Outcome(
                path, status, before, before if after is None else after, found, frozenset(layers), torch_free,
                source.encoding, source.bom, at,
            )
        )  # fmt: skip
    return Run(tuple(outcomes), data["layer_file"], data["rules"], tuple(_finding(f) for f in data["extra"]))


def _finding(values: Sequence[Any]) -> Finding:
    path, start, end, *rest = values
    return Finding(path, tuple(start), tuple(end), *rest)
