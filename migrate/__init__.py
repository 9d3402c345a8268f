"""Rewrite PyTorch source into JAX + Flax NNX + Optax source, and show that the numbers agree."""

__version__ = "0.1.0"
