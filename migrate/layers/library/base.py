"""Containers, buffers, and the names and values of a model's variables."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx


class Buffer(nnx.Variable):
    """Array that is saved with the model but not trained."""


class NonPersistentBuffer(Buffer):
    """Array that `__init__` makes anew: neither trained nor saved."""


class Frozen(nnx.Variable):
    """Parameter that is not trained."""


def freeze(what):
    """Stop the training of a parameter, or of all parameters of a module, also where they are shared."""
    variables = [what] if isinstance(what, nnx.Variable) else [variable for _, variable in named_parameters(what)]
    for variable in variables:
        object.__setattr__(variable, "__class__", Frozen)


class Identity(nnx.Module):
    """Returns its input, whatever it is built with."""

    def __init__(self, *args, rngs: nnx.Rngs | None = None, **kwargs):
        pass

    def __call__(self, input):
        return input


class _Ordered(nnx.Module):
    """Children in the order in which they were first set, which nnx.jit would otherwise sort by name."""

    _names = ()

    def __setattr__(self, name, value):
        if isinstance(value, nnx.Module):
            self._add(name, value)
        else:
            super().__setattr__(name, value)

    def _add(self, name, value):
        if name not in self._names:
            super().__setattr__("_names", (*self._names, name))
        super().__setattr__(name, value)

    def _remove(self, name):
        delattr(self, name)
        self._names = tuple(n for n in self._names if n != name)

    def __len__(self):
        return len(self._names)


class Sequential(_Ordered):
    """Calls its layers one after the other. They are named "0", "1", ... or by the keys of a dict."""

    def __init__(self, *layers, rngs: nnx.Rngs | None = None):
        named = layers[0] if len(layers) == 1 and isinstance(layers[0], dict) else dict(enumerate(layers))
        for name, layer in named.items():
            self._add(str(name), layer)

    def __call__(self, input):
        for layer in self:
            input = layer(input)
        return input

    def __iter__(self):
        return (getattr(self, name) for name in self._names)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return Sequential({name: getattr(self, name) for name in self._names[index]})
        return getattr(self, self._names[index])

    def __setitem__(self, index, layer):
        self._add(self._names[index], layer)

    def __delitem__(self, index):
        layers = list(self)
        del layers[index]
        self._replace(layers)

    def append(self, layer):
        self._add(str(len(self)), layer)
        return self

    def extend(self, layers):
        for layer in layers:
            self.append(layer)
        return self

    def insert(self, index, layer):
        layers = list(self)
        layers.insert(index, layer)
        self._replace(layers)
        return self

    def _replace(self, layers):
        for name in self._names:
            self._remove(name)
        self.extend(layers)


class ModuleList(nnx.List):
    """nnx.List whose slices and sums are lists of modules again."""

    def __init__(self, modules=(), *, rngs: nnx.Rngs | None = None):
        super().__init__(modules)

    def __getitem__(self, index):
        item = super().__getitem__(index)
        return ModuleList(item) if isinstance(index, slice) else item

    def __add__(self, other):
        return ModuleList([*self, *other])


class _Mapping(_Ordered):
    """What ModuleDict and ParameterDict share with dict."""

    def __iter__(self):
        return iter(self._names)

    def __contains__(self, key):
        return key in self._names

    def __getitem__(self, key):
        if key not in self._names:
            raise KeyError(key)
        return getattr(self, key)

    def __delitem__(self, key):
        self._remove(key)

    def keys(self):
        return dict.fromkeys(self).keys()

    def values(self):
        return {key: self[key] for key in self}.values()

    def items(self):
        return {key: self[key] for key in self}.items()

    def update(self, other):
        for key, value in dict(other).items():
            self[key] = value

    def pop(self, key):
        value = self[key]
        del self[key]
        return value


class ModuleDict(_Mapping):
    """Modules by name. Unlike nnx.Dict it keeps the order of insertion under and after nnx.jit."""

    def __init__(self, modules=(), *, rngs: nnx.Rngs | None = None):
        self.update(modules)

    def __setitem__(self, key, module):
        self._add(key, module)


class ParameterList(nnx.List):
    """List of parameters; arrays become nnx.Param."""

    def __init__(self, values=(), *, rngs: nnx.Rngs | None = None):
        super().__init__(values)

    def append(self, value):
        super().append(value if isinstance(value, nnx.Variable) else nnx.Param(value))


class ParameterDict(_Mapping):
    """Parameters by name, in order of insertion but those of a plain dict sorted; arrays become nnx.Param."""

    def __init__(self, parameters=(), *, rngs: nnx.Rngs | None = None):
        self.update(parameters)

    def update(self, other):
        for key, value in sorted(other.items()) if type(other) is dict else dict(other).items():
            self[key] = value

    def __setitem__(self, key, value):
        self._add(key, value if isinstance(value, nnx.Variable) else nnx.Param(value))


def flatten(input, start_dim=0, end_dim=-1):
    """The dimensions from start_dim to end_dim, both included, as one."""
    if input.ndim == 0:
        return input.reshape(1)
    start, end = start_dim % input.ndim, end_dim % input.ndim
    return input.reshape(*input.shape[:start], -1, *input.shape[end + 1 :])


class Flatten(nnx.Module):
    """Flattens the dimensions from start_dim to end_dim."""

    def __init__(self, start_dim=1, end_dim=-1, *, rngs: nnx.Rngs | None = None):
        self.start_dim, self.end_dim = start_dim, end_dim

    def __call__(self, input):
        return flatten(input, self.start_dim, self.end_dim)


def unflatten(input, dim, sizes):
    """The dimension `dim` split into several; one of the sizes may be -1."""
    dim %= input.ndim
    return input.reshape(*input.shape[:dim], *sizes, *input.shape[dim + 1 :])


class Unflatten(nnx.Module):
    """Splits the dimension `dim` into several."""

    def __init__(self, dim, unflattened_size, *, rngs: nnx.Rngs | None = None):
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def __call__(self, input):
        return unflatten(input, self.dim, self.unflattened_size)


def _attributes(module):
    """Yield (name, value) in the order of definition, also after nnx.jit, which sorts `vars(module)`."""
    if isinstance(module, nnx.List):
        yield from ((str(i), value) for i, value in enumerate(module))
        return
    values = vars(module)
    recorded = [name for name in values.get("_pytree__nodes", ()) if name in values]  # nnx keeps this record unsorted
    for name in dict.fromkeys([*recorded, *values]):
        if not name.startswith("_pytree__"):
            yield name, values[name]


def named_children(module):
    """Yield (name, module) for the direct children, each module once, in the order of definition."""
    seen = set()
    for name, value in _attributes(module):
        if isinstance(value, nnx.Module) and id(value) not in seen:
            seen.add(id(value))
            yield name, value


def named_modules(module, prefix=""):
    """Yield (dotted name, module) for the module itself and all below it, each once, parents first."""
    seen = set()

    def walk(node, name):
        if id(node) in seen:
            return
        seen.add(id(node))
        yield name, node
        for key, child in named_children(node):
            yield from walk(child, f"{name}.{key}" if name else key)

    yield from walk(module, prefix)


def named_variables(module, prefix=""):
    """Yield (dotted name, Variable): a module's parameters, then its buffers, then those of its children.

    A shared Variable comes under each of its names. Random streams are left out.
    """
    own = [(name, value) for name, value in _attributes(module) if isinstance(value, nnx.Variable)]
    for name, variable in sorted(own, key=lambda pair: not isinstance(pair[1], (nnx.Param, Frozen))):
        yield prefix + name, variable
    for name, value in _attributes(module):
        if isinstance(value, nnx.Module):
            yield from named_variables(value, f"{prefix}{name}.")


def is_training(module):
    """Whether train() or eval() was the last to reach a layer that differs between the two."""
    flags = vars(module)
    return not flags["use_running_average" if "use_running_average" in flags else "deterministic"]


def named_parameters(module):
    """Yield (dotted name, parameter), a shared one only under its first name."""
    seen = set()
    for name, variable in named_variables(module):
        if isinstance(variable, (nnx.Param, Frozen)) and id(variable) not in seen:
            seen.add(id(variable))
            yield name, variable


def named_gradients(model, grads):
    """Yield (dotted name, parameter, its gradient) for what nnx.grad differentiates, in the order of definition."""
    variables = jax.tree.leaves(nnx.state(model, nnx.Param), is_leaf=lambda x: isinstance(x, nnx.Variable))
    found = dict(zip(map(id, variables), jax.tree.leaves(grads), strict=True))
    for name, parameter in named_parameters(model):
        if id(parameter) in found:
            yield name, parameter, found[id(parameter)]


def named_buffers(module):
    """Yield (dotted name, Variable) for what is not a parameter: buffers and running statistics."""
    seen = set()
    for name, variable in named_variables(module):
        if not isinstance(variable, (nnx.Param, Frozen)) and id(variable) not in seen:
            seen.add(id(variable))
            yield name, variable


def cast_module(module, dtype):
    """The module itself, its floating-point parameters and buffers cast to a type."""
    for _, variable in named_variables(module):
        if jnp.issubdtype(variable[...].dtype, jnp.floating):
            variable.set_value(variable[...].astype(dtype))
    return module


def state_dict(module):
    """All parameters and saved buffers by name, as NumPy arrays."""
    saved = ((name, v) for name, v in named_variables(module) if not isinstance(v, NonPersistentBuffer))
    return {name: np.asarray(variable[...]) for name, variable in saved}


def load_state_dict(module, state_dict, strict=True):
    """Copy arrays (or CPU tensors) into the variables of the same names; shared ones stay shared.

    Returns the names that the state_dict lacks and those that the module lacks. Raises ValueError, before anything is
    copied, when a shape differs, and if `strict` when a name is missing or unexpected.
    """
    own = {name: v for name, v in named_variables(module) if not isinstance(v, NonPersistentBuffer)}
    values = {name: np.asarray(state_dict[name]) for name in own if name in state_dict}
    missing = [name for name in own if name not in state_dict]
    unexpected = [name for name in state_dict if name not in own]
    wrong = [f"{n}: {v.shape} given, {own[n].shape} needed" for n, v in values.items() if v.shape != own[n].shape]
    problems = {"missing": missing if strict else [], "unexpected": unexpected if strict else [], "shape": wrong}
    if any(problems.values()):
        raise ValueError("\n".join(f"{kind}: {', '.join(names)}" for kind, names in problems.items() if names))
    for name, value in values.items():
        own[name][...] = jnp.array(value, own[name].dtype)
    return missing, unexpected


def reset_parameters(layer, *, rngs: nnx.Rngs):
    """Give a layer's parameters and statistics new initial values, as if it were built again with its arguments."""
    given = {}
    for name in inspect.signature(type(layer).__init__).parameters:
        if name not in ("self", "rngs"):
            value = getattr(layer, name)
            given[name] = value is not None if name == "bias" and not isinstance(value, bool) else value
    fresh = dict(named_variables(type(layer)(**given, rngs=rngs)))
    for name, variable in named_variables(layer):
        variable[...] = fresh[name][...]


def clone_module(module, *, rngs: nnx.Rngs):
    """A deep copy whose random streams (dropout) start anew, so that the copies draw different masks."""
    copy = nnx.clone(module)
    for _, node in nnx.iter_graph(copy):
        if isinstance(node, nnx.RngStream):
            node.key[...] = rngs.dropout()
    return copy


def eval_mode(module):
    """Switch to evaluation mode; returns the module, as torch's eval() does."""
    module.eval()
    return module


def train_mode(module, mode=True):
    """Switch to training mode (evaluation mode when `mode` is false); returns the module, as torch's train() does."""
    module.train() if mode else module.eval()
    return module
