"""Indices that say what a view method gives: `x.narrow(1, 0, 2)` is `x[:, 0:2]`."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ...read.kinds import INT
from ...read.unit import Unit


def literal(value: int, unit: Unit) -> ast.Constant:
    """A number that stands nowhere in the source."""
    node = ast.Constant(value)
    unit.kinds[node] = INT
    return node


def as_int(node: ast.expr) -> int | None:
    """The value of an integer literal."""
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return None
    return value if type(value) is int else None


def pieces(value: ast.expr, count: int, unit: Unit) -> tuple[ast.expr, list[tuple[ast.expr, ...]]]:
    """What the first `count` items of `x.unbind()` and `x.split(n)` are: x, and an index for each (or none)."""
    if not isinstance(value, ast.Call) or value.keywords or any(isinstance(a, ast.Starred) for a in value.args):
        return value, []
    dotted = unit.resolve(value.func) or ""
    name, args = dotted.removeprefix("torch."), list(value.args)
    if isinstance(value.func, ast.Attribute) and unit.kind(value.func.value).is_tensor:
        name, args = value.func.attr, [value.func.value, *args]
    elif not dotted.startswith("torch."):
        return value, []
    numbers = [n for a in args[1:] if (n := as_int(a)) is not None]
    if not args or len(numbers) != len(args) - 1:
        return value, []
    if name == "unbind" and len(args) <= 2:
        return args[0], [_at(numbers[0] if numbers else 0, literal(i, unit)) for i in range(count)]
    if name == "split" and len(args) in (2, 3):
        size = numbers[0]
        spans = [ast.Slice(literal(i * size, unit), literal((i + 1) * size, unit)) for i in range(count)]
        return args[0], [_at(numbers[1] if len(numbers) > 1 else 0, s) for s in spans]
    return value, []


def _at(axis: int, part: ast.expr) -> tuple[ast.expr, ...]:
    """An index of one axis: `[:, i]`, `[..., i]`."""
    whole: list[ast.expr] = [ast.Slice() for _ in range(axis if axis >= 0 else -1 - axis)]
    return (*whole, part) if axis >= 0 else (ast.Constant(...), part, *whole)


def along(name: str, args: Sequence[ast.expr], unit: Unit) -> tuple[ast.expr, ...]:
    """The index that `select(dim, i)` and `narrow(dim, start, length)` are; empty when it cannot be written."""
    axis = as_int(args[0]) if args else None
    if axis is None or any(unit.kind(a).tag != "int" for a in args[1:]):
        return ()
    if name == "select" and len(args) == 2:
        return _at(axis, args[1])
    if name != "narrow" or len(args) != 3:
        return ()
    start, length = as_int(args[1]), as_int(args[2])
    if start is not None and length is not None:
        stop = literal(start + length, unit) if start + length or start >= 0 else None
        return _at(axis, ast.Slice(literal(start, unit), stop))
    if not all(isinstance(a, (ast.Name, ast.Constant)) for a in args[1:]):
        return ()
    return _at(axis, ast.Slice(args[1], ast.BinOp(args[1], ast.Add(), args[2])))


def axes_order(args: Sequence[ast.expr]) -> list[int]:
    """The order of `permute`, counted from the front; empty when it is not given by literals."""
    if len(args) == 1 and isinstance(args[0], (ast.Tuple, ast.List)):
        args = args[0].elts
    numbers = [n for a in args if (n := as_int(a)) is not None]
    order = [n % len(args) for n in numbers] if args else []
    return order if sorted(order) == list(range(len(args))) else []
