"""One file as understood: its tree, scopes, the dotted names its expressions lead to, and the kinds of its values."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ..rulebook.load import RuleBook, torch_names
from .facts import ClassFacts, FunctionFacts
from .kinds import UNKNOWN, Kind
from .scopes import Binding, Scope, Scopes
from .shared_names import Surroundings
from .source import Source, Tree
from .usage import Usage


@dataclass(eq=False)
class Unit:
    """`module` is the dotted module name ("" when unknown). `kinds` is filled by `infer`,
    `fault` says what went wrong there; `around` which other types the project could mean by a method's name;
    `opaque` are nodes that nobody looks into; `taken` are the calls whose receiver is a tensor only if what they become
    does not raise (taken.py);
    `reexports` the names of the project that are torch's, `starred` what star imports bring from the project;
    `sets_default` says that some file of the run sets torch's default type."""

    source: Source
    tree: Tree
    scopes: Scopes
    book: RuleBook
    module: str = ""
    fault: str = ""
    around: Surroundings = field(default_factory=Surroundings)
    opaque: set[ast.AST] = field(default_factory=set)
    taken: set[ast.AST] = field(default_factory=set)
    reexports: Mapping[str, str] = field(default_factory=dict)
    starred: Mapping[str, str] = field(default_factory=dict)
    sets_default: bool = False
    kinds: dict[ast.AST, Kind] = field(default_factory=dict)
    classes: dict[ast.ClassDef, ClassFacts] = field(default_factory=dict)
    functions: dict[ast.AST, FunctionFacts] = field(default_factory=dict)
    _resolved: dict[ast.AST, str | None] = field(default_factory=dict)
    _usages: dict[ast.AST, Usage] = field(default_factory=dict)

    def hide(self, nodes: Iterable[ast.AST]) -> None:
        """Let these nodes lead nowhere and have no kind. Before anything has been asked of them."""
        self.opaque.update(nodes)
        self._resolved.update(dict.fromkeys(self.opaque))

    def kind(self, node: ast.AST) -> Kind:
        return self.kinds.get(node, UNKNOWN)

    def scope(self, node: ast.AST) -> Scope:
        return self.scopes.scope_of(node, self.tree.parents)

    def usage(self, owner: ast.AST) -> Usage:
        """How the body of a function, class or module uses its names."""
        if owner not in self._usages:
            self._usages[owner] = Usage(self, owner)
        return self._usages[owner]

    def resolve(self, node: ast.AST) -> str | None:
        """The dotted name that an expression leads to by its imports (`torch.nn.Linear`), in canonical spelling.

        Builtins resolve to "builtins.x". None for everything that is not an import, an attribute of one, or a builtin.
        """
        if node in self._resolved:
            return self._resolved[node]
        self._resolved[node] = None  # a name may be bound by way of itself
        self._resolved[node] = name = self._resolve(node)
        return name

    def _resolve(self, node: ast.AST) -> str | None:
        if isinstance(node, ast.Attribute):
            base = self.resolve(node.value)
            if not base or base.startswith("builtins."):
                return None
            name = f"{base}.{node.attr}"
            return self._as_used(node, canonical(self.reexports.get(name, name)))
        if not isinstance(node, ast.Name):
            return None
        scope = self.scope(node).lookup(node.id)
        if scope is None:
            return self._star(node) or (f"builtins.{node.id}" if node.id in _BUILTINS else None)
        bindings = self.scopes.base_of(node, self.tree.parents.get(node)) or scope.bindings[node.id]
        targets = {target for b in bindings if (target := self._target(b)) is not None}
        if len(targets) != 1 or "" in targets:
            return None
        return self._as_used(node, canonical(targets.pop()))

    def _as_used(self, node: ast.expr, name: str) -> str:
        """What a tensor type stands for: `x.type(torch.FloatTensor)` means its dtype, `torch.Tensor(3)` the default."""
        call = self.tree.parents.get(node)
        if not isinstance(call, ast.Call):
            return name
        cast = isinstance(call.func, ast.Attribute) and call.func.attr == "type" and call.args == [node]
        if name == "torch.Tensor" and (call.func is node or cast) and not self.sets_default:
            name = "torch.FloatTensor"
        return TENSOR_TYPES.get(name, name) if cast and not call.keywords else name

    def _target(self, binding: Binding) -> str | None:
        """The import target of a binding, "" when it is no import, None when it does not count (`torch = None`)."""
        if binding.kind in ("import", "from"):
            return None if self._is_fallback(binding) else binding.target
        if binding.kind == "assign":
            up = self.tree.parents.get(binding.node)
            if isinstance(up, ast.Assign) and isinstance(up.value, ast.Constant) and up.value.value is None:
                if any(isinstance(a, ast.ExceptHandler) for a in self.tree.ancestors(binding.node)):
                    return None
            if isinstance(up, ast.Assign) and len(up.targets) == 1:
                if (kind := self.tensor_type(up.value)) is not None:
                    return kind
                root: ast.expr = up.value
                while isinstance(root, ast.Attribute):
                    root = root.value
                if isinstance(root, ast.Name) and root.id != binding.name and self._is_module_level(up):
                    return self.resolve(up.value) or ""
        return ""

    def _is_fallback(self, binding: Binding) -> bool:
        """Whether an import in `except ImportError` stands in for one from torch that this release of torch has."""
        handler = self.tree.parents.get(binding.node)
        attempt = self.tree.parents.get(handler) if isinstance(handler, ast.ExceptHandler) else None
        if not isinstance(handler, ast.ExceptHandler) or not isinstance(attempt, ast.Try) or handler.type is None:
            return False
        if ast.unparse(handler.type) not in ("ImportError", "ModuleNotFoundError"):
            return False
        return any(
            isinstance(stmt, ast.ImportFrom)
            and (alias.asname or alias.name) == binding.name
            and torch_names().known(f"{stmt.module}.{alias.name}")
            for stmt in attempt.body
            for alias in getattr(stmt, "names", ())
        )

    def tensor_type(self, node: ast.expr) -> str | None:
        """`torch.FloatTensor` for it, for `torch.cuda.FloatTensor` and for a choice between the two; else None."""
        if isinstance(node, ast.IfExp):
            names = {self.tensor_type(node.body), self.tensor_type(node.orelse)}
            if names != {None} and None in names and not self.sets_default:
                if "torch.Tensor" in (self.resolve(node.body), self.resolve(node.orelse)):
                    names.discard(None)
            return names.pop() if len(names) == 1 else None
        if not isinstance(node, ast.Attribute):
            return None
        name = (self.resolve(node) or "").replace("torch.cuda.", "torch.")
        return name if name in TENSOR_TYPES else None

    def _is_module_level(self, stmt: ast.stmt) -> bool:
        return isinstance(self.tree.parents.get(stmt), ast.Module)

    def _star(self, node: ast.Name) -> str | None:
        for module in self.scopes.module.stars:
            if f"{module}.{node.id}" in self.reexports:
                return canonical(self.reexports[f"{module}.{node.id}"])
            if node.id in torch_names().exports.get(module, ()):
                return canonical(f"{module}.{node.id}")
        return self.starred.get(node.id)

    def local(self, node: ast.AST) -> ClassFacts | FunctionFacts | None:
        """The project's own class or function that a plain name leads to inside this file."""
        if not isinstance(node, ast.Name) or self.scopes.base_of(node, self.tree.parents.get(node)):
            return None
        scope = self.scope(node).lookup(node.id)
        if scope is None:
            return None
        found = [b for b in scope.bindings[node.id] if b.kind in ("class", "def")]
        if len(found) != len(scope.bindings[node.id]) or not found:
            return None
        target = found[-1].node
        return self.classes.get(target) if isinstance(target, ast.ClassDef) else self.functions.get(target)


TENSOR_TYPES = {
    "torch.FloatTensor": "torch.float32",
    "torch.DoubleTensor": "torch.float64",
    "torch.HalfTensor": "torch.float16",
    "torch.LongTensor": "torch.int64",
    "torch.IntTensor": "torch.int32",
    "torch.ShortTensor": "torch.int16",
    "torch.CharTensor": "torch.int8",
    "torch.ByteTensor": "torch.uint8",
    "torch.BoolTensor": "torch.bool",
}


# Functions of other packages that are torch's own, by where they are imported from.
ELSEWHERE = {
    f"timm.{home}trunc_normal_": "torch.nn.init.trunc_normal_"
    for home in ("layers.", "layers.weight_init.", "models.layers.", "models.layers.weight_init.")
}


def canonical(name: str) -> str:
    """torch's shortest public spelling of a dotted name; other names unchanged."""
    name = ELSEWHERE.get(name, name)
    if not name.startswith("torch."):
        return name
    aliases = torch_names().aliases
    if name in aliases:
        return aliases[name]
    head, _, tail = name.rpartition(".")
    if head in aliases:
        return f"{aliases[head]}.{tail}"
    if head == "torch.nn.init" and torch_names().known(f"{name}_"):  # its spelling before 0.4, kept with a warning
        return f"{name}_"
    return name


def open_unit(source: Source, book: RuleBook, module: str = "", is_package: bool = False) -> Unit:
    """Parse a file and find its scopes. Raises SyntaxError."""
    tree = Tree(source.text)
    package = module if is_package else module.rpartition(".")[0]
    return Unit(source, tree, Scopes(tree.root, package), book, module)


_BUILTINS = frozenset(dir(__import__("builtins")))
STANDARD_LIBRARY = frozenset(sys.stdlib_module_names)
Resolver = Callable[[str], "ClassFacts | FunctionFacts | None"]
