"""Match a call against a row: which target form fits, and the text of its arguments."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ..read.kinds import Kind
from ..read.unit import Unit
from ..rulebook.condition import holds, parse
from ..rulebook.rows import Note, Row, literal
from ..rulebook.signature import Arguments, Mismatch, Signature, bind
from ..rulebook.template import Form
from .once import misplaced
from .optional import maybe_none
from .placement import is_dropped

# Casts of floats to these wrap in torch (over int64), and saturate in JAX.
SMALL_INTS = frozenset({"torch.uint8", "torch.int8", "torch.int16", "torch.short"})
_BACKWARD = re.compile(r"\.backward\(|autograd\.grad\(|\.grad\b")


@dataclass(frozen=True)
class Refusal:
    """Why a row does not apply: the code of the finding and its message."""

    code: str
    message: str
    advice: str = ""


@dataclass(frozen=True)
class Match:
    """A row that fits a call: the form to write and the arguments to fill it with."""

    row: Row
    form: Form
    arguments: Arguments
    signature: Signature
    notes: tuple[Note, ...] = ()

    @property
    def wants_key(self) -> bool:
        return any(h.name == "key" for h in self.form.holes)


def match(row: Row, call: ast.Call, receiver: ast.expr | None, unit: Unit) -> Match | Refusal:
    """Bind the arguments of `call` and choose the first target form that uses all of them."""
    signature = row.signature
    if signature is None:
        return Refusal("JM202", f"{row.name} has no call form")
    arguments = bind(signature, call, receiver)
    if isinstance(arguments, Mismatch):
        return _mismatch(row, arguments)
    arguments = _modern(signature, arguments)
    return choose(row, signature, arguments, unit)


LEGACY = ("size_average", "reduce")


def legacy_reduction(signature: Signature, named: Mapping[str, ast.expr]) -> str | None:
    """The reduction that literal `size_average` and `reduce` stand for; they go before `reduction`
    (torch.nn._reduction.legacy_get_string). None when neither is given, or not as a literal."""
    flags = [named[n] for n in LEGACY if n in named]
    given = [f.value for f in flags if isinstance(f, ast.Constant)]
    if "size_average" not in signature.by_name or len(given) != len(flags) or all(v is None for v in given):
        return None
    average, reduce = (n not in named or _says_yes(named[n]) for n in LEGACY)
    return "none" if not reduce else "mean" if average else "sum"


def _says_yes(flag: ast.expr) -> bool:
    return isinstance(flag, ast.Constant) and (flag.value is None or bool(flag.value))


def _modern(signature: Signature, arguments: Arguments) -> Arguments:
    """`reduction` in the place of what came before it."""
    reduction = legacy_reduction(signature, arguments.named)
    if reduction is None:
        return arguments
    named = {n: v for n, v in arguments.named.items() if n not in LEGACY}
    return replace(arguments, named={**named, "reduction": ast.Constant(reduction)})


def _mismatch(row: Row, mismatch: Mismatch) -> Refusal:
    if mismatch.reason == "star":
        return Refusal("JM207", f"{row.name}: the arguments are starred")
    if mismatch.reason == "missing":
        return Refusal("JM203", f"{row.name}: {mismatch.detail} is missing")
    return Refusal("JM202", f"{row.name}: {mismatch.detail} is not in ({row.signature})")


def choose(row: Row, signature: Signature, arguments: Arguments, unit: Unit) -> Match | Refusal:
    ask = asker(signature, arguments, unit)
    used = frozenset(n for n in arguments.given if not _is_default(signature, arguments, n))
    used -= {n for n in used if n == "device" and is_dropped(unit, arguments.named.get(n))}
    refused = [n for n in sorted(used) if n in row.refuse]
    if refused:
        return Refusal("JM202", f"{row.name}: {refused[0]} has no counterpart", row.refuse[refused[0]])
    used -= set(row.drop) | {row.get("effect_arg", "")}
    inserted = _defaults_to_write(signature)
    refusal = ""
    for option in row.options:
        template = option.template
        available = used | {"key", "rngs", "lr"}
        if option.when and not holds(option.when, ask):
            continue
        holes = {n.lstrip("*") for n in template.names}
        if not used - {"generator"} <= holes | _conditioned(option.when):
            continue
        if not {n.lstrip("*") for n in template.required} <= available | arguments.given | inserted:
            continue
        form = template.form(frozenset(n for n in template.names if n.lstrip("*") in available))
        if problem := misplaced(form, arguments, unit):
            refusal = problem
            continue
        notes = tuple(n for n in row.notes if not n.when or holds(n.when, ask))
        return Match(row, form, arguments, signature, notes)
    if refusal:
        return Refusal("JM203", f"{row.name}: {refusal}", "Bind the argument to a name first.")
    return Refusal(
        "JM202", f"{row.name}: no target form takes ({', '.join(sorted(used)) or 'these arguments'})", row.advice
    )


def _conditioned(when: str) -> set[str]:
    """Arguments that a condition pins to a value (`value(p) == 2`): the form has used them up."""
    if not when:
        return set()
    pinned = set()
    for node in ast.walk(parse(when)):
        if not isinstance(node, ast.Compare) or not all(isinstance(op, (ast.Eq, ast.In, ast.Is)) for op in node.ops):
            continue
        left = node.left
        if isinstance(left, ast.Call) and isinstance(left.func, ast.Name) and left.func.id == "value":
            if isinstance(left.args[0], ast.Name):
                pinned.add(left.args[0].id)
    return pinned


def _defaults_to_write(signature: Signature) -> frozenset[str]:
    return frozenset(p.name for p in signature.params if p.default is not None and p.default != "None")


def _is_default(signature: Signature, arguments: Arguments, name: str) -> bool:
    param = signature.by_name.get(name)
    node = arguments.named.get(name)
    if param is None or node is None or param.default is None:
        return False
    return ast.unparse(node) == param.default


def asker(signature: Signature, arguments: Arguments, unit: Unit) -> Callable[[str, str], object]:
    """Answers the questions of `when` conditions about this call."""

    def ask(what: str, name: str) -> object:
        node = arguments.named.get(name)
        if name == arguments.rest_name and arguments.rest and node is None:
            node = arguments.rest[0] if len(arguments.rest) == 1 else None
        if what == "given":
            return name in arguments.given and not _is_default(signature, arguments, name)
        if what == "value":
            if node is not None:
                return literal(ast.unparse(node))
            param = signature.by_name.get(name)
            return literal(param.default) if param is not None and param.default is not None else ...
        if what == "kind":
            if isinstance(node, ast.Starred):
                return "starred"
            if (
                node is not None
                and maybe_none(node, unit)
                and getattr(signature.by_name.get(name), "default", "") == "None"
            ):
                return "optional"
            return _kind_word(unit.kind(node)) if node is not None else "None"
        if what == "literal":
            return node is not None and literal(ast.unparse(node)) is not ...
        if what == "variable":
            return node is not None and _is_variable(unit, node)
        if what == "tensors":
            several = arguments.rest if name == arguments.rest_name and len(arguments.rest) > 1 else (node,)
            if isinstance(node, (ast.List, ast.Tuple)):
                if unit.tree.comments_in(unit.tree.start(node), unit.tree.end(node)):  # they could not stay
                    return False
                several = tuple(node.elts)
            return all(n is not None and unit.kind(n).is_tensor for n in several)
        if what == "count":
            return ... if any(isinstance(a, ast.Starred) for a in arguments.rest) else len(arguments.rest)
        if what == "first":
            return _kind_word(unit.kind(arguments.rest[0])) if arguments.rest else "None"
        if what == "backward":
            return bool(_BACKWARD.search(unit.source.text))
        if what == "small":
            return node is not None and (unit.resolve(node) or "") in SMALL_INTS
        if what == "fixed":
            return _fixed(arguments, name, node)
        if what == "name":
            return node.id if isinstance(node, ast.Name) else ""
        raise ValueError(f"unknown question {what}({name})")

    return ask


def _is_variable(unit: Unit, node: ast.expr) -> bool:
    """Whether an argument is a parameter or buffer of a module, perhaps None in place of it."""
    if isinstance(node, ast.IfExp):
        either = (n for n in (node.body, node.orelse) if not (isinstance(n, ast.Constant) and n.value is None))
        return all(_is_variable(unit, n) for n in either)
    return isinstance(node, ast.Attribute) and unit.kind(node).tag == "Variable"


def _fixed(arguments: Arguments, name: str, node: ast.expr | None) -> bool:
    """Whether sizes are all there and none of them is -1, as far as the text shows."""
    if name == arguments.rest_name and arguments.rest:
        nodes: list[ast.expr] = list(arguments.rest)
    else:
        nodes = [node] if node is not None else []
    if len(nodes) == 1 and isinstance(nodes[0], (ast.Tuple, ast.List)):
        nodes = list(nodes[0].elts)
    plain = [
        n
        for n in nodes
        if not isinstance(n, ast.Starred) and (isinstance(n, ast.Constant) or not isinstance(n, ast.UnaryOp))
    ]
    return bool(nodes) and len(plain) == len(nodes) and all(isinstance(n, ast.Constant) for n in nodes)


def _kind_word(kind: Kind) -> str:
    return "Tensor" if kind.tag == "Variable" else kind.tag
