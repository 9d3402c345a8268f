"""Linear algebra whose JAX form differs from torch's in what it reads or how it broadcasts."""

import jax.numpy as jnp
from jax import lax


def _one_half(A, UPLO):
    """The hermitian matrix that one half of A describes, with the gradient of all of A, as torch has it."""
    half = jnp.tril(A, -1) if UPLO.upper() == "L" else jnp.triu(A, 1)
    diagonal = jnp.real(jnp.diagonal(A, 0, -2, -1))[..., None] * jnp.eye(A.shape[-1], dtype=A.dtype)
    return A + lax.stop_gradient(half + jnp.conj(half.mT) + diagonal - A)


def eigh(A, UPLO="L"):
    """Eigenvalues and eigenvectors of a hermitian matrix, of which one half is read; JAX reads the mean of both."""
    return jnp.linalg.eigh(_one_half(A, UPLO))


def eigvalsh(A, UPLO="L"):
    """Eigenvalues of a hermitian matrix, of which one half is read; JAX reads the mean of both."""
    return jnp.linalg.eigvalsh(_one_half(A, UPLO))
