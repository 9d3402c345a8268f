"""Saving and loading: nested containers of arrays, pickled as NumPy."""

import pickle
from pathlib import Path

import jax
from flax import nnx


def save(obj, f):
    """Pickle nested containers of arrays to the file `f`; `load` reads them back."""
    Path(f).write_bytes(pickle.dumps(jax.device_get(obj)))


def load(f):
    """What `save` wrote. A .pt file of PyTorch is another format: convert it first."""
    return pickle.loads(Path(f).read_bytes())


def optimizer_state(optimizer):
    """The state of an nnx.Optimizer as nested dictionaries of arrays."""
    return nnx.to_pure_dict(nnx.state(optimizer))


def load_optimizer_state(optimizer, state):
    """Put what `optimizer_state` gave into an nnx.Optimizer of the same kind."""
    own = nnx.state(optimizer)
    nnx.replace_by_pure_dict(own, state)
    nnx.update(optimizer, own)
