"""Imports, last: what the written text uses is imported, what it no longer uses of torch is not."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..read.reexports import follow
from ..read.scopes import Scope, Scopes
from ..read.source import Tree
from ..read.unit import Unit

KNOWN: Mapping[str, str] = {
    "jax": "import jax",
    "jnp": "import jax.numpy as jnp",
    "np": "import numpy as np",
    "optax": "import optax",
    "nnx": "from flax import nnx",
    "partial": "from functools import partial",
    "nullcontext": "from contextlib import nullcontext",
    "Image": "from PIL import Image",
    "tensorboardX": "import tensorboardX",
    "math": "import math",
    "pickle": "import pickle",
}
ORDER = ("math", "pickle", "nullcontext", "partial", "jax", "jnp", "np", "optax", "Image", "tensorboardX", "nnx")
TORCH = ("torch", "einops.layers.torch", "torchvision", "timm.layers", "timm.models.layers", "timm.data")


@dataclass(frozen=True)
class Written:
    """The text with its imports in order.

    `left` are the dotted torch names that it still imports, `kept` the same as (bound name, name in the statement).
    `unit` is the text as it was before its imports changed, `names` its names and attributes; `unbound` are the names
    in it that nothing defines, with a line.
    """

    text: str
    unit: Unit
    left: tuple[str, ...]
    kept: frozenset[tuple[str, str]]
    unbound: Mapping[str, int]

    @property
    def names(self) -> list[ast.Name | ast.Attribute]:
        return self.unit.tree.both(ast.Name, ast.Attribute)


def fix_imports(
    text: str,
    layers: Iterable[str],
    unit: Unit,
    layer_module: str = "nnx_layers",
    handed_on: Mapping[str, str] | None = None,
) -> Written:
    """Remove torch imports that nothing uses, add those that the text needs. Raises SyntaxError when it does not parse.

    `layers` are the layer-library names that the rewrite introduced; `unit` is the source of `text`; `handed_on` are
    names to import for others, with those of the layer library that they are.
    """
    handed_on = handed_on or {}
    tree = Tree(text, placed=False)
    package = unit.scopes.package
    scopes = Scopes(tree.root, package)
    follow(scopes, unit.reexports)
    free = {n.id: n.lineno for n in scopes.free()}
    used = _used_names(tree, scopes)
    direct = {n for n in layers if (n in free or n in used) and _only_torch_binds(n, scopes)}
    edits: list[tuple[int, int, str]] = []
    left: list[str] = []
    kept: set[tuple[str, str]] = set()
    straight: list[str] = []
    removed: dict[ast.stmt, int] = {}
    anchor: int | None = None
    for stmt in tree.both(ast.Import, ast.ImportFrom):
        keep, gone = _split(stmt, used - direct - handed_on.keys())
        through = {a.name: t for a in keep if (t := _through(stmt, a, scopes, unit.reexports))}
        for alias in [a for a in keep if a.name in through]:  # of a file of the project that no longer has it
            keep.remove(alias)
            gone.append(alias)
            if binds(stmt, alias) in used - direct:
                straight.append(_import_line(through[alias.name], binds(stmt, alias)))
                left.append(through[alias.name])
                kept.add((binds(stmt, alias), alias.name))
        for alias in keep:
            if leads_to_torch(stmt, alias):
                left.append(alias.name if isinstance(stmt, ast.Import) else f"{stmt.module}.{alias.name}")
                kept.add((binds(stmt, alias), alias.name))
        if not gone:
            continue
        edits.append(shrink(tree, stmt, keep))
        if not keep:
            removed[stmt] = len(edits) - 1
        if anchor is None and isinstance(tree.parents[stmt], ast.Module):
            anchor = len(edits) - 1
    _close_up(tree, removed, edits)
    wanted, brought = _wanted(tree, scopes, free, direct, layer_module, handed_on)
    wanted += straight
    block = tree.newline.join(wanted)
    if block:
        edits = _place(tree, edits, anchor, block)
    written = Unit(replace(unit.source, text=text), tree, scopes, unit.book, unit.module)
    unbound = {} if scopes.module.stars else {n: line for n, line in free.items() if n not in brought}
    return Written(apply_edits(text, edits), written, tuple(left), frozenset(kept), unbound)


def _used_names(tree: Tree, scopes: Scopes) -> set[str]:
    """Names whose reading leads to an import, also those in string annotations and in `__all__`."""
    reads = ((n.id, home) for n, home in scopes.homes.items() if not isinstance(n.ctx, ast.Store))
    names = {name for name, home in reads if _imported(home.lookup(name), name)} | read_in_strings(tree)
    bases = {c.name for c in scopes.replaced if any(isinstance(b, ast.Name) and b.id == c.name for b in c.bases)}
    return names | bases


def read_in_strings(tree: Tree) -> set[str]:
    """The names in string annotations and in `__all__`."""
    texts = [n.value for n in tree.all(ast.Constant) if isinstance(n.value, str) and _in_all(tree, n)]
    texts += [str(n.value) for n in quoted_annotations(tree)]
    return {name for text in texts if len(text) < 200 for name in re.findall(r"[A-Za-z_]\w*", text)}


def quoted_annotations(tree: Tree) -> Iterator[ast.Constant]:
    """The string constants that stand for a type; those of `Literal["torch"]` mean themselves."""
    for node in tree.all(ast.Constant):
        if isinstance(node.value, str) and in_annotation(tree, node):
            generic = (ast.unparse(up.value) for up in tree.ancestors(node) if isinstance(up, ast.Subscript))
            if not any(name.rpartition(".")[2] in ("Literal", "Annotated") for name in generic):
                yield node


def _imported(scope: Scope | None, name: str) -> bool:
    return scope is not None and any(b.kind in ("import", "from") for b in scope.bindings[name])


def _in_all(tree: Tree, node: ast.Constant) -> bool:
    stmt = tree.parents.get(tree.parents.get(node, node))
    targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target] if isinstance(stmt, ast.AugAssign) else []
    return any(isinstance(t, ast.Name) and t.id == "__all__" for t in targets)


def in_annotation(tree: Tree, node: ast.AST) -> bool:
    """Whether `node` is part of an annotation."""
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
    return all(of_torch(b.target) for b in bindings)


def _same_inside(scope: Scope, name: str) -> bool:
    """Whether a function binds the name by the very import that the module is to have."""
    if scope.kind == "module" or name not in KNOWN:
        return False
    (target,) = (b.target for b in Scopes(ast.parse(KNOWN[name]), "").module.bindings[name])
    return all(b.target == target for b in scope.bindings[name])


def _wanted(
    tree: Tree,
    scopes: Scopes,
    free: Mapping[str, int],
    direct: set[str],
    layer_module: str,
    handed_on: Mapping[str, str],
) -> tuple[list[str], set[str]]:
    """The lines of new imports, and the names that they bring."""
    bound = {n for s in scopes.of.values() if s.kind != "class" for n in s.bindings if not _same_inside(s, n)}
    plain = [n for n in ORDER if n in free and n not in bound]
    lines = [KNOWN[n] for n in plain]
    brought = {*plain, *direct}
    names = direct | {n if n == layer else f"{layer} as {n}" for n, layer in handed_on.items()}
    if names:
        lines.append(f"from {layer_module} import {', '.join(sorted(names, key=lambda n: (not n[0].isupper(), n)))}")
    if "nnx_layers" in free and "nnx_layers" not in bound:
        brought.add("nnx_layers")
        dots = layer_module[: len(layer_module) - len(layer_module.lstrip("."))]
        package = dots or layer_module.rpartition(".")[0]
        lines.append(f"from {package} import nnx_layers" if package else "import nnx_layers")
    return [w for line in lines for w in _wrap(line)], brought


def _through(stmt: ast.Import | ast.ImportFrom, alias: ast.alias, scopes: Scopes, reexports: Mapping[str, str]) -> str:
    """The name of torch that `alias` brings from another file of the project, "" when it does not."""
    if isinstance(stmt, ast.Import) or not reexports:
        return ""
    return reexports.get(f"{scopes.absolute(stmt)}.{alias.name}", "")


def _import_line(dotted: str, name: str) -> str:
    """The import of a name of torch as `name`."""
    head, _, tail = dotted.rpartition(".")
    bound = "" if tail == name else f" as {name}"
    return f"from {head} import {tail}{bound}" if head else f"import {dotted}{bound}"


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


def leads_to_torch(stmt: ast.Import | ast.ImportFrom, alias: ast.alias) -> bool:
    """Whether an import statement brings `alias` from torch or from a package of torch layers."""
    base = alias.name if isinstance(stmt, ast.Import) else (stmt.module or "") if not stmt.level else ""
    return of_torch(base)


def of_torch(dotted: str) -> bool:
    """Whether a dotted name belongs to torch or to a package of its parts that the rules replace."""
    return any(dotted == t or dotted.startswith(f"{t}.") for t in TORCH)


def binds(stmt: ast.Import | ast.ImportFrom, alias: ast.alias) -> str:
    """The name that an import binds ("*" for a star)."""
    return alias.asname or (alias.name.split(".")[0] if isinstance(stmt, ast.Import) else alias.name)


def _split(stmt: ast.Import | ast.ImportFrom, used: set[str]) -> tuple[list[ast.alias], list[ast.alias]]:
    """The aliases to keep and those that go: imports from torch whose name nothing reads any more."""
    keep: list[ast.alias] = []
    gone: list[ast.alias] = []
    for alias in stmt.names:
        (gone if leads_to_torch(stmt, alias) and binds(stmt, alias) not in used else keep).append(alias)
    return keep, gone


def shrink(tree: Tree, stmt: ast.Import | ast.ImportFrom, keep: Sequence[ast.alias]) -> tuple[int, int, str]:
    start, end = tree.start(stmt), tree.end(stmt)
    if keep:
        names = ", ".join(a.name + (f" as {a.asname}" if a.asname else "") for a in keep)
        head = "import " if isinstance(stmt, ast.Import) else f"from {'.' * stmt.level}{stmt.module or ''} import "
        return start, end, head + names
    return start, end, ""


def _close_up(tree: Tree, removed: Mapping[ast.stmt, int], edits: list[tuple[int, int, str]]) -> None:
    """Take removed imports out with their line where other statements stay in their block: it needs no `pass` then."""
    for stmt, at in removed.items():
        owner = tree.parents[stmt]
        blocks = [getattr(owner, name, None) for name in ("body", "orelse", "finalbody")]
        block = next((b for b in blocks if isinstance(b, list) and stmt in b), [])
        start, end, text = edits[at]
        line = tree.line_starts[tree.position(start)[0] - 1]
        if any(s not in removed for s in block) and not tree.text[line:start].strip():
            edits[at] = (line, end, text)


def _place(tree: Tree, edits: list[tuple[int, int, str]], anchor: int | None, block: str) -> list[tuple[int, int, str]]:
    """Put the new imports where the first torch import was; else after the docstring and `from __future__`."""
    if anchor is not None:
        start, end, rest = edits[anchor]
        text = block + (tree.newline + rest if rest else "")
        return [*edits[:anchor], (start, end, text), *edits[anchor + 1 :]]
    at = 0
    for stmt in tree.root.body:
        docstring = (
            isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Constant) and isinstance(stmt.value.value, str)
        )
        future = isinstance(stmt, ast.ImportFrom) and stmt.module == "__future__"
        if not (docstring or future):
            break
        at = tree.end(stmt)
    if at == 0:
        first = tree.start(tree.root.body[0]) if tree.root.body else 0
        return [*edits, (first, first, block + tree.newline)]
    return [*edits, (at, at, tree.newline + block)]


def _stays_first(stmt: ast.stmt) -> bool:
    """A docstring, or an import from `__future__`."""
    if isinstance(stmt, ast.Expr):
        return isinstance(stmt.value, ast.Constant) and isinstance(stmt.value.value, str)
    return isinstance(stmt, ast.ImportFrom) and stmt.module == "__future__"


def apply_edits(text: str, edits: list[tuple[int, int, str]]) -> str:
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
        return start, end, "pass" if text[line:start] else ""  # a comment stays
    if text[stop : stop + 2] == "\r\n":
        stop += 2
    elif stop < len(text):
        stop += 1
    if text[line:start]:  # inside a block: it might be its only statement
        return start, end, "pass"
    return line, stop, ""
