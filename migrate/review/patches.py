"""A conversion as several patches, by file or by rule, that `git apply` takes one after the other."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..gate import LAYER_FILE
from ..output import Write
from ..report.diff import diff_bytes, split_lines
from ..report.findings import Outcome
from ..work import Work
from .hunks import Hunk, hunks_of

FOLLOWS = "imports and what else follows"


def patches_by_file(work: Work, folder: Path) -> list[Write]:
    """One patch for each file that changes, and one that adds the layer files."""
    names = _Names(folder)
    writes = [names.write(o.path, diff_bytes(o)) for o in work.changed]
    return [*writes, *_layers(work, names)]


def patches_by_rule(work: Work, folder: Path) -> list[Write]:
    """One patch for each rule that changes something, the most frequent first: hunks of several rules go with the
    rarest of them, and those without any (imports) come last. Each patch is made against what the ones before it
    leave."""
    names = _Names(folder)
    hunks = {o.path: hunks_of(o) for o in work.changed}
    frequency = Counter(rule for hs in hunks.values() for h in hs for rule in h.rules)
    order = [rule for rule, _ in sorted(frequency.items(), key=lambda pair: (-pair[1], pair[0]))]
    owner = {h.key: _owner(h, frequency) for hs in hunks.values() for h in hs}
    writes = []
    done: set[str] = set()
    for rule in [*order, FOLLOWS]:
        mine = {key for key, name in owner.items() if name == rule}
        if not mine:
            continue
        parts = [_step(o, hunks[o.path], done, done | mine) for o in work.changed]
        writes.append(names.write(rule, f"{rule}\n\n".encode() + b"".join(parts)))
        done |= mine
    return [*writes, *_layers(work, names)]


def _owner(hunk: Hunk, frequency: Mapping[str, int]) -> str:
    return min(hunk.rules, key=lambda rule: (frequency[rule], rule), default=FOLLOWS)


class _Names:
    """Numbered file names, in the order in which the patches apply."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.number = folder, 0

    def write(self, title: str, data: bytes) -> Write:
        self.number += 1
        slug = re.sub(r"[^\w.]+", "-", title).strip("-.")[:80] or "patch"
        return Write(self.folder / f"{self.number:04}-{slug}.patch", data)


def _step(outcome: Outcome, hunks: Sequence[Hunk], before: set[str], after: set[str]) -> bytes:
    old, new = (_applied(outcome, hunks, keys) for keys in (before, after))
    return diff_bytes(replace(outcome, before=old, after=new, findings=()))


def _applied(outcome: Outcome, hunks: Sequence[Hunk], keys: set[str]) -> str:
    """The file with those of its hunks applied."""
    lines = split_lines(outcome.before)
    for hunk in reversed(hunks):
        if hunk.key in keys:
            lines[hunk.start : hunk.stop] = hunk.after
    return "".join(lines)


def _layers(work: Work, names: _Names) -> Iterator[Write]:
    """Patches that add the layer file where there is none."""
    roots = dict.fromkeys(i.root for i in work.inputs if str(i.path) in {o.path for o in work.changed if o.layers})
    parts = []
    for root in roots:
        path = root / LAYER_FILE
        if work.run.layer_file and not path.exists():
            parts.append(_new_file(path, work.run.layer_file))
    if parts:
        yield names.write(LAYER_FILE, b"".join(parts))


def _new_file(path: Path, text: str) -> bytes:
    name = path.as_posix().lstrip("/")
    lines = split_lines(text)
    head = f"diff --git a/{name} b/{name}\nnew file mode 100644\n--- /dev/null\n+++ b/{name}\n"
    head += f"@@ -0,0 +1,{len(lines)} @@\n"
    return (head + "".join(f"+{line}" for line in lines)).encode()
