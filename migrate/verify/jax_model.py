"""The converted module as the worker sees it: its variables by torch's names, its weights, its randomness."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from .worker import drop_rates

Variables = list[tuple[str, Any]]


def layer_module(folder: Path) -> ModuleType | None:
    """The imported layer file of a program: the module below `folder` that has `load_state_dict` by torch's names."""
    root = str(folder.resolve())
    found = [
        m
        for m in list(sys.modules.values())
        if str(getattr(m, "__file__", None) or "").startswith(root)
        and all(callable(getattr(m, name, None)) for name in ("load_state_dict", "named_variables"))
    ]
    found.sort(key=lambda m: not m.__name__.endswith("nnx_layers"))
    return found[0] if found else None


def variables(model: Any, layers: ModuleType | None) -> Variables:
    """(torch's name, Variable) in order of definition; a shared one under each of its names. No random state."""
    named = list(_walk(model, "") if layers is None else layers.named_variables(model))
    return [(n, v) for n, v in named if not isinstance(v, nnx.RngState)]


def _walk(module: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in vars(module).items():
        if name.startswith("_pytree__") or isinstance(value, (nnx.RngStream, nnx.Rngs)):
            continue
        if isinstance(value, nnx.Variable):
            yield prefix + name, value
        elif isinstance(value, nnx.Module):
            yield from _walk(value, f"{prefix}{name}.")


def submodules(module: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(torch's path, module) in order of definition, as torch's `named_modules()`; a shared one once."""
    seen: set[int] = set()

    def walk(node: Any, at: str) -> Iterator[tuple[str, Any]]:
        if id(node) in seen:
            return
        seen.add(id(node))
        yield at, node
        for name, value in vars(node).items():
            if isinstance(value, nnx.Module):
                yield from walk(value, f"{at}.{name}" if at else name)

    return walk(module, path)


def temporary(variable: Any) -> bool:
    """Whether a variable is left out of the state dict, as a torch buffer with persistent=False."""
    return any("NonPersistent" in c.__name__ for c in type(variable).__mro__)


def load_weights(model: Any, weights: Mapping[str, Any], layers: ModuleType | None) -> None:
    """Copy torch's state dict into the model. Raises KeyError or ValueError where names or shapes do not fit."""
    if layers is not None:
        layers.load_state_dict(model, dict(weights))
        return
    own = {n: v for n, v in variables(model, None) if not temporary(v)}
    if own.keys() != weights.keys():
        raise KeyError(f"missing: {sorted(own.keys() - weights.keys())}; new: {sorted(weights.keys() - own.keys())}")
    for name, variable in own.items():
        if variable.shape != weights[name].shape:
            raise ValueError(f"{name}: shape {weights[name].shape} does not fit {variable.shape}")
        variable[...] = jnp.asarray(weights[name], variable.dtype)


Orders = Mapping[str, tuple[int, ...]]


def torch_orders(model: Any, layers: ModuleType | None) -> Orders:
    """By name, the order of axes that makes an array torch's: what a layer file with Flax's own layers knows."""
    function = getattr(layers, "torch_axes", None)
    return dict(function(model)) if function is not None else {}


def as_torch(name: str, array: Any, orders: Orders) -> Any:
    return array.transpose(orders[name]) if name in orders else array


def cast(model: Any, weights: Mapping[str, Any], layers: ModuleType | None, dtype: Any, orders: Orders) -> list[str]:
    """Give every floating variable another type, with the original's value where there is one.

    Returns the names of those that were made narrower than `dtype` and have no value in `weights`.
    """
    made_narrow = []
    for name, variable in variables(model, layers):
        value = variable[...]
        if not jnp.issubdtype(value.dtype, jnp.inexact):
            continue
        wanted = dtype if jnp.issubdtype(value.dtype, jnp.floating) else jnp.complex128
        if name not in weights and value.dtype != wanted:
            made_narrow.append(name)
        given = weights.get(name, value)
        if name in weights and name in orders:
            given = given.transpose(np.argsort(orders[name]))
        variable.set_value(jnp.asarray(given, wanted))
    return made_narrow


def state_arrays(named: Variables, orders: Orders) -> dict[str, Any]:
    return {name: as_torch(name, to_numpy(variable[...]), orders) for name, variable in named}


def to_numpy(value: Any) -> Any:
    """As NumPy; bfloat16, which .npz cannot hold, as float32."""
    array = np.asarray(value)
    return array.astype(np.float32) if array.dtype == jnp.bfloat16 else array


def paths_of_parameters(model: Any, named: Variables) -> dict[tuple[str, ...], list[str]]:
    """The names of each parameter by its path in `nnx.State` (the first of a shared one, in NNX's order)."""
    names: dict[int, list[str]] = {}
    for name, variable in named:
        names.setdefault(id(variable), []).append(name)
    return {
        tuple(map(str, path)): names.get(id(node), [".".join(map(str, path))])
        for path, node in nnx.iter_graph(model)
        if isinstance(node, nnx.Param)
    }


class Supplier:
    """Evaluates expressions and calls, giving `rngs` and `key` to whatever takes them and was not given any."""

    def __init__(self, seed: int) -> None:
        self.rngs = nnx.Rngs(seed)
        self.seed = seed
        self.calls = 0

    def call(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        extra: dict[str, Any] = {}
        names = _parameters(function)
        if "rngs" in names and "rngs" not in kwargs:
            extra["rngs"] = self.rngs
        if names.get("key") is inspect.Parameter.KEYWORD_ONLY and "key" not in kwargs:
            self.calls += 1
            extra["key"] = jax.random.key(self.seed + self.calls)
        return function(*args, **kwargs, **extra)

    def evaluate(self, expression: str, names: Mapping[str, Any]) -> Any:
        """The value of `Net(Encoder(3))`, with each call in it made by `call`."""
        tree = ast.fix_missing_locations(_Calls().visit(ast.parse(expression, mode="eval")))
        return eval(compile(tree, "<example>", "eval"), {**names, "_call": self.call})


class _Calls(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        return ast.Call(ast.Name("_call", ast.Load()), [node.func, *node.args], node.keywords)


def _parameters(function: Any) -> dict[str, Any]:
    """Names and kinds of the parameters of a callable; of a class also those that `**kwargs` hands to its bases."""
    if isinstance(function, type):
        found: dict[str, Any] = {}
        for base in function.__mro__:
            own = _parameters(vars(base)["__init__"]) if "__init__" in vars(base) else None
            if own is None:
                continue
            found = {**own, **found}
            if inspect.Parameter.VAR_KEYWORD not in own.values():
                break
        return found
    if isinstance(function, nnx.Module):
        function = type(function).__call__
    try:
        return {p.name: p.kind for p in inspect.signature(function).parameters.values()}
    except (TypeError, ValueError):
        return {}


class Dropouts:
    """`off` makes every drop rate of the converted program zero; `rates` collects those used in train mode."""

    def __init__(self) -> None:
        self.off = False
        self.rates: set[float] = set()
        plain = nnx.Dropout.__call__

        @functools.wraps(plain)
        def call(module: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            if not kwargs.get("deterministic", module.deterministic) and module.rate > 0:
                self.rates.add(float(module.rate))
            return plain(module, inputs, *args, **kwargs)

        setattr(nnx.Dropout, "__call__", call)  # noqa: B010 - mypy takes an assignment for an override

    def wrap(self, layers: ModuleType) -> None:
        """Put the dropout functions of a layer file under control, before the program imports them from it."""
        for name, function in list(vars(layers).items()):
            if isinstance(function, FunctionType) and "dropout" in name:
                parameters = inspect.signature(function).parameters
                if rate := next((n for n in ("p", "rate", "dropout_p") if n in parameters), None):
                    setattr(layers, name, self._wrapped(function, rate))

    def _wrapped(self, function: Callable[..., Any], rate: str) -> Callable[..., Any]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            given = bound.arguments
            if (
                given.get("training", True) is not False
                and given.get("deterministic", False) is not True
                and given[rate]
            ):
                self.rates.add(float(given[rate]))
            if self.off:
                given[rate] = 0.0
            return function(*bound.args, **bound.kwargs)

        return wrapped

    def silence(self, model: Any) -> None:
        """Set the drop rates of a model's modules to zero."""
        for _, module in submodules(model):
            for name in drop_rates(module):
                setattr(module, name, 0.0)
