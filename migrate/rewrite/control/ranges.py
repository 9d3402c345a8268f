"""Reads at an index that may be out of range: torch raises IndexError, JAX reads something. Said once a file."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...read.source import hidden
from ...read.unit import Unit
from ..indexing import index_parts
from ..plan import Plan
from .truth import is_mask, only_value

LOOKUPS = frozenset(("torch.nn.functional.embedding", "torch.nn.functional.embedding_bag"))
LAYERS = frozenset(("torch.nn.Embedding", "torch.nn.EmbeddingBag"))


def plan_ranges(plan: Plan) -> None:
    """One finding at the first read whose index is neither a literal nor made to fit, unless a row has said it."""
    if any(f.code in ("JM151", "JM209") for f in plan.findings):
        return
    places = list(_reads(plan.unit))
    if not places:
        return
    node, what = places[0]
    more = len({plan.unit.tree.position(plan.unit.tree.start(n))[0] for n, _ in places[1:]})
    also = f" (and {more} more place{'s' if more > 1 else ''} in this file)" if more else ""
    plan.found(
        "JM151", node, "torch.Tensor.__getitem__",
        f"{what}: torch raises IndexError when it is out of range, JAX reads the nearest element{also}",
        advice="Check indices where they are made.", rule="index range",
    )  # fmt: skip


def _reads(unit: Unit) -> Iterator[tuple[ast.AST, str]]:
    for node in unit.tree.nodes:
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and not hidden(node):
            if unit.kind(node.value).is_tensor:
                risky = next((p for p in index_parts(node.slice) if _may_leave(unit, p)), None)
                if risky is not None:
                    yield node, f"the index `{ast.unparse(risky)[:40]}`"
        elif isinstance(node, ast.Call) and not hidden(node):
            kind = unit.kind(node.func)
            if unit.resolve(node.func) in LOOKUPS or (kind.tag == "Module" and kind.name in LAYERS):
                yield node, f"the rows that `{ast.unparse(node.func)[:40]}` looks up"


def _may_leave(unit: Unit, part: ast.expr) -> bool:
    """Whether nothing in the file makes an index fit: a tensor or number that comes from outside."""
    if isinstance(part, (ast.Slice, ast.Constant, ast.List, ast.ListComp)) or is_mask(unit, part):
        return False
    if isinstance(part, ast.Name):
        if "mask" in part.id:
            return False
        scope = unit.scope(part).lookup(part.id)
        bindings = scope.bindings[part.id] if scope is not None else []
        if not bindings or any(b.kind != "param" and b.kind != "assign" for b in bindings):
            return False  # a loop's variable
        value = only_value(unit, part)
        if value is not None:
            return _may_leave(unit, value)
        return all(b.kind == "param" for b in bindings) and unit.kind(part).tag in ("Tensor", "int", "unknown")
    if isinstance(part, ast.Call):
        name = part.func.attr if isinstance(part.func, ast.Attribute) else ""
        cast = name in (
            "long",
            "int",
            "to",
            "view",
            "reshape",
            "unsqueeze",
            "squeeze",
            "flatten",
            "clone",
            "contiguous",
        )
        if cast and isinstance(part.func, ast.Attribute):
            return _may_leave(unit, part.func.value)
    return False
