"""What a gradient is taken of: modules, or leaf tensors."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Source:
    """The source texts of modules (`model`, `self.model`), or the names of leaf tensors."""

    models: tuple[str, ...] = ()
    arrays: tuple[str, ...] = ()

    @property
    def named(self) -> str:
        """For people."""
        return ", ".join((*self.models, *self.arrays))

    @property
    def units(self) -> tuple[str, ...]:
        """What has a gradient variable of its own: each module, the leaf tensors together."""
        return (*self.models, *((",".join(self.arrays),) if self.arrays else ()))

    def read_by(self, node: ast.AST) -> bool:
        return any(True for _ in self.places(node))

    def places(self, node: ast.AST) -> Iterator[ast.AST]:
        """The expressions in `node` that are one of the modules or tensors."""
        dotted = [m for m in self.models if "." in m]
        for sub in ast.walk(node):
            if isinstance(sub, ast.Name) and isinstance(sub.ctx, ast.Load):
                if sub.id in self.models or sub.id in self.arrays:
                    yield sub
            elif dotted and isinstance(sub, ast.Attribute) and ast.unparse(sub) in dotted:
                yield sub

    def __add__(self, other: Source) -> Source:
        models = dict.fromkeys((*self.models, *other.models))
        return Source(tuple(models), tuple(dict.fromkeys((*self.arrays, *other.arrays))))
