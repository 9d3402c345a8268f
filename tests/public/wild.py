"""The results of tests/public/run.py, kept from run to run, and the page of them."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import measure

KEPT = measure.ROOT / ".cache" / "wild.json"
Results = Mapping[str, tuple[str, measure.Measured]]  # by program: the converter's commit and the verdict


def commit() -> str:
    """The commit of the converter that is running, marked when its files differ from it."""
    head = ["git", "-C", str(measure.ROOT), "log", "-1", "--format=%h", "--", "migrate", "rules"]
    done = subprocess.run(head, capture_output=True, text=True, check=False)
    changes = ["git", "-C", str(measure.ROOT), "status", "--porcelain", "--", "migrate", "rules"]
    changed = subprocess.run(changes, capture_output=True, text=True, check=False).stdout.strip()
    return (done.stdout.strip() or "unknown") + (" with changes" if changed else "")


def keep(results: Sequence[measure.Measured], converter: str) -> None:
    """Add results to those kept, in place of older ones of the same programs."""
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    with KEPT.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several runs may add to it
        everything = _read()
        everything |= {r.name: {"commit": converter, **dataclasses.asdict(r)} for r in results}
        KEPT.write_text(json.dumps(everything, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def kept() -> Results:
    found = {}
    for name, entry in _read().items():
        converter = entry.pop("commit")
        found[name] = (converter, measure.Measured(**{**entry, "left": tuple(entry["left"])}))
    return found


def _read() -> dict[str, dict[str, Any]]:
    return json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}


def page(listed: Mapping[str, Any], everything: Results) -> str:
    """docs/wild.md, from what was measured of the listed programs. A result of an older converter says so."""
    names = [p["name"] for p in sorted(listed["program"], key=lambda p: p["package"])]
    measured = [everything[n] for n in names if n in everything]
    results = [result for _, result in measured]
    pins = ", ".join(f"{name} {listed['packages'][name]}" for name in sorted(listed["packages"]))
    missing = [n for n in names if n not in everything]
    equal = sum(r.verdict == "equal" for r in results)
    head = [
        "# Public models",
        "",
        "Written by `make wild` (`python tests/public/run.py --docs`). Models of public packages, converted unmodified",
        "and run in both frameworks with the same weights: outputs, gradients and buffers, in train and in eval mode.",
        "`equal`: each number agrees; `reported`: the report says what was left, and the program does not run to equal",
        "numbers without it; `crash`: nothing was reported and it does not run; `WRONG`: nothing was reported and a",
        "number differs. Errors are relative to the largest value compared, at least 1. A model is converted together",
        "with the files of its package that it imports: what was left is that of all of them. torch is blocked while",
        "the converted program runs.",
        "",
        "A model that differs in float32 is run in float64 too (`float64` in its row): what is gone there is rounding,",
        "and is held against torch's own, as verify does it (verify.md): where an equal model has a large error,",
        "torch's float32 is about as far from its own float64. Modules that no example reaches",
        "(data sets, transforms, downloads, compiled operators) are stand-ins: `stand_ins` in the list.",
        "",
        "The list, `corpus/public.toml`, was made from a manifest of 151 models. Four of them are not in it: the three",
        "of yunjey/pytorch-tutorial are no package on PyPI, and labml-nn/batch_norm_train is labml-nn/batch_norm, run",
        "in both modes here.",
        "",
        f"Packages: {pins}.",
        "",
        f"**{measure.totals(results)}** ({100 * equal / max(1, len(results)):.0f} % equal).",
        *([f"Not measured: {', '.join(missing)}."] if missing else []),
        *_commits([converter for converter, _ in measured]),
        "",
    ]
    reasons = Counter(name for r in results if r.verdict != "equal" for name in dict.fromkeys(r.left) if name != "…")
    tail = ["", "What was left most often in the models that are not equal:", ""]
    tail += [f"- {name}: {count}" for name, count in reasons.most_common(25)]
    return "\n".join([*head, *_table(results), *(tail if reasons else []), ""])


def _commits(converters: Sequence[str]) -> list[str]:
    """Which converter gave the results: its last commit that touched `migrate/` or `rules/`."""
    count = Counter(converters).most_common()
    if len(count) == 1:
        return [f"Converter: commit {count[0][0]}."]
    return [f"Measured in parts, by the converter of commits {', '.join(f'{c} ({n} models)' for c, n in count)}."]


def _table(results: Sequence[measure.Measured]) -> list[str]:
    """A row a program; of one that is not equal, where it stopped."""
    lines = ["| program | verdict | largest errors | left or unmapped, and where it stopped |", "|---|---|---|---|"]
    for r in results:
        names = ", ".join(dict.fromkeys(r.left))
        names = names[:160] + ("…" if len(names) > 160 else "")
        why = " ".join(r.detail.split()).replace("|", "\\|")[:200] if r.verdict != "equal" else ""
        cell = ". ".join(part for part in (names, why) if part)
        lines.append(f"| {r.name} | {r.verdict} | {r.errors} | {cell} |")
    return lines
