"""What loops and tests say about names."""

from __future__ import annotations

import ast

from .evaluate import Env
from .facts import ClassFacts
from .frame import Frame
from .kinds import (
    BOOL,
    FLOAT,
    INT,
    STR,
    TENSOR,
    UNKNOWN,
    VARIABLE,
    Kind,
    join_all,
)

PROGRESS = ("tqdm.tqdm", "tqdm.auto.tqdm", "tqdm.autonotebook.tqdm", "tqdm.notebook.tqdm", "tqdm.std.tqdm")


class Narrowing(Frame):
    """Kinds of loop elements, and kinds that hold where a test holds."""

    def iterate(self, node: ast.expr, env: Env) -> Kind:
        """The kind of one element when looping over `node`."""
        kind = self.evaluate(node, env)
        if isinstance(node, ast.Call):
            dotted = self.unit.resolve(node.func) or ""
            if dotted == "builtins.enumerate" and node.args:
                return Kind("tuple", "", (INT, self.iterate(node.args[0], env)))
            if dotted == "builtins.zip":
                return Kind("tuple", "", tuple(self.iterate(a, env) for a in node.args))
            if dotted in PROGRESS and node.args:
                return self.iterate(node.args[0], env)
            if isinstance(node.func, ast.Attribute) and node.func.attr == "items":
                base = self.unit.kind(node.func.value)
                if base.tag == "dict":
                    return Kind("tuple", "", (STR, base.element()))
        return kind.element()

    def narrow(self, test: ast.expr, env: Env, holds: bool) -> None:
        """Use what `test` says about names: isinstance, `is None`, `torch.is_tensor`, `and`/`not`."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self.narrow(test.operand, env, not holds)
        elif isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) is holds:
            for value in test.values:
                self.narrow(value, env, holds)
        elif isinstance(test, ast.Call) and holds:
            self._narrow_call(test, env)
        elif isinstance(test, ast.Compare) and holds:
            self._narrow_type(test, env)

    def _narrow_type(self, test: ast.Compare, env: Env) -> None:
        """`type(m) == nn.Linear`, `type(m) is nn.Linear`."""
        left, operator = test.left, test.ops[0]
        asks = isinstance(left, ast.Call) and len(left.args) == 1 and self.unit.resolve(left.func) == "builtins.type"
        if asks and len(test.ops) == 1 and isinstance(operator, (ast.Eq, ast.Is)):
            kind = self._instance(test.comparators[0])
            if kind.known:
                self._set(left.args[0], kind.because("its type"), env)  # type: ignore[attr-defined]

    def _narrow_call(self, test: ast.Call, env: Env) -> None:
        dotted = self.unit.resolve(test.func)
        if dotted == "torch.is_tensor" and test.args:
            self._set(test.args[0], TENSOR.because("torch.is_tensor"), env)
        elif dotted == "builtins.isinstance" and len(test.args) == 2:
            classes = test.args[1].elts if isinstance(test.args[1], ast.Tuple) else [test.args[1]]
            kinds = [self._instance(c) for c in classes]
            if all(k.known for k in kinds):
                self._set(test.args[0], join_all(kinds).because("isinstance"), env)

    def _instance(self, cls: ast.expr) -> Kind:
        dotted = self.unit.resolve(cls) or ""
        if dotted == "torch.Tensor":
            return TENSOR
        if dotted == "torch.nn.Parameter":
            return VARIABLE
        found = self.unit.local(cls) or self.project.find(dotted)
        if isinstance(found, ClassFacts) and found.is_module:
            return Kind("Module", found.layer_base, facts=found)
        if dotted.startswith("torch.nn.") and dotted.rpartition(".")[2][:1].isupper():
            return Kind("Module", "" if dotted == "torch.nn.Module" else dotted)
        simple = {
            "int": INT,
            "float": FLOAT,
            "str": STR,
            "bool": BOOL,
            "list": Kind("list"),
            "dict": Kind("dict"),
            "tuple": Kind("tuple", "*"),
        }
        return simple.get(dotted.removeprefix("builtins."), UNKNOWN)

    def _set(self, node: ast.expr, kind: Kind, env: Env) -> None:
        if isinstance(node, ast.Name):
            old = env.get(node.id, UNKNOWN)
            if not (old.tag == kind.tag and old.facts is not None):
                env[node.id] = kind
        elif isinstance(node, ast.Attribute):
            env[ast.unparse(node)] = kind
