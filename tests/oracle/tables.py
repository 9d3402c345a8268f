"""What became of each case, and the tables drawn from that."""

from __future__ import annotations

import json
import tomllib
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import plugins
from pool import File, Said

OUTCOMES = ("pass", "stated", "reported", "crash", "WRONG")


@dataclass(frozen=True)
class Record:
    """One case. `outcome` as README.md says; `ran` is what running it gave, whatever the report says of it."""

    suite: str
    id: str
    op: str
    variant: str
    edge: str
    file: str
    fn: str
    lines: tuple[int, int]
    outcome: str
    ran: str
    stage: str
    detail: str


def classify(
    files: list[File], results: Mapping[tuple[str, str], Said], findings: Mapping[str, list[dict[str, Any]]]
) -> list[Record]:
    """The final records. A case that the converter reported is `reported`, whatever running it gave: a pass must be
    silent, so reporting everything gains nothing."""
    records = []
    reviewed = tomllib.loads((Path(__file__).parent / "reviewed.toml").read_text())
    for f in files:
        here = [x for x in findings[f.suite] if Path(x["path"]).name == f.source.name]
        for case in f.cases:
            ran, stage, detail = results[f.suite, case["id"]]
            said = plugins.reported(case, here)
            outcome = "reported" if said == "reported" else "stated" if said and ran == "WRONG" else ran
            if outcome == "WRONG" and case["id"] in reviewed:
                outcome, detail = "stated", f"{detail}; reviewed: {reviewed[case['id']]}"
            records.append(
                Record(
                    suite=f.suite,
                    id=case["id"],
                    op=case["op"],
                    variant=case["variant"].split(":")[0],
                    edge=case.get("edge", ""),
                    file=f.stem,
                    fn=case["fn"],
                    lines=tuple(case["lines"]),
                    outcome=outcome,
                    ran=ran,
                    stage=stage,
                    detail=detail,
                )
            )
    return records


def count(records: list[Record], key: str) -> dict[str, Counter[str]]:
    """Outcomes by the value of a field."""
    groups: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for r in records:
        groups[getattr(r, key)][r.outcome] += 1
    return dict(sorted(groups.items()))


def text(records: list[Record], key: str, title: str) -> str:
    groups = count(records, key)
    width = max([len(title), *(len(g) for g in groups)])
    lines = [f"{title:{width}}  {'cases':>6} " + " ".join(f"{o:>8}" for o in OUTCOMES)]
    for g, n in groups.items():
        lines.append(f"{g:{width}}  {n.total():6d} " + " ".join(f"{n[o]:8d}" for o in OUTCOMES))
    return "\n".join([*lines, ""])


def total(records: list[Record]) -> str:
    n = Counter(r.outcome for r in records)
    right = sum(r.outcome == "reported" and r.ran == "pass" for r in records)
    looked = sum("; reviewed: " in r.detail for r in records)
    reviewed = f"; stated by review: {looked}" if looked else ""
    return (
        f"TOTAL {len(records)}: "
        + ", ".join(f"{o} {n[o]}" for o in OUTCOMES)
        + f"; reported but right: {right}{reviewed}"
    )


def changes(before: Path, records: list[Record]) -> list[str]:
    """One line for each case whose outcome changed since an earlier run."""
    old = {(r["suite"], r["id"]): r["outcome"] for r in json.loads(before.read_text())["cases"]}
    moved = [(old.get((r.suite, r.id), r.outcome), r) for r in records]
    return [f"changed: {was} -> {r.outcome}  {r.id}  {r.detail}" for was, r in moved if was != r.outcome]


def to_json(records: list[Record], converter: str, notes: list[str]) -> str:
    head = {"total": Counter(r.outcome for r in records), "converter": converter, "notes": notes}
    return json.dumps({**head, "cases": [asdict(r) for r in records]}, indent=0)


DATABASES = {"ops": "op_db (OpInfo)", "modules": "module_db (ModuleInfo)", "optims": "optim_db (OptimizerInfo)"}


def page(suite: str, records: list[Record]) -> str:
    """docs/oracle-SUITE.md."""
    head = [
        f"# PyTorch's own test database: {suite}",
        "",
        f"Written by `python tests/oracle/run.py {suite} --docs`. Inputs: PyTorch's {DATABASES[suite]};",
        "answers: what torch computes. Values, dtype kinds and gradients are compared. What the outcomes mean is in",
        "`tests/oracle/README.md`.",
        "",
        total(records),
    ]
    for key in ("edge", "op"):
        groups = count(records, key)
        if len(groups) > 1:
            head += ["", f"| {key} | cases | " + " | ".join(OUTCOMES) + " |", "|---|" + "---:|" * (len(OUTCOMES) + 1)]
            head += [
                f"| {g or 'plain'} | {n.total()} | " + " | ".join(str(n[o] or "") for o in OUTCOMES) + " |"
                for g, n in groups.items()
            ]
    return "\n".join([*head, ""])
