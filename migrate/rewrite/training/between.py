"""What stands between backward() and step() and may touch the gradients."""

from __future__ import annotations

import ast
from collections.abc import Collection
from dataclasses import dataclass

from ...read.unit import Unit
from .flow import block_of
from .roles import NotPlain
from .scaling import is_scaler

_HARMLESS = ("train", "eval", "forward", "training")


@dataclass(frozen=True)
class Between:
    """`optimizers` and `models` by their text; `known` are the statements that are understood."""

    unit: Unit
    optimizers: Collection[str]
    models: Collection[str]
    known: Collection[ast.stmt]

    def check(self, backward: ast.stmt, steps: Collection[ast.stmt]) -> None:
        """Refuse statements from a backward statement to a step in its block. Raises NotPlain."""
        block = block_of(backward, self.unit.tree.parents)
        place = block.index(backward)
        ends = [i for i in range(place + 1, len(block)) if any(s in steps for s in ast.walk(block[i]))]
        for stmt in block[place + 1 : (ends[0] if ends else place)]:
            if any(self._touches(part) for part in ast.walk(stmt)):
                text = ast.unparse(stmt).splitlines()[0][:60]
                raise NotPlain(f"`{text}` between backward() and step() may touch the gradients")

    def _touches(self, part: ast.AST) -> bool:
        tree = self.unit.tree
        if not isinstance(part, (ast.Name, ast.Attribute)) or tree.statement(part) in self.known:
            return False
        text, up = ast.unparse(part), tree.parents[part]
        if text in self.optimizers:
            return not (
                isinstance(up, ast.Call)
                and isinstance(up.func, ast.Attribute)
                and up.func.attr == "unscale_"
                and is_scaler(self.unit, up.func.value)
            )
        if text not in self.models:
            return False
        if isinstance(up, ast.Call):
            return up.func is not part
        return isinstance(up, ast.Attribute) and up.attr not in _HARMLESS
