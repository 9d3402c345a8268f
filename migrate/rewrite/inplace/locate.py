"""Where a write is done: at the name that all others who see it are views of."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace

from ...read.alias import Aliases
from ...read.unit import Unit
from .chains import Chains, Views, walk
from .elements import ELEMENT, Elements, element
from .places import Place, Step, find_place, merged

Kept = Callable[[ast.AST], frozenset[str]]


class Locator:
    """Finds the places of writes in one file. `kept` names the parameters that a function hands back to its caller."""

    def __init__(self, unit: Unit, aliases: Aliases, kept: Kept) -> None:
        self.unit, self.aliases, self.kept = unit, aliases, kept
        self.elements = Elements(unit, aliases)
        self._chains: dict[ast.AST, Chains] = {}

    def chains(self, stmt: ast.stmt) -> Chains:
        owner = self.aliases.flow(stmt).owner
        if owner not in self._chains:
            self._chains[owner] = Chains(self.unit, owner)
        return self._chains[owner]

    def find(self, target: ast.expr, stmt: ast.stmt) -> Place:
        """The place that a write of `stmt` to the tensor `target` changes."""
        return self.carried(find_place(target, self.unit), stmt)

    def plain(self, target: ast.expr, stmt: ast.stmt) -> Place:
        """The place without looking for another name to write to."""
        place = self._walking(find_place(target, self.unit), stmt)
        return replace(place, problem="a loop walks over what is written") if place.loops else place

    def carried(self, place: Place, stmt: ast.stmt) -> Place:
        """The same write done to the name that every live name sharing the memory is a view of, where there is one."""
        if place.problem == ELEMENT and element(place.base, self.unit):
            name = place.base.value  # type: ignore[attr-defined]
            if self.elements.are_distinct(name):
                place = replace(place, problem="", within=name.id)
        if place.problem or not (place.within or isinstance(place.base, (ast.Name, ast.Attribute))):
            return place
        views = self.chains(stmt).before.get(stmt, {})
        key = ast.unparse(place.base)
        if key not in views and not any(c.key == key for c in views.values()):
            return self._walking(place, stmt)
        kept = self.kept(self.aliases.flow(stmt).owner)
        others = self.aliases.sharing(stmt, place.base, kept) - {place.within}
        if not others:
            return self._walking(place, stmt)
        live = self.aliases.live_after(stmt, kept)
        line = [key]
        while line[-1] in views:
            line.append(views[line[-1]].key)
        for carrier in reversed(line):
            usable = carrier == key or carrier in live or "." in carrier or "[" in carrier
            within = (
                self._container(views[line[line.index(carrier) - 1]].base) if "[" in carrier and carrier != key else ""
            )
            if usable and all(h == within or _leads(h, carrier, views) for h in others):
                return self._walking(self._moved(place, carrier, others - {within}, live, views), stmt)
        return self._walking(place, stmt)

    def _container(self, base: ast.expr) -> str:
        """The container whose item `base` is, when its items are different tensors."""
        if not element(base, self.unit) or not isinstance(base, ast.Subscript) or not isinstance(base.value, ast.Name):
            return ""
        return base.value.id if self.elements.are_distinct(base.value) else ""

    def _moved(self, place: Place, carrier: str, others: set[str], live: frozenset[str], views: Views) -> Place:
        key = ast.unparse(place.base)
        base = place.base
        steps = place.steps
        loops = set(place.loops)
        through = []
        at = key
        while at != carrier:
            chain = views[at]
            through.append(chain)
            steps, base, at = (*chain.steps, *steps), chain.base, chain.key
            loops |= {chain.loop} if chain.loop else set()
        renewed = []
        for name in sorted(others | ({key} if key in live else set())):
            if name == carrier:
                continue
            found: tuple[Step, ...] = ()
            at = name
            while at != carrier:
                chain = views[at]
                found, at = (*chain.steps, *found), chain.key
                loops |= {chain.loop} if chain.loop else set()
            renewed.append((name, Place(base, merged(found, self.unit))))
        nodes = (*place.nodes, place.base) if key != carrier else place.nodes
        return replace(
            place,
            base=base,
            steps=merged(steps, self.unit),
            nodes=nodes,
            within=self._container(base),
            renewed=tuple(renewed),
            moved=key != carrier,
            loops=tuple(loops),
            through=tuple(through),
        )

    def _walking(self, place: Place, stmt: ast.stmt) -> Place:
        """Loops around the write that walk over what it changes: they see the change in torch."""
        if place.problem:
            return place
        written = self.aliases.reached(stmt, place.base)
        chains = self.chains(stmt)
        loops = set(place.loops)
        for up in self.unit.tree.ancestors(stmt):
            if isinstance(up, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                break
            if not isinstance(up, ast.For) or stmt in up.orelse or not self._walks_tensor(up.iter):
                continue
            if up in loops or not written & self.aliases.reached(up, up.iter):
                continue
            parts = walk(up, self.unit)
            if parts is None or up not in chains.counters or parts[1].id != ast.unparse(place.base):
                return replace(place, problem=f"the loop in line {up.lineno} walks over what is written")
            loops.add(up)
        return replace(place, loops=tuple(loops)) if loops else place

    def _walks_tensor(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Call) and (self.unit.resolve(node.func) or "") in (
            "builtins.zip", "builtins.enumerate", "builtins.reversed", "builtins.iter",
        ):  # fmt: skip
            return any(self._walks_tensor(a) for a in node.args)
        return self.unit.kind(node).is_tensor


def _leads(name: str, carrier: str, views: Views) -> bool:
    while name != carrier:
        if name not in views:
            return False
        name = views[name].key
    return True
