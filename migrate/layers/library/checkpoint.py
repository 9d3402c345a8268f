"""Saving and loading: nested containers of arrays, pickled as NumPy."""

import pickle
from pathlib import Path

import jax


def save(obj, f):
    """Pickle nested containers of arrays to the file `f`; `load` reads them back."""
    Path(f).write_bytes(pickle.dumps(jax.device_get(obj)))


def load(f):
    """What `save` wrote. A .pt file of PyTorch is another format: convert it first."""
    return pickle.loads(Path(f).read_bytes())
