"""What a gradient is taken of: modules, or leaf tensors."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from .flow import behind


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
        """Whether code reads one of them, itself or by a function that gets it."""
        return any(True for _ in self.places(node)) or any(self.read_behind(n) for n in ast.walk(node))

    def read_behind(self, node: ast.AST) -> bool:
        """Whether a call runs a function that gets one of the modules."""
        return any(text in self.models for text in behind(node))

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
