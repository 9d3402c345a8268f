"""`verify --propose`: find out what to run, in a confined process, and write it as a file of cases to edit."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .cases import CaseError, parse_case
from .processes import run_items
from .record import Recording
from .results import VerifyOptions
from .roots import Roots, read_roots
from .worker import Item

_ROUNDS = 3  # classes, their parts where nothing was found, and the parts of those
_TIME = 60.0  # seconds for each class


@dataclass(frozen=True)
class Proposed:
    """A class with the case that was found, or the reason why there is none. `found` says how each value was found."""

    name: str
    build: str = ""
    inputs: tuple[str, ...] = ()
    found: tuple[str, ...] = ()
    reason: str = ""


def propose(original: Path, text: str, options: VerifyOptions) -> list[Proposed]:
    """A proposal for each module class of a file that is not a part of another one. Raises CaseError."""
    return propose_all([(original, text)], options)[0]


def propose_all(sources: Sequence[tuple[Path, str]], options: VerifyOptions) -> list[list[Proposed]]:
    """The proposals for several files, given as path and text, from one process. Raises CaseError."""
    roots = [_roots(path, text) for path, text in sources]
    found: list[dict[str, list[Proposed]]] = [{} for _ in sources]
    wanted = [(number, name) for number, r in enumerate(roots) for name in r.classes]
    for _ in range(_ROUNDS):
        for (number, name), recording in zip(wanted, _run(sources, wanted, options), strict=True):
            found[number][name] = _proposed(name, recording)
        wanted = [(n, part) for n, r in enumerate(roots) for part in _promoted(r, found[n])]
        if not wanted:
            break
    for one, r in zip(found, roots, strict=True):
        for part, owners in r.parts.items():
            one.setdefault(part, [Proposed(part, reason=f"it is a part of {owners[0]}")])
    return [[item for items in one.values() for item in items] for one in found]


def _promoted(roots: Roots, found: Mapping[str, Sequence[Proposed]]) -> list[str]:
    """Parts of classes for which nothing was found: they are worth a case of their own."""
    lost = {name for name, items in found.items() if not any(i.build for i in items)}
    return [part for part, owners in roots.parts.items() if part not in found and lost.issuperset(owners)]


def _run(
    sources: Sequence[tuple[Path, str]], wanted: Sequence[tuple[int, str]], options: VerifyOptions
) -> list[Recording]:
    limited = replace(options, timeout=min(options.timeout, _TIME))
    with tempfile.TemporaryDirectory(prefix="jaxmigrate-propose-") as folder:
        scratch = Path(folder)
        items = [Item(sources[n][0], parse_case(f"{name}()"), scratch / str(i)) for i, (n, name) in enumerate(wanted)]
        return run_items("propose", items, limited, scratch)


def _roots(path: Path, text: str) -> Roots:
    try:
        roots = read_roots(text)
    except SyntaxError as error:
        raise CaseError(f"{path}:{error.lineno}: {error.msg}") from None
    if not roots.classes:
        raise CaseError(f"{path}: no class of it is a module, so there is nothing to propose")
    return roots


def _proposed(cls: str, recording: Recording) -> list[Proposed]:
    load, step = recording.get("load"), recording.get("propose")
    if error := load.error or step.error:
        return [Proposed(cls, reason=error)]
    facts: dict[str, Any] = step.facts
    if "other" in facts:
        return []
    if "build" not in facts:
        return [Proposed(cls, reason=str(facts.get("nothing") or facts.get("missing")))]
    found = (f"{facts['build']}: {facts['how']}", *facts["inputs_how"])
    inputs = tuple(facts["inputs"])
    cases = [Proposed(cls, facts["build"], inputs, found)]
    if extra := facts.get("optional"):
        said = f"{extra.partition('=')[0]}: the last layer's size; it changes what is returned"
        cases.append(Proposed(cls, facts["build"], (*inputs, extra), (said,)))
    return cases


def cases_file(original: Path, target: Path, proposed: Sequence[Proposed]) -> str:
    """The text of a TOML file at `target` that `verify --case` reads."""
    file = os.path.relpath(original.resolve(), target.resolve().parent)
    lines = [f"# Found by `jaxmigrate verify {file} --propose`; yours to edit. It is read by", "#",
             f"#     jaxmigrate verify {file} --case {target.name}"]  # fmt: skip
    for item in proposed:
        if item.build:
            lines += ["", *(f"# {' '.join(said.split())}" for said in item.found), "[[verify]]"]
            lines += [f"file = {_quoted(file)}", f"build = {_quoted(item.build)}"]
            lines.append(f"inputs = [{', '.join(map(_quoted, item.inputs))}]")
    left = [item for item in proposed if not item.build]
    if left:
        lines += ["", "# Not proposed:", *(f"#   {i.name}: {' '.join(i.reason.split())}" for i in left)]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
