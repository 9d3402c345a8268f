"""The layer library and what cuts it down to the layers in use."""

from .cut import Layer, catalogue, emit, native_in, native_layers, needed

__all__ = ["Layer", "catalogue", "emit", "native_in", "native_layers", "needed"]
