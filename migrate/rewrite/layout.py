"""Keep the layout of calls that span lines: edit between the arguments instead of writing the call anew."""

from __future__ import annotations

import ast

from ..rulebook.template import Hole
from .match import Match
from .plan import Plan, Whole
from .writer import Writer


def keep_layout(plan: Plan, found: Match, node: ast.Call, plain: Whole) -> Whole:
    """`plain`, or a replacement that keeps line breaks and comments between the arguments.

    That is possible when the form is one call, `f({a}, {b}, axis={c})`, that takes the arguments in the source's order.
    """
    tree = plan.unit.tree
    if "\n" not in tree.segment(node):
        return plain
    parts = _call_form(found)
    if parts is None:
        return plain
    head, slots = parts
    values = [*node.args, *(k.value for k in node.keywords)]
    given = [(prefix, found.arguments.named.get(name)) for prefix, name in slots]
    receiver = node.func.value if isinstance(node.func, ast.Attribute) else None
    leading = given[0][1] if given and given[0][1] is receiver and receiver is not None else None
    rest = given[1:] if leading is not None else given
    nodes = [value for _, value in rest]
    if any(n is None for n in nodes) or nodes != values or any(isinstance(n, ast.Starred) for n in nodes):
        return plain
    if not values:
        return plain
    open_at = _open(tree.text, tree.end(node.func))

    def build(writer: Writer) -> str:
        out = [head, "("]
        if leading is not None:
            out.append(f"{given[0][0]}{writer.at_level(leading, 1)},")
        at = open_at + 1
        first = True
        for (prefix, value), item in zip(rest, [*node.args, *node.keywords], strict=True):
            assert value is not None
            between = tree.text[at : tree.start(item)]
            if first and leading is not None and not between[:1].isspace():
                between = " " + between
            first = False
            out += [between, prefix, writer.at_level(value, 1)]
            at = tree.end(item)
        out.append(tree.text[at : tree.end(node)])
        return "".join(out)

    return Whole(build, plain.level, (node,))


def _open(text: str, at: int) -> int:
    return text.index("(", at)


def _call_form(found: Match) -> tuple[str, list[tuple[str, str]]] | None:
    """The function text and the (prefix, hole) slots of a form that is one plain call, else None."""
    pieces = found.form.pieces
    if not pieces or not isinstance(pieces[0], str) or pieces[-1] != ")":
        return None
    head, paren, prefix = pieces[0].partition("(")
    if not paren or not head.replace(".", "").isidentifier():
        return None
    slots: list[tuple[str, str]] = []
    for piece in pieces[1:-1]:
        if isinstance(piece, Hole):
            value = found.arguments.named.get(piece.name)
            if value is None or piece.name == "key":
                return None
            if piece.filter and (piece.filter not in ("axis", "axes") or isinstance(value, (ast.List, ast.Tuple))):
                return None
            slots.append((prefix, piece.name))
            prefix = ""
        else:
            if not piece.startswith(","):
                return None
            prefix = piece[1:].lstrip()
            if prefix and not (prefix.endswith("=") and prefix[:-1].isidentifier()):
                return None
    return head, slots
