"""Values that may be None where they are used, unless an `if` around the use or how a layer was built excludes it."""

from __future__ import annotations

import ast

from ..read.unit import Unit

# Switches of torch's layers by which a parameter or buffer of theirs is None.
_SWITCHES = frozenset({"bias", "affine", "elementwise_affine", "track_running_stats", "device", "dtype"})


def maybe_none(node: ast.expr, unit: Unit) -> bool:
    """Whether `node` may be None here, as far as its kind, the tests around it and its layer's construction show."""
    return unit.kind(node).optional and not _tested(node, unit) and not _built_with(node, unit)


def _tested(node: ast.expr, unit: Unit) -> bool:
    """Whether an `if` or a conditional expression around `node` has asked."""
    text = ast.unparse(node)
    there, absent = {f"{text} is not None", text}, {f"{text} is None", f"not {text}"}
    below: ast.AST = node
    for up in unit.tree.ancestors(node):
        if isinstance(up, (ast.If, ast.IfExp)):
            body, orelse = ([up.body], [up.orelse]) if isinstance(up, ast.IfExp) else (up.body, up.orelse)
            tests = up.test.values if isinstance(up.test, ast.BoolOp) and isinstance(up.test.op, ast.And) else [up.test]
            if below in body and any(ast.unparse(t) in there for t in tests):
                return True
            if below in orelse and ast.unparse(up.test) in absent:
                return True
        below = up
    return False


def _built_with(node: ast.expr, unit: Unit) -> bool:
    """Whether `self.fc.bias` is of a layer that this file always builds with what its class has by default."""
    if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Attribute):
        return False
    values = [
        stmt.value
        for stmt in unit.tree.all(ast.Assign)
        for target in stmt.targets
        if isinstance(target, ast.Attribute) and target.attr == node.value.attr
    ]
    return bool(values) and all(_plain_layer(v, unit) for v in values)


def _plain_layer(value: ast.expr, unit: Unit) -> bool:
    if not isinstance(value, ast.Call) or not (unit.resolve(value.func) or "").startswith("torch.nn."):
        return False
    starred = any(isinstance(a, ast.Starred) for a in value.args) or any(k.arg is None for k in value.keywords)
    few = len(value.args) <= (
        2 if (unit.resolve(value.func) or "").endswith("Linear") else 1 if "Norm" in ast.unparse(value.func) else 7
    )
    return few and not starred and not any(k.arg in _SWITCHES for k in value.keywords)
