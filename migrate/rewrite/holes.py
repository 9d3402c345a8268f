"""The text of a matched call: the pieces of its target form, and its arguments in the shapes that the holes ask for."""

from __future__ import annotations

import ast
from collections.abc import Callable

from ..read.unit import Unit
from ..rulebook.template import Hole
from .match import Match, Refusal
from .optional import maybe_none
from .plan import Whole
from .writer import Writer


def whole(found: Match, unit: Unit, key: Callable[[], str] | None = None) -> Whole | Refusal:
    """The replacement for a matched call; a Refusal when an argument cannot take the shape that a hole asks for."""
    kept = tuple(n for h in found.form.holes for n in _written(h, found))

    def build(writer: Writer) -> str:
        pieces: list[str] = []
        cut = ""
        for index, piece in enumerate(found.form.pieces):
            if isinstance(piece, str):
                pieces.append(piece.removeprefix(cut))
                cut = ""
                continue
            beyond = found.form.pieces[index + 1] if index + 1 < len(found.form.pieces) else ""
            known = _attribute_of_new(piece, found, unit, writer, beyond if isinstance(beyond, str) else "")
            if known:
                text, cut = known
                pieces.append(text)
            elif piece.name == "key":
                pieces.append(key() if key is not None else "key")
            else:
                pieces.append(_text(piece, found, unit, writer))
        return "".join(pieces)

    return Whole(build, found.form.level, kept)


def _attribute_of_new(hole: Hole, found: Match, unit: Unit, writer: Writer, beyond: str) -> tuple[str, str] | None:
    """`x.new_empty(shape)` followed by `.shape` is `shape`, by `.dtype` is `x.dtype`: no array need be made to ask."""
    nodes = _nodes(hole, found)
    if len(nodes) != 1 or not isinstance(nodes[0], ast.Call):
        return None
    call = nodes[0]
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if name not in ("new_empty", "new_zeros", "new_ones", "empty", "zeros", "ones") or not call.args:
        return None
    if beyond.startswith(".shape"):
        return _tuple(tuple(call.args), True, unit, writer), ".shape"
    if beyond.startswith(".dtype"):
        given = next((k.value for k in call.keywords if k.arg == "dtype"), None)
        if given is not None:
            return writer.text(given), ".dtype"
        if name.startswith("new_") and isinstance(call.func, ast.Attribute):
            return f"{writer.at_level(call.func.value, 15)}.dtype", ".dtype"
        return "jnp.float32", ".dtype"
    return None


def _nodes(hole: Hole, found: Match) -> tuple[ast.AST, ...]:
    name = hole.name.lstrip("*")
    if name == found.arguments.rest_name and found.arguments.rest:
        return found.arguments.rest
    node = found.arguments.named.get(name)
    return (node,) if node is not None else ()


def _written(hole: Hole, found: Match) -> tuple[ast.AST, ...]:
    """The nodes whose text a hole writes: of a literal that its filter takes apart, the elements."""
    nodes = _nodes(hole, found)
    if not hole.filter:
        return nodes
    return tuple(e for n in nodes for e in (n.elts if isinstance(n, (ast.List, ast.Tuple)) else (n,)))


def _text(hole: Hole, found: Match, unit: Unit, writer: Writer) -> str:
    nodes = _nodes(hole, found)
    name = hole.name.lstrip("*")
    if not nodes:
        param = found.signature.by_name.get(name)
        return param.default if param is not None and param.default is not None else name
    if hole.filter == "tuple":
        if _either(nodes, unit) and any(isinstance(p, str) and p.startswith("jax.random.") for p in found.form.pieces):
            return f"jnp.zeros({writer.at_level(nodes[0], 1)}).shape"
        return _tuple(nodes, name == found.arguments.rest_name, unit, writer)
    if hole.filter == "open":
        return _opened(nodes[0], writer)
    if name == found.arguments.rest_name and len(found.arguments.rest) >= 1:
        return ", ".join(writer.at_level(n, 1) for n in nodes)
    node = nodes[0]
    if isinstance(node, (ast.List, ast.Tuple)) and (hole.filter == "axis" or (hole.filter == "axes" and node.elts)):
        return _sequence(node.elts, writer)
    if hole.filter == "axes" and isinstance(node, ast.expr) and unit.kind(node).tag in ("tuple", "list"):
        return _axes(node, unit, writer)
    return writer.at_level(node, hole.level, hole.enclosed)


def _axes(node: ast.expr, unit: Unit, writer: Writer) -> str:
    """A sequence of dimensions: where it is empty, torch takes all of them, and JAX none."""
    kind = unit.kind(node)
    text = writer.at_level(node, 1)
    if isinstance(node, (ast.List, ast.Tuple)):
        return "None"
    if kind.tag == "tuple" and kind.items and kind.name not in ("*", "batch"):
        return text
    if isinstance(node, ast.ListComp):
        text = text[1:-1]
    elif isinstance(node, ast.Call) and len(node.args) == 1:
        if unit.resolve(node.func) in ("builtins.list", "builtins.tuple"):
            text = writer.at_level(node.args[0], 1)
    if maybe_none(node, unit):  # None is all dimensions in both
        text = f"{text} or ()"
    return f"tuple({text}) or None"


def _opened(node: ast.AST, writer: Writer) -> str:
    """The elements of a sequence as arguments: those of a literal one by one, else `*sequence`."""
    if isinstance(node, (ast.List, ast.Tuple)) and node.elts:
        return ", ".join(writer.at_level(n, 1) for n in node.elts)
    return f"*{writer.at_level(node, 1)}"


def _either(nodes: tuple[ast.AST, ...], unit: Unit) -> bool:
    """One size argument that may be a number or a sequence: jnp takes either, jax.random a sequence alone."""
    plain = (ast.Tuple, ast.List, ast.Constant, ast.Starred)
    return len(nodes) == 1 and not isinstance(nodes[0], plain) and not unit.kind(nodes[0]).known


def _tuple(nodes: tuple[ast.AST, ...], varargs: bool, unit: Unit, writer: Writer) -> str:
    if len(nodes) > 1:
        return _sequence(list(nodes), writer)
    node = nodes[0]
    if isinstance(node, (ast.Tuple, ast.List)):
        return _sequence(node.elts, writer)
    if isinstance(node, ast.Starred):
        return f"({writer.text(node)},)"
    kind = unit.kind(node)
    if kind.tag in ("int", "float") or (isinstance(node, ast.Constant)):
        return f"({writer.at_level(node, 1)},)"
    return writer.at_level(node, 1)


def _sequence(elements: list[ast.AST] | list[ast.expr], writer: Writer) -> str:
    texts = [writer.at_level(e, 1) if not isinstance(e, ast.Starred) else writer.text(e) for e in elements]
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"
