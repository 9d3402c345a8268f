"""Imports of torch that only functions still need move into them: the rest of the file then runs without torch."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from ..read.reexports import exported
from ..read.scopes import Scopes
from ..read.source import Tree
from .imports import Written, apply_edits, binds, leads_to_torch, read_in_strings, shrink
from .plan import Plan

_MAIN = ("__name__ == '__main__'", "'__main__' == __name__")


@dataclass(frozen=True)
class _Import:
    """One name that a statement of the module brings from torch."""

    stmt: ast.Import | ast.ImportFrom
    alias: ast.alias

    @property
    def name(self) -> str:
        return binds(self.stmt, self.alias)

    @property
    def line(self) -> str:
        renamed = f" as {self.alias.asname}" if self.alias.asname else ""
        if isinstance(self.stmt, ast.Import):
            return f"import {self.alias.name}{renamed}"
        return f"from {self.stmt.module} import {self.alias.name}{renamed}"


def narrow_imports(plan: Plan, written: Written) -> str:
    """The text with its imports of torch in the functions that use them, each before the first statement that does.

    Nothing moves unless everything can: one import of torch that stays is as bad as several. A name that is read while
    the module is loaded (by a decorator, a base class, a default, an annotation) or that others may take from the
    module holds it there.
    """
    unit = plan.unit
    if not written.left or written.text == unit.source.text:
        return written.text
    tree = Tree(written.text, placed=False)
    scopes = Scopes(tree.root, unit.scopes.package)
    imports = [
        _Import(stmt, alias)
        for stmt in tree.root.body
        if isinstance(stmt, (ast.Import, ast.ImportFrom))
        for alias in stmt.names
        if leads_to_torch(stmt, alias)
    ]
    names = {i.name for i in imports}
    public = exported(tree.root)
    if _handed_on_by_star(plan) and (public is None or names & public):
        return written.text
    if not names or names & read_in_strings(tree) or not all(_only_imported(scopes, n) for n in names):
        return written.text
    places = _places(tree, scopes, names)
    if places is None or set().union(*places.values()) != names:
        return written.text
    stmts = dict.fromkeys(i.stmt for i in imports)
    if any(tree.comments_in(tree.start(s), tree.end(s)) for s in stmts):
        return written.text
    moved = {i.alias for i in imports}
    edits = [shrink(tree, s, [a for a in s.names if a not in moved]) for s in stmts]
    edits += [_insertion(tree, place, [i.line for i in imports if i.name in used]) for place, used in places.items()]
    return apply_edits(written.text, edits)


def _handed_on_by_star(plan: Plan) -> bool:
    return any(plan.unit.module in s.stars for u in plan.project.units for s in u.scopes.of.values())


def _only_imported(scopes: Scopes, name: str) -> bool:
    """Whether the imports of the module are all that ever binds its global of this name."""
    return name != "*" and all(b.kind in ("import", "from") for b in scopes.module.bindings.get(name, ()))


def _places(tree: Tree, scopes: Scopes, names: set[str]) -> dict[ast.stmt, set[str]] | None:
    """Where the names must be imported, None when the module itself needs one or a place has no line of its own.

    A use is served by an import before it in its block or in a block around that: a branch that is not taken imports
    nothing.
    """
    places: dict[ast.stmt, set[str]] = {}
    for node in tree.all(ast.Name):
        if node.id not in names or scopes.homes[node].lookup(node.id) is not scopes.module:
            continue
        chain = _statements_around(tree, node)
        if not chain:
            return None
        if any(node.id in places.get(s, ()) for stmt in chain for s in _up_to(tree, stmt)):
            continue
        place = next((s for s in chain if _starts_line(tree, s) and not _is_elif(tree, s)), None)
        if place is None:
            return None
        places.setdefault(place, set()).add(node.id)
    for place, used in places.items():
        chain = _statements_around(tree, place)
        earlier = (s for stmt in (place, *chain) for s in _up_to(tree, stmt) if s is not place)
        used -= set().union(*(places[s] for s in earlier if s in places))
    return {place: used for place, used in places.items() if used}


def _statements_around(tree: Tree, node: ast.AST) -> list[ast.stmt]:
    """The statements that hold `node`, innermost first, up to the innermost function; [] when there is none. What a
    script does when it is run itself counts as a function."""
    found: list[ast.stmt] = []
    child = node
    for up in tree.ancestors(node):
        if isinstance(up, ast.stmt) and isinstance(child, ast.stmt):
            found.append(child)
            function = isinstance(up, (ast.FunctionDef, ast.AsyncFunctionDef))
            if function or (isinstance(up, ast.If) and child in up.body and ast.unparse(up.test) in _MAIN):
                return found
        elif isinstance(child, ast.stmt):  # in a handler or a case, or of the module
            found.append(child)
        child = up
    return []


def _up_to(tree: Tree, stmt: ast.stmt) -> list[ast.stmt]:
    """The statements of a block up to `stmt`, which is the last."""
    owner = tree.parents[stmt]
    block = next(b for _, b in ast.iter_fields(owner) if isinstance(b, list) and stmt in b)
    return block[: block.index(stmt) + 1]


def _is_elif(tree: Tree, stmt: ast.stmt) -> bool:
    return isinstance(stmt, ast.If) and tree.text.startswith("elif", tree.start(stmt))


def _starts_line(tree: Tree, stmt: ast.stmt) -> bool:
    start = _start(tree, stmt)
    line = tree.line_starts[tree.position(start)[0] - 1]
    return not tree.text[line:start].strip()


def _start(tree: Tree, stmt: ast.stmt) -> int:
    decorators = getattr(stmt, "decorator_list", [])
    return tree.text.rindex("@", 0, tree.start(decorators[0])) if decorators else tree.start(stmt)


def _insertion(tree: Tree, stmt: ast.stmt, lines: list[str]) -> tuple[int, int, str]:
    """The import lines before a statement and the comments that belong to it."""
    start = _start(tree, stmt)
    at = tree.position(start)[0] - 1
    indent = tree.text[tree.line_starts[at] : start]
    while at and tree.text[tree.line_starts[at - 1] : tree.line_starts[at]].startswith(f"{indent}#"):
        at -= 1
    text = "".join(f"{indent}{line}{tree.newline}" for line in lines)
    return tree.line_starts[at], tree.line_starts[at], text
