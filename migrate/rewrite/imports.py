"""Imports, last: what the written text uses is imported, what it no longer uses of torch is not."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..read.scopes import Scopes
from ..read.source import Tree

KNOWN: Mapping[str, str] = {
    "jax": "import jax",
    "jnp": "import jax.numpy as jnp",
    "np": "import numpy as np",
    "optax": "import optax",
    "nnx": "from flax import nnx",
    "partial": "from functools import partial",
    "math": "import math",
    "pickle": "import pickle",
}
ORDER = ("math", "pickle", "partial", "jax", "jnp", "np", "optax", "nnx")
TORCH = ("torch", "einops.layers.torch")


@dataclass(frozen=True)
class Imported:
    """The text with its imports in order. `left` are the dotted torch names that it still uses."""

    text: str
    left: tuple[str, ...]


def fix_imports(text: str, layers: Iterable[str], layer_module: str = "nnx_layers") -> Imported:
    """Remove torch imports that nothing uses, add those that the text needs. Raises SyntaxError if `text` does not parse.

    `layers` are the layer-library names that the rewrite introduced.
    """
    tree = Tree(text)
    scopes = Scopes(tree.root)
    used = _used_names(tree)
    direct = {n for n in layers if n in used and _only_torch_binds(n, scopes)}
    wanted = _wanted(tree, scopes, direct, layer_module)
    edits: list[tuple[int, int, str]] = []
    left: list[str] = []
    anchor: int | None = None
    for stmt in [n for n in tree.parents if isinstance(n, (ast.Import, ast.ImportFrom))]:
        keep, gone = _split(stmt, used - direct)
        if not gone:
            left += [n for n in _torch_targets(stmt)]
            continue
        left += [f"{getattr(stmt, 'module', '') or ''}.{a.name}".strip(".") for a in keep if _leads_to_torch(stmt, a)]
        at_top = isinstance(tree.parents[stmt], ast.Module)
        edits.append(_shrink(tree, stmt, keep))
        if at_top and anchor is None:
            anchor = len(edits) - 1
    block = tree.newline.join(wanted)
    if block:
        edits = _place(tree, edits, anchor, block)
    return Imported(_apply(text, edits), tuple(left))


def _used_names(tree: Tree) -> set[str]:
    names = {n.id for n in tree.parents if isinstance(n, ast.Name)}
    for node in tree.parents:  # names in string annotations and in `__all__`
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 200:
            up = tree.parents.get(node)
            if isinstance(up, (ast.arg, ast.AnnAssign, ast.FunctionDef)) or _in_annotation(tree, node):
                names |= set(re.findall(r"[A-Za-z_]\w*", node.value))
    return names


def _in_annotation(tree: Tree, node: ast.AST) -> bool:
    child = node
    for up in tree.ancestors(node):
        if isinstance(up, (ast.arg, ast.AnnAssign)):
            return up.annotation is child
        if isinstance(up, ast.stmt):
            return isinstance(up, (ast.FunctionDef, ast.AsyncFunctionDef)) and up.returns is child
        child = up
    return False


def _only_torch_binds(name: str, scopes: Scopes) -> bool:
    """Whether a library name is free in this file, or only bound by the torch import that it takes the place of."""
    bindings = [b for s in scopes.of.values() if s.kind != "class" for b in s.bindings.get(name, [])]
    return all(b.target.startswith(tuple(f"{t}." for t in TORCH)) for b in bindings)


def _wanted(tree: Tree, scopes: Scopes, direct: set[str], layer_module: str) -> list[str]:
    bound = {n for s in scopes.of.values() if s.kind != "class" for n in s.bindings}
    free = {n.id for n in tree.parents if isinstance(n, ast.Name) and scopes.scope_of(n, tree.parents).lookup(n.id) is None}
    lines = [KNOWN[n] for n in ORDER if n in free and n not in bound]
    if direct:
        lines.append(f"from {layer_module} import {', '.join(sorted(direct, key=lambda n: (not n[0].isupper(), n)))}")
    if any(isinstance(n, ast.Name) and n.id == "nnx_layers" for n in tree.parents) and "nnx_layers" not in bound:
        lines.append("import nnx_layers" if layer_module == "nnx_layers" else f"from {layer_module.rpartition('.')[0] or '.'} import nnx_layers")
    return [w for line in lines for w in _wrap(line)]


def _wrap(line: str, width: int = 119) -> list[str]:
    if len(line) <= width or " import " not in line or not line.startswith("from"):
        return [line]
    head, _, names = line.partition(" import ")
    rows, row = [f"{head} import ("], ""
    for name in names.split(", "):
        if len(row) + len(name) + 6 > width:
            rows.append(f"    {row.strip()}")
            row = ""
        row += f"{name}, "
    return [*rows, f"    {row.strip()}", ")"]


def _leads_to_torch(stmt: ast.Import | ast.ImportFrom, alias: ast.alias) -> bool:
    base = alias.name if isinstance(stmt, ast.Import) else (stmt.module or "") if not stmt.level else ""
    return any(base == t or base.startswith(f"{t}.") for t in TORCH)


def _torch_targets(stmt: ast.Import | ast.ImportFrom) -> list[str]:
    module = "" if isinstance(stmt, ast.Import) else f"{stmt.module}."
    return [f"{module}{a.name}" for a in stmt.names if _leads_to_torch(stmt, a)]


def _split(stmt: ast.Import | ast.ImportFrom, used: set[str]) -> tuple[list[ast.alias], list[ast.alias]]:
    """The aliases to keep and those that go: imports from torch whose name nothing reads any more."""
    keep, gone = [], []
    for alias in stmt.names:
        name = alias.asname or (alias.name.split(".")[0] if isinstance(stmt, ast.Import) else alias.name)
        unused = name not in used if alias.name != "*" else True
        (gone if _leads_to_torch(stmt, alias) and unused else keep).append(alias)
    return keep, gone


def _shrink(tree: Tree, stmt: ast.Import | ast.ImportFrom, keep: Sequence[ast.alias]) -> tuple[int, int, str]:
    start, end = tree.start(stmt), tree.end(stmt)
    if keep:
        names = ", ".join(a.name + (f" as {a.asname}" if a.asname else "") for a in keep)
        head = "import " if isinstance(stmt, ast.Import) else f"from {'.' * stmt.level}{stmt.module or ''} import "
        return start, end, head + names
    return start, end, ""


def _place(tree: Tree, edits: list[tuple[int, int, str]], anchor: int | None, block: str) -> list[tuple[int, int, str]]:
    """Put the new imports where the first torch import was; else after the docstring and `from __future__`."""
    if anchor is not None:
        start, end, rest = edits[anchor]
        text = block + (tree.newline + rest if rest else "")
        return [*edits[:anchor], (start, end, text), *edits[anchor + 1 :]]
    at = 0
    for stmt in tree.root.body:
        docstring = isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Constant) and isinstance(stmt.value.value, str)
        future = isinstance(stmt, ast.ImportFrom) and stmt.module == "__future__"
        if not (docstring or future):
            break
        at = tree.end(stmt)
    if at == 0:
        first = tree.start(tree.root.body[0]) if tree.root.body else 0
        return [*edits, (first, first, block + tree.newline)]
    return [*edits, (at, at, tree.newline + block)]


def _apply(text: str, edits: list[tuple[int, int, str]]) -> str:
    for start, end, new in sorted(edits, reverse=True):
        if not new:
            start, end, new = _whole_line(text, start, end)
        text = text[:start] + new + text[end:]
    return text


def _whole_line(text: str, start: int, end: int) -> tuple[int, int, str]:
    """Take the line with the statement, unless something else stands on it."""
    line = max(text.rfind("\n", 0, start), text.rfind("\r", 0, start)) + 1
    stop = end
    while stop < len(text) and text[stop] in " \t":
        stop += 1
    if text[line:start].strip():
        if text[stop : stop + 1] == ";":
            return start, stop + 1, ""
        return start, end, "pass"
    if text[stop : stop + 1] == ";":
        stop += 1
        while text[stop : stop + 1] == " ":
            stop += 1
        return start, stop, ""
    if text[stop : stop + 1] not in ("", "\r", "\n"):
        return start, end, ""  # a comment stays
    if text[stop : stop + 2] == "\r\n":
        stop += 2
    elif stop < len(text):
        stop += 1
    if text[line:start]:  # inside a block: it might be its only statement
        return start, end, "pass"
    return line, stop, ""
