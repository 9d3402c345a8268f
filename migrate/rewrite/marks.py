"""Marks for TorchScript, torch.fx and torch.compile that change no numbers: they go."""

from __future__ import annotations

import ast
import re

from ..rulebook.load import torch_names
from ..rulebook.precedence import level_of
from .decorators import remove_decorator
from .plan import Plan, Whole

# As decorators. `script` compiles, as jax.jit around the whole step does; the others say what a compiler may do.
_SCRIPT = "gone: the function runs as it is written, and jax.jit compiles what calls it"
_TRACED = "gone: JAX traces plain Python"
_GONE = {
    "torch.jit.script": _SCRIPT,
    "torch.jit.script_if_tracing": _SCRIPT,
    "torch.jit._script_if_tracing": _SCRIPT,
    "torch.jit.ignore": _TRACED,
    "torch.jit.unused": _TRACED,
    "torch.jit.export": _TRACED,
    "torch.jit._overload_method": _TRACED,
    "torch.fx.wrap": _TRACED,
    "torch.compiler.disable": _TRACED,
    "torch.compiler.allow_in_graph": _TRACED,
    "torch._dynamo.disable": _TRACED,
    "torch._dynamo.allow_in_graph": _TRACED,
}

_STATEMENTS = {
    "torch.fx.wrap": _TRACED,
    "torch._C._log_api_usage_once": "gone: torch counts there what is used",
}
_ONE_OR_MORE = re.compile(r"torch\.(jit\.annotations|_jit_internal)\.BroadcastingList[1-6]")


def plan_marks(plan: Plan) -> None:
    """Remove decorators that are marks, statements such as `torch.fx.wrap("name")`, and types for TorchScript."""
    tree = plan.unit.tree
    for owner in [n for n in tree.nodes if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))]:
        for node in owner.decorator_list:
            dotted = plan.unit.resolve(node.func if isinstance(node, ast.Call) else node) or ""
            if dotted in _GONE and node not in plan.taken:
                plan.taken |= set(tree.walk(node))
                if remove_decorator(plan, owner, node):
                    plan.found("JM002", node, dotted, _GONE[dotted])
                else:
                    plan.found("JM204", node, dotted, "removing the decorator would lose a comment")
    for stmt in tree.all(ast.Expr):
        call = stmt.value
        name = plan.unit.resolve(call.func) if isinstance(call, ast.Call) else None
        if name in _STATEMENTS and call not in plan.taken:
            plan.taken |= set(tree.walk(call))
            plan.lines[stmt] = lambda _: []
            plan.found("JM002", call, name, _STATEMENTS[name])
        if name == "torch._assert" and isinstance(call, ast.Call):
            _assertion(plan, stmt, call)
    for call in tree.all(ast.Call):
        _asked_for(plan, call)
    for node in tree.all(ast.Subscript):
        dotted = plan.unit.resolve(node.value) or ""
        if _ONE_OR_MORE.fullmatch(dotted) and node not in plan.taken:
            text = tree.segment(node.slice)
            plan.taken |= set(tree.walk(node))
            plan.replace(node, f"{text} | list[{text}]", 5)
            plan.found("JM002", node, dotted, "a mark for TorchScript: one for all dimensions, or a list")
        if dotted == "torch.jit.Final" and node not in plan.taken:
            inner = node.slice
            plan.taken |= {node, *tree.walk(node.value)}
            plan.whole[node] = Whole(lambda writer, kept=inner: writer.text(kept), level_of(inner), (inner,))  # type: ignore[misc]
            plan.found("JM002", node, "torch.jit.Final", "a mark for TorchScript: the type stays")


def _assertion(plan: Plan, stmt: ast.Expr, call: ast.Call) -> None:
    """`torch._assert(condition, message)` is an `assert` that torch.fx traces."""
    given = dict(zip(("condition", "message"), call.args, strict=False)) | {k.arg: k.value for k in call.keywords}
    condition, message = given.get("condition"), given.get("message")
    if condition is None or message is None or len(given) != 2 or len(call.args) + len(call.keywords) != 2:
        return
    lost = plan.unit.tree.comments_in(plan.unit.tree.start(stmt), plan.unit.tree.end(stmt))
    if lost or any(isinstance(a, ast.Starred) for a in call.args) or call in plan.taken:
        return
    plan.taken |= {call, *plan.unit.tree.walk(call.func)}
    plan.lines[stmt] = lambda w: [f"assert {_line(w.at_level(condition, 1))}, {_line(w.at_level(message, 1))}"]
    eager = plan.unit.kind(condition).is_tensor
    why = ": it reads the value of a tensor, which is there without jit only" if eager else ""
    plan.found("JM141" if eager else "JM001", call, "torch._assert", f"torch._assert -> assert{why}")


def _line(text: str) -> str:
    """An expression that may go over several lines, as it can stand in a statement."""
    return f"({text})" if "\n" in text else text


def _asked_for(plan: Plan, call: ast.Call) -> None:
    """`hasattr(torch, "compile")` is what it is in the release of torch that the rules know."""
    resolve = plan.unit.resolve
    if resolve(call.func) != "builtins.hasattr" or len(call.args) != 2 or call in plan.taken:
        return
    module, name = resolve(call.args[0]) or "", call.args[1]
    modules = torch_names().names
    if module not in modules or not isinstance(name, ast.Constant) or not isinstance(name.value, str):
        return
    dotted = f"{module}.{name.value}"
    if not torch_names().known(dotted) and dotted not in modules:
        return  # the rules know most of what is public, and not all
    plan.taken |= set(plan.unit.tree.walk(call))
    plan.replace(call, "True")
    plan.found("JM001", call, dotted, "True: the torch that the rules know has it")
