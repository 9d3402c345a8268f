"""What becomes of a notebook's outcome: findings name cell and line, the text is the notebook's JSON again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from .notebook import Notebook, NotebookError, write_notebook
from .read.source import Source
from .report.findings import Finding, Outcome

_IMPORT = re.compile(r"^\s*(?:import\s+(.+)|from\s+torch[\w.]*\s+import\s+(.+))$", re.MULTILINE)
_WORD = re.compile(r"[A-Za-z_]\w*")


def finish(outcome: Outcome, source: Source, outputs: str) -> Outcome:
    """The outcome of a module that was made of a notebook, as one of the notebook. One of a file is given back as it
    is."""
    notebook = source.notebook
    if notebook is None:
        return outcome
    findings = [_placed(f, notebook) for f in outcome.findings]
    findings += _in_magics(notebook, source.path)
    after, status = notebook.text, outcome.status
    if status == "changed" or (outputs == "clear" and status == "unchanged"):
        try:
            after = write_notebook(notebook, outcome.after, outputs)
        except NotebookError as error:
            status, findings = "failed", [Finding(source.path, (1, 1), (1, 1), "JM902", "", "", str(error))]
        else:
            status = "changed" if after != notebook.text else "unchanged"
    left = any(f.code == "JM222" for f in findings)
    return replace(
        outcome,
        status=status,
        before=notebook.text,
        after=after,
        findings=tuple(sorted(findings, key=lambda f: (f.place, f))),
        torch_free=outcome.torch_free and not left,
        lines=notebook.lines(),
    )


def _placed(finding: Finding, notebook: Notebook) -> Finding:
    cell, line = notebook.locate(finding.start[0])
    last_cell, last = notebook.locate(finding.end[0])
    end = (last, finding.end[1]) if last_cell == cell else (line, finding.start[1])
    return replace(finding, start=(line, finding.start[1]), end=end, cell=cell)


def _in_magics(notebook: Notebook, path: str) -> Iterator[Finding]:
    """Magic and shell lines, and cells of another language, that speak of torch or of a name imported from it."""
    names = _torch_names("\n".join(c.shielded.text for c in notebook.cells))
    for cell in notebook.cells:
        lines = cell.text.split("\n")
        for at, (line, hidden) in enumerate(zip(lines, cell.shielded.text.split("\n"), strict=True), start=1):
            if line != hidden and names & set(_WORD.findall(line)):
                yield _magic(path, cell.number, at, line)
    for number, text in notebook.kept:
        for at, line in enumerate(text.split("\n"), start=1):
            if "torch" in line:
                yield _magic(path, number, at, line)
                break


def _torch_names(module: str) -> set[str]:
    names = {"torch"}
    for plain, members in _IMPORT.findall(module):
        for part in (plain or members).strip("() ").split(","):
            words = part.split()
            if words and (members or words[0].partition(".")[0] == "torch"):
                names.add(words[-1].partition(".")[0])
    return names


def _magic(path: str, cell: int, line: int, text: str) -> Finding:
    start = len(text) - len(text.lstrip()) + 1
    return Finding(
        path, (line, start), (line, len(text) + 1), "JM222", "torch", "magic", f"`{text.strip()}` is left as it is",
        advice="Convert it by hand.", before=text.strip(), cell=cell,
    )  # fmt: skip
