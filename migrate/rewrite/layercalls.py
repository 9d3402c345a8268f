"""Calls of the layer library: the class or function of torch's own name and parameters, so that the arguments stay."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..read.needs import draws, key_parameter
from ..rulebook.precedence import ATOM
from ..rulebook.rows import Row
from ..rulebook.signature import Mismatch, Signature, bind
from .match import LEGACY, legacy_reduction
from .nativecalls import native_construction
from .spread import FLOAT32, is_unset, spread

if TYPE_CHECKING:
    from .plan import Build, Plan


def layer_call(
    plan: Plan, row: Row, node: ast.Call, dotted: str, receiver: ast.expr | None, evidence: str = ""
) -> bool:
    """Turn `nn.Linear(a, b)` into `Linear(a, b, rngs=rngs)`: the name changes, the arguments stay where they are.

    Arguments that the library does not have are taken out when the row drops them or they are torch's default; else the
    call is left (JM202).
    """
    name = str(row.get("layer"))
    entry = plan.catalogue.get(name)
    if entry is None:
        plan.found("JM302", node, dotted, f"no layer {name} in the library yet", rule=row.name)
        return False
    spelled_out, unset, problem = _spell_out(plan, node, set(entry.params))
    problem = problem or _arguments(plan, row, spelled_out, receiver, entry.params)
    if problem:
        plan.found("JM202" if "star" not in problem else "JM207", node, dotted, f"{dotted}: {problem}", rule=row.name,
                   advice=row.advice, evidence=evidence)  # fmt: skip
        return False
    tree = plan.unit.tree
    spelled = native_construction(plan, node, name) if name in plan.native.layers and receiver is None else ""
    flax = spelled or name
    spelled = spelled or plan.layer(name)
    wants_key = entry.kind == "function" and draws(row, plan.catalogue, node) == "draw"
    if receiver is None:
        plan.point(node, tree.start(node.func), tree.end(node.func), spelled)
        plan.taken.add(node.func)
    else:
        _method_to_function(plan, node, receiver, spelled)
    for keyword in node.keywords if flax == name else ():
        _rename(plan, row, node, keyword, set(entry.params))
    if entry.needs_rngs:
        plan.rngs_calls.append(node)
    if spelled_out is not node:
        remove_argument(plan, node, next(k.value for k in node.keywords if k.arg is None))
    if wants_key:
        plan.key_calls[node] = key_parameter(row, entry)
    note = row.notes[0] if row.notes else None
    if wants_key:
        plan.found(
            "JM121",
            node,
            dotted,
            f"{dotted} -> {name}: other numbers than torch's generator",
            rule=row.name,
            evidence=evidence,
        )
    else:
        plan.found(
            note.code if note else "JM101" if unset else "JM001",
            node,
            dotted,
            note.text if note else f"{dotted} -> {flax}{f': {FLOAT32}' if unset else _why_not_native(plan, name)}",
            rule=row.name,
            evidence=evidence,
        )
    return True


def _spell_out(plan: Plan, node: ast.Call, known: set[str]) -> tuple[ast.Call, bool, str]:
    """The call without a `**factory_kwargs` of device and dtype, which the library's layers have not got; whether a
    dtype goes that is None unless code outside the project gives one; what stands against it."""
    found = spread(plan, node)
    lacking = found.values.keys() - known if found is not None else set()
    if found is None or not lacking:
        return node, False, ""
    dtype = found.values.get("dtype")
    if not lacking & {"device", "dtype"}:
        return node, False, ""
    if found.values.keys() != lacking or not lacking <= {"device", "dtype"}:
        return node, False, f"star-arguments: the layer library's version has no {min(lacking)}"
    if dtype is not None and not is_unset(plan, dtype):
        return node, False, "star-arguments: dtype has no counterpart"
    rest = [k for k in node.keywords if k is not found.keyword]
    bare = ast.copy_location(ast.Call(node.func, node.args, rest), node)
    return bare, dtype is not None and not isinstance(dtype, ast.Constant), ""


def _why_not_native(plan: Plan, name: str) -> str:
    reason = plan.native.reasons.get(name) if plan.native.on else None
    return f", not Flax's own: {reason}" if reason else ""


def _arguments(plan: Plan, row: Row, node: ast.Call, receiver: ast.expr | None, params: Sequence[str]) -> str:
    """Check every argument; take out those without effect. Returns what is wrong, "" when all is well."""
    signature, known = row.signature or Signature(()), set(params)
    bound = bind(signature, node, receiver)
    if isinstance(bound, Mismatch):
        if bound.reason == "star":
            lacking = {p.name for p in signature.params if p.kind != "varkw"} - known - {"device", "dtype"}
            unseen = lacking and any(k.arg is None for k in node.keywords)  # `**options` may hold them
            if any(isinstance(a, ast.Starred) for a in node.args) and not _in_order(signature, params):
                return "star-arguments: the layer library's version takes fewer, in other places"
            named = {k.arg for k in node.keywords} & (set(row.drop) | set(row.refuse))
            if unseen and not named and lacking <= {*row.drop, str(row.get("effect_arg", ""))}:
                _filter(plan, node, sorted(lacking))
                return ""
            return "star-arguments" if unseen or named else ""
        return f"{bound.detail} {'is missing' if bound.reason == 'missing' else 'is not one of its parameters'}"
    first = signature.params[0].name if signature.params else ""
    legacy = legacy_reduction(signature, bound.named)
    if legacy is not None and (problem := _legacy(plan, node, bound.named, legacy)):
        return problem
    for name, value in bound.named.items():
        if legacy is not None and name in (*LEGACY, "reduction"):
            continue
        if name in known or name not in signature.by_name or (name == first and name in ("self", "input")):
            continue
        default = signature.by_name[name].default
        if name == "dtype" and plan.unit.resolve(value) in ("torch.float32", "torch.float"):
            remove_argument(plan, node, value)  # what the library's layers are made of
            continue
        if name in row.refuse and ast.unparse(value) != default:
            return f"{name} has no counterpart. {row.refuse[name]}"
        if name in row.drop or name == row.get("effect_arg") or ast.unparse(value) == default:
            remove_argument(plan, node, value)
        else:
            return f"the layer library's version has no {name}"
    return ""


def _in_order(signature: Signature, params: Sequence[str], count: int | None = None) -> bool:
    """Whether what torch takes by position, all of it or the first `count`, stands at the same places of the layer
    library's version."""
    names = [p.name for p in signature.params if p.kind == "normal" and p.name not in ("device", "dtype")]
    count = min(len(names), len(params)) if count is None else count
    return count <= len(params) and names[:count] == [*params][:count]


def held_problem(plan: Plan, row: Row, keywords: Sequence[ast.keyword], args: Sequence[ast.expr]) -> str:
    """Why a layer's class, or function, that a variable holds would not take these arguments in the layer library's
    version; "" when it does."""
    entry = plan.catalogue.get(str(row.get("layer")))
    if entry is None or row.signature is None or "*args" in entry.params:
        return ""
    lacking = {p.name for p in row.signature.params} - {*entry.params}
    if named := sorted(lacking & {k.arg for k in keywords if k.arg is not None}):
        return f"the layer library's {entry.name} has no {named[0]}"
    starred = any(isinstance(a, ast.Starred) for a in args)
    if _in_order(row.signature, entry.params, None if starred else len(args)):
        return ""
    return f"the layer library's {entry.name} takes fewer arguments, in other places"


def fit_held(plan: Plan, rows: Sequence[Row], call: ast.Call) -> str:
    """Make a call of a layer's class that a variable holds reach the layer library's versions of `rows`, which are all
    that it may be: arguments that have no effect in any of them are taken out. Returns why it would not reach one, ""
    when all is well."""
    lacking = [_idle(plan, row) for row in rows]
    idle = set.intersection(*lacking) if lacking else set()
    stay = [k for k in call.keywords if k.arg not in idle]
    if problem := next((p for row in rows if (p := held_problem(plan, row, stay, call.args))), ""):
        return problem
    for keyword in call.keywords:
        if keyword not in stay:
            remove_argument(plan, call, keyword.value)
    if (names := sorted(idle - {"device", "dtype"})) and any(k.arg is None for k in stay):
        _filter(plan, call, names)
    return ""


def _idle(plan: Plan, row: Row) -> set[str]:
    """The arguments of a layer that the layer library's version lacks, and which have no effect in JAX."""
    entry = plan.catalogue.get(str(row.get("layer")))
    if entry is None or row.signature is None or "*args" in entry.params:
        return set()
    lacking = {p.name for p in row.signature.params} - {*entry.params}
    return lacking & {*row.drop, str(row.get("effect_arg"))}


def _filter(plan: Plan, node: ast.Call, names: list[str]) -> None:
    """Take arguments without effect in JAX (`inplace`) out of a `**options`."""
    from .plan import Whole
    from .writer import Writer

    test = f'!= "{names[0]}"' if len(names) == 1 else f"not in {tuple(names)}"
    for value in [k.value for k in node.keywords if k.arg is None]:

        def build(writer: Writer, value: ast.expr = value) -> str:
            tree = writer.tree
            text = writer.splice_range(value, tree.start(value), tree.end(value), writer.plan.points.get(value, []))
            text = text if isinstance(value, (ast.Name, ast.Attribute, ast.Call, ast.Dict)) else f"({text})"
            return f"{{k: v for k, v in {text}.items() if k {test}}}"

        plan.whole[value] = Whole(build, ATOM, (value,))


def _legacy(plan: Plan, node: ast.Call, named: Mapping[str, ast.expr], reduction: str) -> str:
    """Write `reduction=` in the place of `size_average` and `reduce`. Returns what is wrong, "" when all is well."""
    values = [named[n] for n in (*LEGACY, "reduction") if n in named]
    place = values[0] if reduction != "mean" else None
    for value in values:
        if value is not place:
            remove_argument(plan, node, value)
    if place is None:
        return ""
    keyword = next((k for k in node.keywords if k.value is place), None)
    if keyword is None and any(a not in values for a in node.args[node.args.index(place) :]):
        return f"{reduction!r} is given by position, by size_average"
    tree = plan.unit.tree
    plan.point(node, tree.start(keyword or place), tree.end(place), f"reduction={reduction!r}")
    plan.taken |= {place}
    return ""


def _rename(plan: Plan, row: Row, node: ast.Call, keyword: ast.keyword, known: set[str]) -> None:
    """`axis=` is torch's second spelling of `dim=`."""
    if keyword.arg in ("axis", "keepdims") and keyword.arg not in known:
        start = plan.unit.tree.start(keyword)
        plan.point(node, start, start + len(keyword.arg), {"axis": "dim", "keepdims": "keepdim"}[keyword.arg])


def _method_to_function(plan: Plan, node: ast.Call, receiver: ast.expr, name: str) -> None:
    """`x.gather(1, i)` becomes `gather(x, 1, i)`."""
    from .plan import Whole
    from .writer import Writer

    tree = plan.unit.tree
    open_at = tree.text.index("(", tree.end(node.func))
    inner = plan.points.pop(node, [])

    def build(writer: Writer) -> str:
        arguments = writer.splice_range(node, open_at + 1, tree.end(node) - 1, inner)
        first = writer.at_level(receiver, 1)
        if not arguments.strip():
            return f"{name}({first}{arguments})"
        return (
            f"{name}({first}, {arguments.lstrip()})"
            if "\n" not in arguments[: len(arguments) - len(arguments.lstrip())]
            else f"{name}({first},{arguments})"
        )

    plan.whole[node] = Whole(build, ATOM, (receiver, *node.args, *node.keywords))


def remove_argument(plan: Plan, node: ast.Call, value: ast.expr) -> None:
    """Take an argument out of a call together with its comma."""
    tree = plan.unit.tree
    items = _items(plan, node)
    index = next(i for i, item in enumerate(items) if item[2] is value)
    kept = _kept(plan, node)
    if any(kept[:index]):
        start, end = _outer_end(tree.text, items[index - 1][1], items[index][0]), items[index][1]
    else:  # with the comma behind it, so that the next one is the first
        start = items[0][0]
        later = (i[0] for i, stays in zip(items[index + 1 :], kept[index + 1 :], strict=True) if stays)
        end = next(later, 0) or _behind_comma(tree.text, items[-1][1], tree.end(node) - 1)
    plan.point(node, start, end, "")
    for sub in ast.walk(value):
        plan.taken.add(sub)


def _items(plan: Plan, node: ast.Call) -> list[tuple[int, int, ast.expr]]:
    """The arguments of a call in the order of the text: where each starts and ends, parentheses around it included, and
    its value."""
    tree = plan.unit.tree
    opened = tree.text.index("(", tree.end(node.func)) + 1
    values = [*((a, a) for a in node.args), *((k, k.value) for k in node.keywords)]
    spans = [(*_outer(tree.text, tree.start(n), tree.end(n), opened, tree.end(node) - 1), v) for n, v in values]
    return sorted(spans, key=lambda i: i[0])


def _outer(text: str, start: int, end: int, first: int, last: int) -> tuple[int, int]:
    """A part of a text between `first` and `last` with the parentheses around it."""
    while (before := text[first:start].rstrip()).endswith("(") and text[end:last].lstrip().startswith(")"):
        start, end = first + len(before) - 1, text.index(")", end) + 1
    return start, end


def _kept(plan: Plan, node: ast.Call) -> list[bool]:
    """Which of the arguments of a call, in the order of the text, were not taken out."""
    gone = [p for p in plan.points.get(node, ()) if not p.text]
    return [not any(p.start <= first and last <= p.end for p in gone) for first, last, _ in _items(plan, node)]


def _behind_comma(text: str, end: int, limit: int) -> int:
    """The end of the last argument, its comma included."""
    comma = text[end:limit].lstrip(" \t").startswith(",")
    return text.index(",", end) + 1 if comma else end


def _outer_end(text: str, end: int, limit: int) -> int:
    """The end of an argument, parentheses around it included: just before its comma."""
    comma = text.find(",", end, limit)
    return comma if comma >= 0 else end


def add_argument(plan: Plan, node: ast.Call, text: str | Build) -> None:
    """Append an argument to a call, in the layout the call has. Nothing when the call names it already."""
    if isinstance(text, str) and any(k.arg == text.partition("=")[0] for k in node.keywords):
        return
    tree = plan.unit.tree
    close = tree.end(node) - 1

    def between(before: str, after: str = "") -> str | Build:
        return f"{before}{text}{after}" if isinstance(text, str) else lambda w: f"{before}{text(w)}{after}"

    ends = [end for _, end, _ in _items(plan, node)]
    if not any(_kept(plan, node)):
        plan.point(node, close, close, text)
        return
    last = max(ends)
    tail = tree.text[last:close]
    if "," not in _code(tail):
        plan.point(
            node,
            close if "\n" not in tail else last + _closing(tail),
            close if "\n" not in tail else last + _closing(tail),
            between(", "),
        )
    elif "\n" in tail:
        line = tree.line_starts[tree.position(max(tree.start(a) for a in [*node.args, *node.keywords]))[0] - 1]
        indent = tree.text[line : line + len(tree.text[line:]) - len(tree.text[line:].lstrip(" \t"))]
        stop = last + tail.rindex("\n") + 1
        plan.point(node, stop, stop, between(indent, f",{tree.newline}"))
    else:
        plan.point(node, close, close, between("" if tail.endswith(" ") else " ", ","))


def _code(text: str) -> str:
    return "\n".join(line.partition("#")[0] for line in text.split("\n"))


def _closing(tail: str) -> int:
    """How many characters of closing parentheses of the last argument's own come before the line ends."""
    count = 0
    while count < len(tail) and tail[count] in ") \t":
        count += 1
    return len(tail[:count].rstrip(" \t"))
