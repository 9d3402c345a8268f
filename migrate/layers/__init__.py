"""The layer library and what cuts it down to the layers in use."""

from .cut import Layer, catalogue, emit

__all__ = ["Layer", "catalogue", "emit"]
