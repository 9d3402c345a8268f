"""Notebooks: the code cells of an .ipynb file as one module, and the converted module back into its cells.

Only the cells' sources (and the outputs of changed cells) are replaced in the JSON text: every other byte stays.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .magics import Shielded, restore, shield
from .notebook_json import Node, parse

MARK = "# %% jaxmigrate cell "
_MARK_LINE = re.compile(rf"^{re.escape(MARK)}(\d+)\n", re.MULTILINE)
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')


class NotebookError(Exception):
    """The file is no notebook that can be converted: the message says why."""


@dataclass(frozen=True)
class Cell:
    """A code cell in Python. `number` counts all cells from 1; the nodes are places in the JSON text."""

    number: int
    text: str
    shielded: Shielded
    source: Node
    outputs: Node | None
    count: Node | None


@dataclass(frozen=True)
class Notebook:
    """`text` is the JSON. `kept` are cells of another language (`%%bash`): number and text."""

    text: str
    cells: tuple[Cell, ...]
    kept: tuple[tuple[int, str], ...]

    def module(self) -> str:
        """All code cells as one module, each headed by a comment with its number; magics are calls of unknown names."""
        return "".join(f"{MARK}{cell.number}\n{cell.shielded.text}\n" for cell in self.cells)

    def locate(self, line: int) -> tuple[int, int]:
        """The cell and the line in it (from 1) of a line of `module()`."""
        at = 1
        for cell in self.cells:
            length = 1 + cell.shielded.text.count("\n") + 1
            if line < at + length:
                return cell.number, max(1, line - at)
            at += length
        return (self.cells[-1].number, 1) if self.cells else (1, 1)

    def lines(self) -> dict[tuple[int, int], int]:
        """For each line of each cell (cell, line): the line of the JSON text on which it stands."""
        found = {}
        for cell in self.cells:
            starts = _string_starts(self.text, cell.source)
            for at in range(cell.text.count("\n") + 1):
                start = starts[min(at, len(starts) - 1)] if starts else cell.source.start
                found[cell.number, at + 1] = self.text.count("\n", 0, start) + 1
        return found


def read_notebook(text: str) -> Notebook:
    """Raises NotebookError for JSON that is no notebook of format 4 with Python in it."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise NotebookError(f"not a notebook: {error}") from error
    if not isinstance(data, dict) or "nbformat" not in data:
        raise NotebookError("not a notebook: its JSON has no nbformat")
    if data["nbformat"] != 4 or not isinstance(data.get("cells"), list):
        raise NotebookError(
            f"a notebook of format {data['nbformat']}; only format 4 is read: jupyter nbconvert --to notebook writes it"
        )
    language = _language(data)
    if language not in ("", "python", "ipython", "python3"):
        raise NotebookError(f"a notebook in {language}, not in Python")
    root = parse(text)
    cells, kept = [], []
    for number, (cell, node) in enumerate(zip(data["cells"], root.members["cells"].items, strict=True), start=1):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code" or "source" not in node.members:
            continue
        source = "".join(cell["source"])
        shielded = shield(source)
        if shielded is None:
            kept.append((number, source))
        else:
            places = node.members["source"], node.members.get("outputs"), node.members.get("execution_count")
            cells.append(Cell(number, source, shielded, *places))
    return Notebook(text, tuple(cells), tuple(kept))


def write_notebook(notebook: Notebook, module: str, outputs: str = "clear-changed") -> str:
    """The JSON text with the cells of a converted `module`. `outputs`: "clear-changed" empties those of cells whose
    code changed (another program printed them), "clear" those of all code cells, "keep" none.

    Raises NotebookError when the module no longer has every cell in its place.
    """
    edits: list[tuple[Node, str]] = []
    texts = _split(module, notebook)
    for cell, text in zip(notebook.cells, texts, strict=True):
        changed = text != cell.text
        if changed:
            edits.append((cell.source, _render(notebook.text, cell.source, text)))
        if (changed and outputs != "keep") or outputs == "clear":
            if cell.outputs is not None and cell.outputs.items:
                edits.append((cell.outputs, "[]"))
            if cell.count is not None:
                edits.append((cell.count, "null"))
    out, at = [], 0
    for node, new in sorted(edits, key=lambda e: e[0].start):
        out += [notebook.text[at : node.start], new]
        at = node.end
    return "".join([*out, notebook.text[at:]])


def _split(module: str, notebook: Notebook) -> Iterator[str]:
    parts = _MARK_LINE.split(module)
    numbers = [int(n) for n in parts[1::2]]
    if parts[0].strip() or numbers != [c.number for c in notebook.cells]:
        raise NotebookError("code would move from one cell to another")
    for cell, text in zip(notebook.cells, parts[2::2], strict=True):
        yield restore(text.removesuffix("\n"), cell.shielded)


def _language(data: dict[str, Any]) -> str:
    metadata = data.get("metadata") or {}
    info = metadata.get("language_info") or {}
    spec = metadata.get("kernelspec") or {}
    return str(info.get("name") or spec.get("language") or "").lower()


def _string_starts(text: str, node: Node) -> list[int]:
    return [m.start() for m in _STRING.finditer(text, node.start, node.end)]


def _render(text: str, node: Node, source: str) -> str:
    """`source` as JSON in the layout of the node that it replaces; lines that were there keep their spelling."""
    ascii_only = text.isascii()
    if not text.startswith("[", node.start):
        return json.dumps(source, ensure_ascii=ascii_only)
    if not source:
        return "[]"
    spans = [(m.start(), m.end()) for m in _STRING.finditer(text, node.start, node.end)]
    spelled = {json.loads(text[a:b]).removesuffix("\n"): text[a:b] for a, b in spans}
    first = text[node.start + 1 : spans[0][0]] if spans else ""
    last = text[spans[-1][1] : node.end - 1] if spans else ""
    between = text[spans[0][1] : spans[1][0]] if len(spans) > 1 else f",{first or ' '}"
    lines = re.findall(r"[^\n]*\n|[^\n]+", source)
    encoded = []
    for line in lines:
        old = spelled.get(line.removesuffix("\n"))
        same = old is not None and json.loads(old) == line
        encoded.append(old if same and old is not None else json.dumps(line, ensure_ascii=ascii_only))
    return f"[{first}{between.join(encoded)}{last}]"
