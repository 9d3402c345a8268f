"""What a walk through one function or module body knows: the names it sees and how they are used."""

from __future__ import annotations

import ast

from .evaluate import Env, Evaluator
from .kinds import (
    TENSOR,
    UNKNOWN,
    Kind,
)
from .project import Project
from .results import refine
from .unit import Unit

FunctionDef = ast.FunctionDef | ast.AsyncFunctionDef


class Frame:
    """One body: the environment of its local kinds, and the frame around it."""

    evaluate: Evaluator

    def __init__(self, unit: Unit, project: Project, owner: ast.AST, outer: Frame | None = None) -> None:
        self.unit, self.project, self.owner, self.outer = unit, project, owner, outer
        self.returns: list[Kind] = []
        self.env: Env = {}
        self.seen: Env = {}
        self.lambda_kinds: dict[ast.Lambda, Env] = {}

    def captured(self, node: ast.Name) -> Kind:
        """The kind of a name of an enclosing function or of the module."""
        flow = self.outer
        while flow is not None:
            if node.id in flow.seen and not isinstance(flow.owner, ast.ClassDef):
                return flow.seen[node.id]
            if node.id in flow.env and not isinstance(flow.owner, ast.ClassDef):
                return flow.env[node.id]
            flow = flow.outer
        return UNKNOWN

    def by_use(self, name: str, kind: Kind) -> Kind:
        """Tensor when the function uses `name` as only a tensor can be used."""
        why = self.unit.usage(self.owner).tensors.get(name)
        return TENSOR.because(why) if why else kind

    def lambda_param(self, node: ast.Lambda, name: str) -> Kind:
        known = self.lambda_kinds.get(node, {}).get(name, UNKNOWN)
        if known.known:
            return known
        why = self.unit.usage(node).tensors.get(name)
        return TENSOR.because(why) if why else UNKNOWN

    def refine(self, dotted: str, node: ast.Call, kind: Kind) -> Kind:
        """Results whose kind depends on the arguments: `x.size(0)`, `x.max(dim)`, `split`, `to(dtype)`."""
        return refine(dotted, node, kind, self.unit)
