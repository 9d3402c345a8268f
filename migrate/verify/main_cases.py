"""Cases found in a script's own `if __name__ == "__main__":`, read and not run.

A call of a module that is built there (`net = Net(8)`, `net(torch.randn(4, 8))`), or of a function of the file, becomes
a case when every argument is a literal or an array that torch draws with a literal shape. Anything else is left alone.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Mapping

from .cases import Case, CaseError, parse_case

_DRAWN = {"randn": "f32", "rand": "f32", "zeros": "f32", "ones": "f32", "randint": "i64"}
_PASSED = ("to", "cuda", "cpu", "eval", "train", "requires_grad_")  # give back what they are called on
_TYPES = ("float", "double", "half", "int", "long", "bool", "dtype", "complex")  # but for `.to(torch.float64)`


class _Unknown(Exception):
    """An argument that is neither a literal nor a drawn array."""


def cases_of_main(text: str) -> list[Case]:
    """The cases of a source text, the first of each build; [] when it does not parse or has none."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return []
    classes = {n.name for n in tree.body if isinstance(n, ast.ClassDef)}
    functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
    found: dict[str, Case] = {}
    for body in _bodies(tree, functions):
        known: dict[str, ast.expr] = {}
        for statement in body:
            for call in (n for n in ast.walk(statement) if isinstance(n, ast.Call)):
                if example := _example(call, known, classes, set(functions)):
                    try:
                        case = parse_case(example)
                    except CaseError:
                        continue
                    found.setdefault(f"{case.build} {case.target}", case)
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                known[statement.targets[0].id] = statement.value
    return list(found.values())


def _bodies(tree: ast.Module, functions: Mapping[str, ast.FunctionDef]) -> Iterator[list[ast.stmt]]:
    """The statements under `if __name__ == "__main__"`, and those of a function without parameters called there."""
    for node in tree.body:
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("__name__ == '__main__'", "'__main__' == __name__"):
            yield node.body
            for call in (n for s in node.body for n in ast.walk(s) if isinstance(n, ast.Call)):
                if isinstance(call.func, ast.Name) and call.func.id in functions:
                    function = functions[call.func.id]
                    if not function.args.args:
                        yield function.body


def _example(call: ast.Call, known: Mapping[str, ast.expr], classes: set[str], functions: set[str]) -> str:
    """The text of the case that a call makes, "" when it makes none."""
    target: ast.expr = call.func
    method = ""
    if isinstance(target, ast.Attribute) and target.attr not in _PASSED:
        method = f".{target.attr}"
        target = target.value
    built = _bare(target, known)
    try:
        if isinstance(built, ast.Call) and isinstance(built.func, ast.Name) and built.func.id in classes:
            start = f"{built.func.id}({_arguments(built, known)}){method}"
        elif isinstance(call.func, ast.Name) and call.func.id in functions:
            start = call.func.id
        else:
            return ""
        given = _arguments(call, known)
    except _Unknown:
        return ""
    return f"{start}({given})" if any(f"{dtype}[" in given for dtype in ("f32", "i64")) else ""


def _bare(node: ast.expr, known: Mapping[str, ast.expr]) -> ast.expr:
    """What a name was given, without `.to(device)` and the like behind it."""
    for _ in range(20):
        if isinstance(node, ast.Name) and node.id in known:
            node = known[node.id]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _PASSED:
            given = " ".join(ast.unparse(a) for a in (*node.args, *node.keywords))
            if any(word in given for word in _TYPES):
                break
            node = node.func.value
        else:
            break
    return node


def _arguments(call: ast.Call, known: Mapping[str, ast.expr]) -> str:
    if any(k.arg is None for k in call.keywords):
        raise _Unknown
    named = (f"{k.arg}={_value(k.value, known)}" for k in call.keywords)
    return ", ".join([*(_value(a, known) for a in call.args), *named])


def _value(node: ast.expr, known: Mapping[str, ast.expr]) -> str:
    node = _bare(node, known)
    if isinstance(node, ast.Call):
        return _array(node, known)
    try:
        return repr(ast.literal_eval(_Names(known).visit(copy.deepcopy(node))))
    except ValueError:
        raise _Unknown from None


class _Names(ast.NodeTransformer):
    """Puts what names were given in their place, in containers too."""

    def __init__(self, known: Mapping[str, ast.expr]) -> None:
        self.known = known

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return _bare(node, self.known)


def _array(call: ast.Call, known: Mapping[str, ast.expr]) -> str:
    """`f32[4, 8]` for `torch.randn(4, 8)`; options such as `device=` do not matter, another dtype does."""
    module, _, name = ast.unparse(call.func).rpartition(".")
    kept = {k.arg for k in call.keywords} - {"device", "requires_grad"}
    if module != "torch" or name not in _DRAWN or kept - {"size", "low", "high"}:
        raise _Unknown
    given: list[object] = [ast.literal_eval(_value(a, known)) for a in call.args]
    named = {k.arg: ast.literal_eval(_value(k.value, known)) for k in call.keywords if k.arg in kept}
    bounds: list[object] = []
    if name == "randint":
        given += [named[k] for k in ("low", "high", "size") if k in named]
        bounds, given = given[:-1], given[-1:]
    shape = given[0] if len(given) == 1 and isinstance(given[0], (tuple, list)) else given
    if not isinstance(shape, (tuple, list)) or not all(type(n) is int for n in [*shape, *bounds]):
        raise _Unknown
    text = f"{_DRAWN[name]}[{', '.join(map(str, shape))}]"
    if name == "randint":
        return f"{text} < {bounds[0]}" if len(bounds) == 1 else f"{bounds[0]} <= {text} < {bounds[1]}"
    return f"{text} in 0..1" if name == "rand" else text
