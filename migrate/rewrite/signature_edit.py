"""Add a keyword-only parameter to a function, in the layout its signature has."""

from __future__ import annotations

import ast

from .plan import Plan


def add_keyword_parameter(plan: Plan, node: ast.FunctionDef | ast.AsyncFunctionDef, text: str) -> None:
    """Add `text` (`rngs: nnx.Rngs`) as the last keyword-only parameter, unless it is there already."""
    tree, args = plan.unit.tree, node.args
    name = text.partition(":")[0].partition("=")[0].strip()
    if any(a.arg == name for a in [*args.posonlyargs, *args.args, *args.kwonlyargs]) or (node, name) in plan.parameters:
        return
    first = not any(owner is node for owner, _ in plan.parameters)
    plan.parameters.append((node, name))
    star = "" if args.vararg or args.kwonlyargs or not first else "*, "
    open_at = _open(tree.text, tree.start(node), node.name)
    close_at = _close(plan, node, open_at)
    if args.kwarg is not None:
        at = tree.text.rindex("**", open_at, tree.start(args.kwarg))
        plan.point(node, at, at, f"{star}{text}, ")
        return
    ends = [tree.end(a) for a in _all(args)] + [
        tree.end(d) for d in [*args.defaults, *args.kw_defaults] if d is not None
    ]
    if not ends:
        plan.point(node, close_at, close_at, f"{star}{text}" if first else f", {text}")
        return
    last = max(ends)
    tail = tree.text[last:close_at]
    comma = "," in "\n".join(line.partition("#")[0] for line in tail.split("\n"))
    if "\n" in tail:
        starts = [tree.start(a) for a in _all(args)]
        line = tree.line_starts[tree.position(max(starts))[0] - 1]
        own_line = not tree.text[line : max(starts)].strip(" \t*,")
        indent = (
            tree.text[line : max(starts)]
            if own_line and not tree.text[line : max(starts)].strip()
            else tree.indent(node) + "    "
        )
        if comma:
            stop = close_at - (len(tail) - tail.rindex("\n") - 1)
            new = "".join(f"{indent}{part},{tree.newline}" for part in ([star.rstrip(", ")] if star else []) + [text])
            plan.point(node, stop, stop, new)
        else:
            paren = _after_parens(tree.text, last, close_at)
            new = "".join(f",{tree.newline}{indent}{part}" for part in ([star.rstrip(", ")] if star else []) + [text])
            plan.point(node, paren, paren, new)
    else:
        plan.point(node, close_at, close_at, f" {star}{text}" if comma else f", {star}{text}")


def _all(args: ast.arguments) -> list[ast.arg]:
    found = [*args.posonlyargs, *args.args, *args.kwonlyargs]
    return [*found, *([args.vararg] if args.vararg else []), *([args.kwarg] if args.kwarg else [])]


def _after_parens(text: str, last: int, close: int) -> int:
    at = last
    while at < close and text[at] in ") \t":
        at += 1
    return last + len(text[last:at].rstrip(" \t"))


def _open(text: str, start: int, name: str) -> int:
    return text.index("(", text.index(name, text.index("def", start) + 3) + len(name)) + 1


def _close(plan: Plan, node: ast.FunctionDef | ast.AsyncFunctionDef, open_at: int) -> int:
    """Where the parameter list's closing parenthesis stands."""
    tree = plan.unit.tree
    spans = tree.comments_in(open_at, tree.start(node.body[0]))
    skip = [(tree.start(d), tree.end(d)) for d in [*node.args.defaults, *node.args.kw_defaults] if d is not None]
    skip += [(tree.start(a), tree.end(a)) for a in _all(node.args)]
    jumps = {first: last for first, last in [*skip, *spans] if last > first}
    depth, at = 0, open_at
    while True:
        jump = jumps.get(at)
        if jump is not None:
            at = jump
            continue
        c = tree.text[at]
        if c in "([{":
            depth += 1
        elif c in ")]}":
            if not depth:
                return at
            depth -= 1
        at += 1
