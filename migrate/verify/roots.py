"""Which module classes of a file stand on their own, and how the file itself builds them; read and not run."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

_BUILTIN = ("True", "False", "None", "dict", "list", "tuple", "len", "range", "int", "float")


@dataclass(frozen=True)
class Built:
    """One place where the file builds a class: the call with known names in place of local ones, and its line."""

    text: str
    line: int


@dataclass(frozen=True)
class Roots:
    """The module classes of a file: those to run, those that are a part of another one (and of which)."""

    classes: tuple[str, ...]
    parts: dict[str, tuple[str, ...]]
    built: dict[str, tuple[Built, ...]]


def read_roots(text: str) -> Roots:
    """Find them in a source text. Raises SyntaxError."""
    tree = ast.parse(text)
    top = {n.name: n for n in tree.body if isinstance(n, (ast.ClassDef, ast.FunctionDef))}
    values = _assigned(tree)
    modules = _modules(tree)
    uses = {name: _reached(name, {**top, **values}, modules) for name in modules}
    for call in _calls(tree):
        if isinstance(call.func, ast.Name) and call.func.id in modules:
            given = [*call.args, *(k.value for k in call.keywords)]
            names = {n.id for a in given for n in ast.walk(a) if isinstance(n, ast.Name)}
            uses[call.func.id] |= (names & set(modules)) - {call.func.id}
    owners = {p: tuple(o for o in modules if o != p and p in uses[o] and o not in uses[p]) for p in modules}
    parts = {part: names for part, names in owners.items() if names}
    known = set(top) | set(values)
    built = {name: tuple(_built(tree, name, known)) for name in modules}
    return Roots(tuple(n for n in modules if n not in parts), parts, built)


def _modules(tree: ast.Module) -> list[str]:
    """Names of the top-level classes that look like modules; the process that imports the file makes sure."""
    found: list[str] = []
    for node in tree.body:
        if not isinstance(node, ast.ClassDef) or not node.bases:
            continue
        bases = [ast.unparse(b) for b in node.bases]
        like = any(b.endswith("Module") or b.startswith(("nn.", "torch.nn.")) or b in found for b in bases)
        if like or any(isinstance(n, ast.FunctionDef) and n.name == "forward" for n in node.body):
            found.append(node.name)
    return found


def _assigned(tree: ast.Module) -> dict[str, ast.stmt]:
    found: dict[str, ast.stmt] = {}
    for node in tree.body:
        single = [node.target] if isinstance(node, ast.AnnAssign) and node.value is not None else []
        targets = node.targets if isinstance(node, ast.Assign) else single
        found |= {t.id: node for t in targets if isinstance(t, ast.Name)}
    return found


def _reached(name: str, top: dict[str, ast.stmt], modules: list[str]) -> set[str]:
    """The module classes that a class names, itself or by way of functions and variables of the file."""
    seen, todo, found = {name}, [name], set()
    while todo:
        for node in ast.walk(top[todo.pop()]):
            if isinstance(node, ast.Name) and node.id in top and node.id not in seen:
                seen.add(node.id)
                if node.id in modules:
                    found.add(node.id)
                else:
                    todo.append(node.id)
    return found


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (n for n in ast.walk(tree) if isinstance(n, ast.Call))


def _built(tree: ast.Module, name: str, known: set[str]) -> Iterator[Built]:
    """Calls of a class, outside of itself, whose arguments are literals and names of the file."""
    literals = _literals(tree)
    seen: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            continue
        for call in _calls(node):
            if not (isinstance(call.func, ast.Name) and call.func.id == name):
                continue
            whole = _Literals(literals).visit(copy.deepcopy(call))
            names = {n.id for n in ast.walk(whole) if isinstance(n, ast.Name)}
            starred = any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords)
            text = ast.unparse(whole)
            if not starred and names <= {*known, *_BUILTIN} and text not in seen:
                seen.add(text)
                yield Built(text, call.lineno)


def _literals(tree: ast.Module) -> dict[str, ast.expr]:
    """Names that are given one literal, once, in the whole file."""
    given: dict[str, list[ast.expr | None]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            given.setdefault(node.id, []).append(None)
        if isinstance(node, ast.arg):
            given.setdefault(node.arg, []).extend([None, None])
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            try:
                ast.literal_eval(node.value)
            except ValueError:
                continue
            given[node.targets[0].id][0] = node.value
    return {name: values[0] for name, values in given.items() if len(values) == 1 and values[0] is not None}


class _Literals(ast.NodeTransformer):
    def __init__(self, literals: dict[str, ast.expr]) -> None:
        self.literals = literals

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return copy.deepcopy(self.literals.get(node.id, node))
