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


def _batched(A, B):
    """A and B with one batch shape."""
    batch = jnp.broadcast_shapes(A.shape[:-2], B.shape[:-2])
    return jnp.broadcast_to(A, batch + A.shape[-2:]), jnp.broadcast_to(B, batch + B.shape[-2:])


def solve(A, B, *, left=True):
    """X with A X = B, or X A = B. B is a batch of vectors when its shape is that of A without the last dimension."""
    if B.ndim == 1 or (B.ndim == A.ndim - 1 and B.shape == A.shape[:-1]):
        return jnp.linalg.solve(A, B[..., None])[..., 0]
    return jnp.linalg.solve(*_batched(A, B)) if left else solve(A.mT, B.mT).mT


def tensorsolve(A, B, dims):
    """X with tensordot(A, X, X.ndim) = B, where `dims` of A are moved to its end first."""
    A = jnp.moveaxis(A, dims, range(-len(dims), 0))
    return jnp.linalg.solve(A.reshape(B.size, B.size), B.reshape(-1)).reshape(A.shape[B.ndim :])


def solve_triangular(A, B, *, upper, left=True, unitriangular=False):
    """X with A X = B, or X A = B, for a triangular A; batches broadcast."""
    A, B = _batched(A, B)
    return lax.linalg.triangular_solve(A, B, left_side=left, lower=not upper, unit_diagonal=unitriangular)


def cholesky_inverse(L, upper=False):
    """The inverse of the matrix whose Cholesky factor is L."""
    eye = jnp.broadcast_to(jnp.eye(L.shape[-1], dtype=L.dtype), L.shape)
    factor = solve_triangular(L, eye, upper=upper)
    return factor @ jnp.conj(factor.mT) if upper else jnp.conj(factor.mT) @ factor


def lu_factor(A):
    """The factors of A in one matrix, and the pivots, which count from 1."""
    LU, pivots, _ = lax.linalg.lu(A)
    return LU, pivots + 1


def lu_solve(B, LU, pivots, *, left=True, adjoint=False):
    """X with A X = B (A^H X = B if adjoint; or X on the left), from the factors of A and pivots that count from 1."""
    if not left:
        return jnp.conj(lu_solve(jnp.conj(B.mT), LU, pivots, adjoint=not adjoint).mT)
    LU, B = _batched(LU, B)
    pivots = jnp.broadcast_to(pivots, LU.shape[:-1]) - 1
    order = lax.linalg.lu_pivots_to_permutation(pivots, LU.shape[-1])[..., None]
    if adjoint:
        y = solve_triangular(jnp.conj(LU.mT), B, upper=False)
        y = solve_triangular(jnp.conj(LU.mT), y, upper=True, unitriangular=True)
        return jnp.take_along_axis(y, jnp.argsort(order, -2), -2)
    B = jnp.take_along_axis(B, order, -2)
    return solve_triangular(LU, solve_triangular(LU, B, upper=False, unitriangular=True), upper=True)


def cross(input, other):
    """The cross product along the first dimension of size 3."""
    shape = jnp.broadcast_shapes(input.shape, other.shape)
    return jnp.cross(*jnp.broadcast_arrays(input, other), axis=shape.index(3))


def svd(input, some=True):
    """U, S and V (not its transpose) with input = U S V^H."""
    U, S, Vh = jnp.linalg.svd(input, full_matrices=not some)
    return U, S, jnp.conj(Vh.mT)


def vander(x, N=None):
    """The powers 0 to N - 1 of the elements, in a new last dimension."""
    x = jnp.atleast_1d(x)
    return x[..., None] ** jnp.arange(x.shape[-1] if N is None else N)


def renorm(input, p, dim, maxnorm):
    """The input with each slice along a dimension scaled down to the largest p-norm allowed."""
    axes = tuple(d for d in range(input.ndim) if d != dim % input.ndim)
    size = jnp.abs(input)
    norms = size.max(axes, keepdims=True) if p == float("inf") else (size**p).sum(axes, keepdims=True) ** (1 / p)
    return jnp.where(norms > maxnorm, input * (maxnorm / (norms + 1e-7)), input)
