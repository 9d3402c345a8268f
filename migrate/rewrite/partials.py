"""`partial(torch.cat, dim=1)`: arguments given in advance are translated with the function that they are for."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection

from ..read.chosen import ANY_FUNCTION
from ..read.kinds import TENSOR
from ..rulebook.precedence import ATOM, LAMBDA
from ..rulebook.rows import Row
from .holes import whole
from .imports import KNOWN
from .layercalls import held_problem
from .match import Match, Refusal, match
from .modules.named import looked_up_take
from .plan import Plan, Whole
from .settle import settle
from .values import function_text
from .writer import Writer

_TENSORS = ("self", "input", "x")


def plan_partials(plan: Plan) -> None:
    """Convert every `functools.partial` of a function of torch that a row translates; a layer's class is left to
    others. What cannot be said as a partial of the target, or as a lambda of what is missing, is left."""
    for call in plan.unit.tree.all(ast.Call):
        partial = plan.unit.resolve(call.func) == "functools.partial"
        _check_held(plan, call, call.args[0] if partial and call.args else call.func)
        if not partial or len(call.args) + len(call.keywords) < 2:
            continue
        function = call.args[0] if call.args else None
        dotted = plan.unit.resolve(function) if function is not None else None
        row = plan.unit.book.find(dotted) if dotted and dotted.startswith("torch.") else None
        if function is None or dotted is None or row is None or function in plan.taken:
            continue
        if row.get("layer") and (problem := held_problem(plan, row, call.keywords, call.args[1:])):
            plan.taken |= {call, *plan.unit.tree.walk(function)}
            plan.found("JM202", call, dotted, f"{dotted}: {problem}", rule=row.name, advice="Leave it out.")
            continue
        if row.signature is None or not row.options or row.get("layer") or row.get("const"):
            continue
        plan.taken |= {call, function, *plan.unit.tree.walk(function)}
        if (own := _library_function(plan, row, call)) is not None:
            plan.replace(function, plan.layer(own))
            plan.found("JM001", call, dotted, f"{dotted} -> {own}, which takes the same arguments", rule=row.name)
            continue
        found = _matched(plan, row, call)
        result = _written(plan, found, call) if isinstance(found, Match) else found
        settle(plan, row, call, dotted, result, "", found if isinstance(found, Match) else None)


def _check_held(plan: Plan, call: ast.Call, function: ast.expr) -> None:
    """Report arguments of torch's for a function that a variable holds and whose target spells them otherwise, or has
    others in their places: `f = torch.cat`, then `f(xs, dim=1)`."""
    kind = plan.unit.kind(function)
    names = {k.arg for k in call.keywords}
    count = len(call.args) - (function is not call.func)
    if kind.tag != "torch" or plan.unit.resolve(function) or call in plan.taken:
        return
    for held in kind.items or (kind,):
        row = plan.unit.book.find(held.name)
        if held.name == ANY_FUNCTION:
            known = not names or looked_up_take(plan, names)
            problem = "" if known else f"may hold any function: whether it takes {_spelled(names)} is not known"
        elif row is None or row.signature is None or row.get("layer"):
            continue
        else:
            problem = _held_otherwise(plan, row, names, count)
            problem = f"holds {held.name}, whose counterpart {problem}" if problem else ""
        if problem:
            advice = "Write the arguments where the function is named: partial(f, dim=1)."
            message = f"`{ast.unparse(function)}` {problem}"
            plan.found("JM203", call, held.name, message, rule=row.name if row else "", advice=advice)
            return


def _held_otherwise(plan: Plan, row: Row, names: Collection[str | None], count: int) -> str:
    """What a row's function as a value makes of arguments by name, or of the first `count` by position, that torch
    would not; "" when nothing. The `axis` of NumPy's functions is their second."""
    assert row.signature is not None
    written = function_text(plan, row)
    if written is None:
        return ""  # left where it is named
    entry = plan.catalogue.get(written[0])
    if names and (entry is None or not {*names} <= {*entry.params}):
        return f"does not take {_spelled(names)}"
    normal = [p for p in row.signature.params if p.kind == "normal"]
    if entry is not None or count <= sum(p.default is None for p in normal):
        return ""
    first = [p.name for p in normal[:count]]
    same = [f"{written[0]}({between.join(first)})" for between in (", ", ", axis=")]
    forms = (option.template.form(frozenset(first)) for option in row.options)
    if any("".join(p if isinstance(p, str) else p.name for p in form.pieces) in same for form in forms):
        return ""
    return "takes fewer arguments, or others in their places"


def _spelled(names: Collection[str | None]) -> str:
    return ", ".join(sorted(f"{n}=" if n else "**" for n in names))


def _library_function(plan: Plan, row: Row, call: ast.Call) -> str | None:
    """The library's function with torch's own parameters, when it has those that are given: later calls may give
    more."""
    names = {k.arg for k in call.keywords}
    if len(call.args) > 1 or row.get("effect_arg") in names:
        return None
    return _own_name(plan, row, names)


def _own_name(plan: Plan, row: Row, names: Collection[str | None]) -> str | None:
    for option in row.options:
        head = option.template.text.partition("(")[0]
        entry = plan.catalogue.get(head)
        if entry is not None and set(names) <= set(entry.params) and not entry.needs_rngs and "key" not in entry.params:
            return head
    return None


def _matched(plan: Plan, row: Row, call: ast.Call) -> Match | Refusal:
    """The target form for the arguments that are given, with names for those that are not."""
    assert row.signature is not None
    given = [*call.args[1:], *(k.value for k in call.keywords)]
    if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
        return Refusal("JM207", f"partial of {row.name}: the arguments are starred")
    effect = row.get("effect_arg")
    if row.get("effect") == "inplace" or any(k.arg == effect and not _is_false(k.value) for k in call.keywords):
        return Refusal("JM206", f"partial of {row.name}: it writes over its input")
    if not all(isinstance(a, ast.Name) or _is_literal(a) for a in given):
        return Refusal("JM203", f"partial of {row.name}: its arguments are neither names nor literals",
                       "Bind them to names first.")  # fmt: skip
    taken = {k.arg for k in call.keywords} | {p.name for p in row.signature.params[: len(call.args) - 1]}
    waiting = [p.name for p in row.signature.params if p.default is None and p.name not in taken]
    if any(row.signature.by_name[n].kind != "normal" for n in waiting):
        return Refusal("JM203", f"partial of {row.name}: which arguments follow is not known")
    missing = [ast.keyword(arg=n, value=_placeholder(plan, n)) for n in waiting]
    found = match(row, ast.Call(call.args[0], call.args[1:], [*call.keywords, *missing]), None, plan.unit)
    if isinstance(found, Match) and found.wants_key:
        return Refusal("JM203", f"partial of {row.name}: each call needs a key of its own")
    return found


def _placeholder(plan: Plan, name: str) -> ast.expr:
    node = ast.Name(name, ast.Load())
    spelled = "x" if name in ("self", "input") else name
    plan.whole[node] = Whole(lambda _: spelled, ATOM)
    if name in _TENSORS:
        plan.unit.kinds[node] = TENSOR
    return node


def _written(plan: Plan, found: Match, call: ast.Call) -> Whole | Refusal:
    names = frozenset(n for o in found.row.options for n in o.template.free_names)
    clash = [n for n in names if n in plan.catalogue and n in plan.own_names]
    unknown = [n for n in names if n not in plan.catalogue and n not in KNOWN and not hasattr(builtins, n)]
    if clash or unknown:
        why = f"the file has a name {clash[0]} of its own" if clash else f"the layer library has no {unknown[0]} yet"
        return Refusal("JM203", f"partial of {found.row.name}: {why}")
    inner = whole(found, plan.unit)
    if isinstance(inner, Refusal):
        return inner
    plan.layers |= names & plan.catalogue.keys()
    waiting = [n for n in found.signature.by_name if n in found.arguments.named and _waits(plan, found, n)]
    spelled = ["x" if n in ("self", "input") else n for n in waiting]
    free = [a.id for a in [*call.args[1:], *(k.value for k in call.keywords)] if isinstance(a, ast.Name)]

    plain = _rest(_sketch(found), spelled) is not None and not call.args[1:]

    def build(writer: Writer) -> str:
        text = inner.build(writer)
        rest = _rest(text, spelled) if plain else None
        if rest is not None:
            return f"{writer.text(call.func)}({', '.join(rest)})" if len(rest) > 1 else rest[0]
        bound = ", ".join([*spelled, *(["*"] if free else []), *(f"{n}={n}" for n in dict.fromkeys(free))])
        return f"lambda {bound}: {text}"

    return Whole(build, ATOM if plain else LAMBDA, tuple(n for n in inner.kept if "lineno" in n.__dict__))


def _sketch(found: Match) -> str:
    """The target form as it will be written, but for what is rewritten inside its arguments."""
    named = found.arguments.named
    pieces = (
        p if isinstance(p, str) else ast.unparse(named[p.name]) if p.name in named else "None"
        for p in found.form.pieces
    )
    return "".join(pieces)


def _rest(text: str, waiting: list[str]) -> list[str] | None:
    """The function of `f(x, axis=1)` and its arguments by name, when all the others are what it waits for, in order."""
    call = ast.parse(text, mode="eval").body
    if not isinstance(call, ast.Call) or not isinstance(call.func, (ast.Name, ast.Attribute)):
        return None
    spelled = [p.id if p.id != "input" and p.id != "self" else "x" for p in call.args if isinstance(p, ast.Name)]
    if spelled != waiting or len(spelled) != len(call.args) or any(k.arg is None for k in call.keywords):
        return None
    used = {n.id for k in call.keywords for n in ast.walk(k.value) if isinstance(n, ast.Name)}
    if used & set(waiting):
        return None
    parts = [ast.get_source_segment(text, k.value) or "" for k in call.keywords]
    function = ast.get_source_segment(text, call.func) or ""
    return [function, *(f"{k.arg}={part}" for k, part in zip(call.keywords, parts, strict=True))]


def _waits(plan: Plan, found: Match, name: str) -> bool:
    node = found.arguments.named[name]
    return "lineno" not in node.__dict__ and node in plan.whole


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def _is_literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError):
        return False
    return True
