"""Find the kinds of values in a project: abstract interpretation, statement by statement, a few rounds over all files.

Rounds let knowledge travel: what a constructor stores is known in `forward`, what a call passes is known in the callee.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import replace

from .evaluate import Env, Evaluator
from .facts import ClassFacts, FunctionFacts
from .kinds import (
    BOOL,
    DTYPE,
    FLOAT,
    INT,
    MODULE,
    NONE,
    OTHER,
    SHAPE,
    STR,
    TENSOR,
    UNKNOWN,
    VARIABLE,
    Kind,
    join,
    join_all,
    kind_of_annotation,
)  # fmt: skip
from .project import Project
from .unit import Unit

ROUNDS = 6
FunctionDef = ast.FunctionDef | ast.AsyncFunctionDef


def infer(project: Project) -> None:
    """Fill `kinds` of every unit, and the attributes and returns of every class and function."""
    for unit in project.units:
        _collect(unit, project)
    for unit in project.units:
        _link_bases(unit, project)
    imports = {unit: project.imported_by(unit) for unit in project.units}
    known: dict[Unit, object] = {}
    stale = set(project.units)
    for _ in range(ROUNDS):
        for unit in project.units:
            for function in unit.functions.values():
                function.next_round(stale)
            for cls in unit.classes.values():
                cls.next_round(unit in stale)
        for unit in project.units:
            if unit in stale:
                _run(unit, project)
        now = {unit: _knowledge(unit) for unit in project.units}
        changed = {unit for unit in project.units if unit not in known or now[unit] != known[unit]}
        known = now
        stale = _affected(project, changed, imports)
        if not stale:
            break


def _run(unit: Unit, project: Project) -> None:
    """One round over one file. A fault of it is the file's own: the others are understood without it."""
    try:
        Flow(unit, project, unit.tree.root).run_module()
    except RecursionError:
        unit.fault = "the file is nested too deeply for this tool"
    except Exception as error:
        unit.fault = f"{type(error).__name__}: {error}"


def _knowledge(unit: Unit) -> object:
    """What travels from a unit's functions and classes to others, and to them."""
    functions = [(dict(f.seen), f.returns) for f in unit.functions.values()]
    return functions, [c.attributes for c in unit.classes.values()]


def _affected(project: Project, changed: set[Unit], imports: Mapping[Unit, set[Unit]]) -> set[Unit]:
    """The units that can know more now: those that changed, and those that import or are handed one."""
    leads: dict[Unit, set[Unit]] = {}
    for unit in project.units:
        passed = {u for f in unit.functions.values() for u in f.units_passed()}
        for other in imports[unit] | passed:
            leads.setdefault(other, set()).add(unit)
    found: set[Unit] = set()
    todo = list(changed)
    while todo:
        unit = todo.pop()
        if unit not in found:
            found.add(unit)
            todo += leads.get(unit, ())
    return found


def _collect(unit: Unit, project: Project) -> None:
    for node in unit.tree.parents:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            unit.functions[node] = FunctionFacts(node, unit)
        elif isinstance(node, ast.ClassDef):
            unit.classes[node] = ClassFacts(node, unit)
    for node, facts in unit.classes.items():
        for sub in _methods(node.body):
            method = unit.functions[sub]
            method.owner = facts
            facts.methods[sub.name] = method


def _methods(body: list[ast.stmt]) -> Iterable[FunctionDef]:
    for sub in body:
        if isinstance(sub, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield sub
        elif isinstance(sub, (ast.If, ast.Try)):
            yield from _methods([*sub.body, *sub.orelse])


def _link_bases(unit: Unit, project: Project) -> None:
    for node, facts in unit.classes.items():
        for base in node.bases:
            own = unit.local(base)
            dotted = unit.resolve(base)
            found = project.find(dotted) if dotted else None
            if isinstance(own, ClassFacts):
                facts.bases.append(own)
            elif isinstance(found, ClassFacts):
                facts.bases.append(found)
            else:
                facts.bases.append(dotted or "")


class Flow:
    """Walks the body of one function (or module), keeping the environment of local kinds."""

    def __init__(self, unit: Unit, project: Project, owner: ast.AST, outer: Flow | None = None) -> None:
        self.unit, self.project, self.owner, self.outer = unit, project, owner, outer
        self.evaluate = Evaluator(self)
        self.returns: list[Kind] = []
        self.env: Env = {}
        self.seen: Env = {}
        self.lambda_kinds: dict[ast.Lambda, Env] = {}

    # -- bodies ------------------------------------------------------------------------------------------------

    def run_module(self) -> None:
        assert isinstance(self.owner, ast.Module)
        deferred = self.run(self.owner.body, self.env)
        self._run_deferred(deferred)

    def run_function(self, facts: FunctionFacts) -> None:
        self.env = self._parameters(facts)
        for default in [*facts.node.args.defaults, *facts.node.args.kw_defaults]:
            if default is not None:
                self.evaluate(default, dict(self.outer.env) if self.outer else {})
        deferred = self.run(facts.node.body, self.env)
        self._run_deferred(deferred)
        annotated = kind_of_annotation(facts.node.returns, self.unit.resolve)
        facts.returns = annotated if annotated.known else join_all(self.returns) if self.returns else NONE
        if self.unit.usage(facts.node).yields:
            facts.returns = Kind("list", "", (join_all(self.returns),)) if self.returns else Kind("list")

    def _run_deferred(self, deferred: list[ast.stmt]) -> None:
        for stmt in deferred:
            if isinstance(stmt, ast.ClassDef):
                self._run_class(stmt)
            elif isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef)):
                Flow(self.unit, self.project, stmt, self).run_function(self.unit.functions[stmt])

    def _run_class(self, node: ast.ClassDef) -> None:
        facts = self.unit.classes[node]
        inner = Flow(self.unit, self.project, node, self)
        deferred = inner.run(node.body, inner.env)
        for name, kind in inner.env.items():
            if kind.known:
                facts.attributes[name] = kind
        order = sorted(deferred, key=lambda s: getattr(s, "name", "") != "__init__")
        for stmt in order:
            if isinstance(stmt, ast.ClassDef):
                inner._run_class(stmt)
            else:
                Flow(self.unit, self.project, stmt, self).run_function(self.unit.functions[stmt])

    def run(self, body: list[ast.stmt], env: Env) -> list[ast.stmt]:
        """Interpret statements in order; definitions are returned, to be run when the whole body is known."""
        deferred: list[ast.stmt] = []
        for stmt in body:
            deferred += self._statement(stmt, env)
        return deferred

    # -- statements --------------------------------------------------------------------------------------------

    def _statement(self, stmt: ast.stmt, env: Env) -> list[ast.stmt]:
        if isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            for decorator in stmt.decorator_list:
                self.evaluate(decorator, env)
            if isinstance(stmt, ast.ClassDef):
                for base in [*stmt.bases, *(k.value for k in stmt.keywords)]:
                    self.evaluate(base, env)
            env.pop(stmt.name, None)
            return [stmt]
        if isinstance(stmt, ast.Assign):
            kind = self.evaluate(stmt.value, env)
            for target in stmt.targets:
                self.assign(target, kind, env, stmt.value)
        elif isinstance(stmt, ast.AnnAssign):
            kind = kind_of_annotation(stmt.annotation, self.unit.resolve)
            value = self.evaluate(stmt.value, env) if stmt.value else UNKNOWN
            self.assign(stmt.target, value if value.known and value.tag != "None" else kind, env)
        elif isinstance(stmt, ast.AugAssign):
            self._augment(stmt, env)
        elif isinstance(stmt, ast.Return):
            self.returns.append(self.evaluate(stmt.value, env) if stmt.value else NONE)
        elif isinstance(stmt, (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match)):
            return self._compound(stmt, env)
        else:
            for child in ast.iter_child_nodes(stmt):
                if isinstance(child, ast.expr):
                    kind = self.evaluate(child, env)
                    if isinstance(child, (ast.Yield,)):
                        self.returns.append(kind)
            if isinstance(stmt, ast.Assert):
                self.narrow(stmt.test, env, True)
            self._registrations(stmt, env)
        return []

    def _augment(self, stmt: ast.AugAssign, env: Env) -> None:
        value = self.evaluate(stmt.value, env)
        load = self.evaluate(_as_load(stmt.target, self.unit), env)
        self.unit.kinds[stmt.target] = load
        if load.is_tensor or value.is_tensor:
            result = load if load.is_tensor else TENSOR
        elif load.tag in ("list", "tuple") and value.tag in ("list", "tuple"):
            result = Kind("list", "", (join_all([*load.items, *value.items]),)) if load.items or value.items else load
        else:
            result = join(load, value)
        if isinstance(stmt.target, ast.Name):
            env[stmt.target.id] = result
        elif isinstance(stmt.target, ast.Subscript):
            self.evaluate(stmt.target.value, env)
            self.evaluate(stmt.target.slice, env)

    def _compound(self, stmt: ast.stmt, env: Env) -> list[ast.stmt]:
        if isinstance(stmt, ast.If):
            self.evaluate(stmt.test, env)
            yes, no = dict(env), dict(env)
            self.narrow(stmt.test, yes, True)
            self.narrow(stmt.test, no, False)
            deferred = self.run(stmt.body, yes) + self.run(stmt.orelse, no)
            _merge(env, [e for e, body in ((yes, stmt.body), (no, stmt.orelse)) if not _leaves(body)] or [yes])
            return deferred
        if isinstance(stmt, (ast.For, ast.AsyncFor)):
            element = self.iterate(stmt.iter, env)
            return self._loop(stmt, env, element)
        if isinstance(stmt, ast.While):
            self.evaluate(stmt.test, env)
            return self._loop(stmt, env, None)
        if isinstance(stmt, (ast.With, ast.AsyncWith)):
            for item in stmt.items:
                kind = self.evaluate(item.context_expr, env)
                if item.optional_vars is not None:
                    self.assign(item.optional_vars, kind, env)
            return self.run(stmt.body, env)
        if isinstance(stmt, ast.Try):
            before = dict(env)
            deferred = self.run(stmt.body, env)
            ends = [env]
            for handler in stmt.handlers:
                other = dict(before)
                if handler.type is not None:
                    self.evaluate(handler.type, other)
                if handler.name:
                    other[handler.name] = OTHER
                deferred += self.run(handler.body, other)
                if not _leaves(handler.body):
                    ends.append(other)
            deferred += self.run(stmt.orelse, env)
            _merge(env, [dict(e) for e in ends])
            return deferred + self.run(stmt.finalbody, env)
        deferred = []
        if isinstance(stmt, ast.Match):
            self.evaluate(stmt.subject, env)
            for case in stmt.cases:
                deferred += self.run(case.body, env)
        return deferred

    def _loop(self, stmt: ast.For | ast.AsyncFor | ast.While, env: Env, element: Kind | None) -> list[ast.stmt]:
        deferred: list[ast.stmt] = []
        for _ in range(2):
            inner = dict(env)
            if isinstance(stmt, (ast.For, ast.AsyncFor)):
                self.assign(stmt.target, element or UNKNOWN, inner)
            else:
                self.narrow(stmt.test, inner, True)
            deferred = self.run(stmt.body, inner)
            _merge(env, [dict(env), inner])
        return deferred + self.run(stmt.orelse, env)

    def _registrations(self, stmt: ast.stmt, env: Env) -> None:
        """`self.register_buffer("x", t)`, `self.add_module("x", m)`, `xs.append(m)`: calls that store a value."""
        call = stmt.value if isinstance(stmt, ast.Expr) else None
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            return
        name, args = call.func.attr, call.args
        if name in ("append", "insert") and args and isinstance(call.func.value, (ast.Name, ast.Attribute)):
            self._append(call.func.value, self.unit.kind(args[-1]), env)
        if name == "extend" and args and isinstance(call.func.value, (ast.Name, ast.Attribute)):
            self._append(call.func.value, self.unit.kind(args[-1]).element(), env)
        cls = self._self_class(call.func.value)
        if cls is None or not args or not isinstance(args[0], ast.Constant) or not isinstance(args[0].value, str):
            return
        if name == "register_buffer":
            tensor = args[1] if len(args) > 1 else next((k.value for k in call.keywords if k.arg == "tensor"), None)
            none = isinstance(tensor, ast.Constant) and tensor.value is None
            self._store(cls, args[0].value, NONE if none else VARIABLE.because("register_buffer"))
        elif name == "register_parameter":
            self._store(cls, args[0].value, VARIABLE.because("register_parameter"))
        elif name in ("add_module", "register_module") and len(args) > 1:
            self._store(cls, args[0].value, self.unit.kind(args[1]))

    def _append(self, target: ast.expr, item: Kind, env: Env) -> None:
        kind = self.unit.kind(target)
        if kind.tag == "list":
            grown = Kind("list", "", (join(kind.items[0], item) if kind.items else item,))
        elif kind.tag == "Module" and kind.name == "torch.nn.ModuleList":
            grown = replace(
                kind, items=(join(kind.items[0], item) if kind.items and kind.items[0] != MODULE else item,)
            )
        else:
            return
        self.assign(target, grown, env)

    # -- assignment --------------------------------------------------------------------------------------------

    def assign(self, target: ast.expr, kind: Kind, env: Env, value: ast.expr | None = None) -> None:
        if kind.tag == "Variable" and isinstance(target, ast.Name) and isinstance(value, ast.Attribute):
            if target.id not in self.unit.usage(self.owner).written:
                kind = TENSOR.because(kind.why)
        self.unit.kinds[target] = kind
        if isinstance(target, ast.Name):
            env[target.id] = kind
            self.seen[target.id] = join(self.seen[target.id], kind) if target.id in self.seen else kind
            for key in [k for k in env if k.startswith(f"{target.id}.")]:
                del env[key]
        elif isinstance(target, (ast.Tuple, ast.List)):
            self._unpack(target, kind, env, value)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, Kind("list", "", (kind,)), env)
        elif isinstance(target, ast.Attribute):
            self.evaluate(target.value, env)
            cls = self._self_class(target.value)
            if cls is not None:
                if kind.tag == "Module" and kind.name == "super":
                    return
                self._store(cls, target.attr, kind)
                held = cls.attribute(target.attr)
                if held is not None and held.tag == "Variable" and kind.is_tensor:
                    kind = held  # the Variable stays, its array is new
                    self.unit.kinds[target] = kind
            if kind.known:
                env[ast.unparse(target)] = kind
        elif isinstance(target, ast.Subscript):
            self.evaluate(target.value, env)
            self.evaluate(target.slice, env)

    def _unpack(self, target: ast.Tuple | ast.List, kind: Kind, env: Env, value: ast.expr | None) -> None:
        count = len(target.elts)
        starred = next((i for i, e in enumerate(target.elts) if isinstance(e, ast.Starred)), None)
        fixed = kind.tag == "tuple" and kind.name not in ("*", "batch")
        if fixed and starred is not None and len(kind.items) >= count - 1:
            tail = count - starred - 1
            middle = kind.items[starred : len(kind.items) - tail]
            kinds = [*kind.items[:starred], join_all(middle), *kind.items[len(kind.items) - tail :]]
        elif fixed and len(kind.items) == count:
            kinds = list(kind.items)
        else:
            kinds = [kind.element()] * count
        for sub, sub_kind in zip(target.elts, kinds, strict=False):
            self.assign(sub, sub_kind, env)

    def _self_class(self, node: ast.expr) -> ClassFacts | None:
        """The class whose instance `node` is, when `node` is the first parameter of the method we are in."""
        if not isinstance(node, ast.Name):
            return None
        flow: Flow | None = self
        while flow is not None:
            facts = self.unit.functions.get(flow.owner)
            if facts is not None and facts.owner is not None:
                args = [*facts.node.args.posonlyargs, *facts.node.args.args]
                return facts.owner if args and args[0].arg == node.id else None
            flow = flow.outer
        return None

    def _store(self, cls: ClassFacts, name: str, kind: Kind) -> None:
        old = cls.attributes.get(name)
        if old is not None and old.tag == "Variable" and kind.is_tensor:
            return
        cls.attributes[name] = join(old, kind) if old is not None else kind

    # -- iteration, narrowing ----------------------------------------------------------------------------------

    def iterate(self, node: ast.expr, env: Env) -> Kind:
        """The kind of one element when looping over `node`."""
        kind = self.evaluate(node, env)
        if isinstance(node, ast.Call):
            dotted = self.unit.resolve(node.func)
            args = [self.unit.kind(a) for a in node.args]
            if dotted == "builtins.enumerate" and args:
                return Kind("tuple", "", (INT, args[0].element()))
            if dotted == "builtins.zip":
                return Kind("tuple", "", tuple(a.element() for a in args))
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

    # -- names seen from here ----------------------------------------------------------------------------------

    def captured(self, node: ast.Name) -> Kind:
        """The kind of a name of an enclosing function or of the module."""
        flow = self.outer
        while flow is not None:
            if node.id in flow.seen and not isinstance(flow.owner, ast.ClassDef):
                return flow.seen[node.id]
            if node.id in flow.env and not isinstance(flow.owner, ast.ClassDef):
                return flow.env[node.id]
            flow = flow.outer
        return UNKNOWN

    def by_use(self, name: str, kind: Kind) -> Kind:
        """Tensor when the function uses `name` as only a tensor can be used."""
        why = self.unit.usage(self.owner).tensors.get(name)
        return TENSOR.because(why) if why else kind

    def lambda_param(self, node: ast.Lambda, name: str) -> Kind:
        known = self.lambda_kinds.get(node, {}).get(name, UNKNOWN)
        if known.known:
            return known
        why = self.unit.usage(node).tensors.get(name)
        return TENSOR.because(why) if why else UNKNOWN

    def refine(self, dotted: str, node: ast.Call, kind: Kind) -> Kind:
        """Results whose kind depends on the arguments: `x.size(0)`, `x.max(dim)`, `split`, `to(dtype)`."""
        from .results import refine

        return refine(dotted, node, kind, self.unit)

    # -- calls of project functions ----------------------------------------------------------------------------

    def call(self, callee: FunctionFacts, node: ast.Call, args: list[Kind], keywords: dict[str, Kind]) -> Kind:
        self.record_arguments(callee, node, args, keywords)
        if callee.returns.known and callee.returns.tag != "None":
            return callee.returns
        return _through(callee, node, args, keywords) or callee.returns

    def record_arguments(
        self, callee: FunctionFacts, node: ast.Call, args: list[Kind], keywords: dict[str, Kind]
    ) -> None:
        spec = callee.node.args
        positional = [a.arg for a in [*spec.posonlyargs, *spec.args]]
        if callee.owner is not None and positional and not _is_static(callee.node):
            positional = positional[1:]
        for name, arg, kind in zip(positional, node.args, args, strict=False):
            if isinstance(arg, ast.Starred):
                break
            callee.saw(name, kind, self.unit)
        for key, kind in keywords.items():
            if key != "**":
                callee.saw(key, kind, self.unit)

    def _parameters(self, facts: FunctionFacts) -> Env:
        node, env = facts.node, {}
        args = [*node.args.posonlyargs, *node.args.args]
        defaults = dict(zip([a.arg for a in args][::-1], node.args.defaults[::-1], strict=False))
        defaults |= {
            a.arg: d for a, d in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if d is not None
        }
        is_method = facts.owner is not None and not _is_static(node)
        for index, arg in enumerate([*args, *node.args.kwonlyargs]):
            if index == 0 and is_method and facts.owner is not None:
                env[arg.arg] = self._self_kind(facts.owner, node)
                continue
            env[arg.arg] = self._parameter(facts, arg, defaults.get(arg.arg))
        if node.args.vararg:
            env[node.args.vararg.arg] = Kind("list")
        if node.args.kwarg:
            env[node.args.kwarg.arg] = Kind("dict")
        return env

    def _self_kind(self, owner: ClassFacts, node: FunctionDef) -> Kind:
        if any(isinstance(d, ast.Name) and d.id == "classmethod" for d in node.decorator_list):
            return Kind("Class", facts=owner)
        return Kind("Module", owner.layer_base if owner.is_module else "plain", facts=owner)

    def _annotated_module(self, node: ast.expr | None) -> Kind | None:
        """`model: Net`, for a module class of the project."""
        if not isinstance(node, (ast.Name, ast.Attribute)):
            return None
        found = self.unit.local(node) or self.project.find(self.unit.resolve(node))
        if isinstance(found, ClassFacts) and found.is_module:
            return Kind("Module", found.layer_base, facts=found, why="annotated")
        return None

    def _parameter(self, facts: FunctionFacts, arg: ast.arg, default: ast.expr | None) -> Kind:
        annotated = kind_of_annotation(arg.annotation, self.unit.resolve)
        if annotated.known and annotated.tag != "None":
            return annotated
        if (own := self._annotated_module(arg.annotation)) is not None:
            return own
        usual = self.outer.evaluate(default, dict(self.outer.env)) if default is not None and self.outer else UNKNOWN
        called = facts.params.get(arg.arg, UNKNOWN)
        if called.known and called.tag != "None":
            return (
                join(called, usual).because(called.why or "call sites") if usual.known else called.because("call sites")
            )
        if usual.known and usual.tag != "None":
            return usual.because("its default")
        if _is_forward(facts) and arg.arg not in self.unit.usage(facts.node).unlike_tensor:
            return TENSOR.because("parameter of forward")
        return UNKNOWN


def _is_forward(facts: FunctionFacts) -> bool:
    return (
        facts.owner is not None
        and facts.owner.is_module
        and (
            facts.name in ("forward", "__call__")
            or facts.name.startswith("forward_")
            or facts.name.endswith("_forward")
        )
    )


def _through(callee: FunctionFacts, node: ast.Call, args: list[Kind], keywords: dict[str, Kind]) -> Kind | None:
    """The result of a function that only hands its arguments on (`default(x, d)`): the join of those it returns."""
    spec = callee.node.args
    names = [a.arg for a in [*spec.posonlyargs, *spec.args]]
    if callee.owner is not None and not _is_static(callee.node):
        names = names[1:]
    given = dict(zip(names, args, strict=False)) | keywords
    kinds: list[Kind] = []
    for value in callee.unit.usage(callee.node).returned:
        if isinstance(value, ast.Name) and value.id in given:
            kinds.append(given[value.id])
        elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in given:
            continue
        else:
            return None
    result = join_all(kinds) if kinds else UNKNOWN
    return result if result.known else None


def _is_static(node: FunctionDef) -> bool:
    return any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in node.decorator_list)


def _leaves(body: list[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], (ast.Return, ast.Raise, ast.Continue, ast.Break))


def _merge(env: Env, ends: list[Env]) -> None:
    """`env` becomes what is known after any of `ends`."""
    names = {n for e in ends for n in e}
    merged = {n: join_all([e[n] for e in ends if n in e]) for n in names if "." not in n or all(n in e for e in ends)}
    env.clear()
    env.update(merged)


def _as_load(target: ast.expr, unit: Unit) -> ast.expr:
    """The target of an augmented assignment, read: the same node, whose context no evaluation looks at."""
    return target


__all__ = ["DTYPE", "SHAPE", "Flow", "infer"]
