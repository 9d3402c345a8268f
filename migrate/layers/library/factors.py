"""Matrix factorisations with what torch returns beside them: packed factors, pivots, and a code of failure."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from .linalg import lu_factor, solve


class Factor(NamedTuple):
    """A factor and 0 where the factorisation succeeded."""

    L: Any
    info: Any


class Inverse(NamedTuple):
    """An inverse and 0 where there is one."""

    inverse: Any
    info: Any


class Solution(NamedTuple):
    """A solution and 0 where there is one."""

    result: Any
    info: Any


class LeastSquares(NamedTuple):
    """The solution, the squared lengths of what it leaves, and the rank and the singular values of the matrix."""

    solution: Any
    residuals: Any
    rank: Any
    singular_values: Any


class PackedLU(NamedTuple):
    """Both factors in one matrix, the pivots counted from 1, and 0 or the place of the first pivot that is zero."""

    LU: Any
    pivots: Any
    info: Any


def cholesky_ex(input, upper=False):
    """The Cholesky factor; `info` is 1 where the matrix is not positive-definite (torch: which minor is not)."""
    L = jnp.linalg.cholesky(input, upper=upper)
    return Factor(L, jnp.isnan(L).any((-2, -1)).astype(jnp.int32))


def lu_factor_ex(A):
    """The factors of A in one matrix, pivots that count from 1, and the place (from 1) of the first zero pivot or 0."""
    LU, pivots = lu_factor(A)
    zero = jnp.diagonal(LU, 0, -2, -1) == 0
    before = jnp.cumprod(~zero, -1, dtype=jnp.int32).sum(-1)
    return PackedLU(LU, pivots, jnp.where(zero.any(-1), before + 1, 0))


def inv_ex(A):
    """The inverse; `info` is the place (from 1) of the first zero pivot, or 0."""
    return Inverse(jnp.linalg.inv(A), lu_factor_ex(A).info)


def solve_ex(A, B, *, left=True):
    """X with A X = B, or X A = B; `info` is the place (from 1) of the first zero pivot of A, or 0."""
    return Solution(solve(A, B, left=left), lu_factor_ex(A).info)


def lstsq(A, B, rcond=None, *, driver="gelsy"):
    """The X of least length with the smallest |A X - B|.

    `residuals` are the squared lengths of A X - B where A has more rows than columns, but not of the driver "gelsy";
    "gels" gives no rank; "gelss" and "gelsd" alone give singular values.
    """
    vectors = B.ndim == A.ndim - 1 and B.shape == A.shape[:-1]
    rows, columns = A.shape[-2:]
    rcond = max(rows, columns) * jnp.finfo(A.dtype).eps if rcond is None else rcond
    B = B[..., None] if vectors else B
    solution = jnp.linalg.pinv(A, rtol=None if driver == "gels" else rcond) @ B
    left = jnp.square(jnp.abs(A @ solution - B)).sum(-2)
    left = left if rows > columns and driver != "gelsy" else jnp.zeros(0, A.dtype)
    rank = jnp.zeros(0, int) if driver == "gels" else jnp.linalg.matrix_rank(A, rtol=rcond)
    values = jnp.linalg.svdvals(lax.stop_gradient(A)) if driver in ("gelss", "gelsd") else jnp.zeros(0, A.dtype)
    return LeastSquares(solution[..., 0] if vectors else solution, left, rank, values)


def lu_unpack(LU_data, LU_pivots):
    """P, L and U with A = P L U, from the factors in one matrix and pivots that count from 1."""
    rows, columns = LU_data.shape[-2:]
    k = min(rows, columns)
    L = jnp.tril(LU_data[..., :k], -1) + jnp.eye(rows, k, dtype=LU_data.dtype)
    order = lax.linalg.lu_pivots_to_permutation(LU_pivots - 1, rows)
    return jnp.eye(rows, dtype=LU_data.dtype)[order].mT, L, jnp.triu(LU_data[..., :k, :])


def _reflections(A, tau, X, adjoint=False):
    """Q X or Q^H X, where Q is the product of the reflections 1 - tau v v^H that A and tau hold."""
    rows = jnp.arange(A.shape[-2])
    steps = range(tau.shape[-1])
    for i in steps if adjoint else reversed(steps):
        v = jnp.where(rows > i, A[..., i], rows == i)[..., None]
        factor = tau[..., i, None, None]
        X = X - (jnp.conj(factor) if adjoint else factor) * v @ (jnp.conj(v.mT) @ X)
    return X


def householder_product(A, tau):
    """The first columns of the product of the reflections that A and tau hold."""
    return _reflections(A, tau, jnp.eye(*A.shape[-2:], dtype=A.dtype))


def ormqr(input, tau, other, left=True, transpose=False):
    """Q C, Q^H C, C Q or C Q^H, where Q is the product of the reflections that input and tau hold."""
    if left:
        return _reflections(input, tau, other, transpose)
    return jnp.conj(_reflections(input, tau, jnp.conj(other.mT), not transpose).mT)


def matrix_rank(A, *, atol=None, rtol=None, hermitian=False):
    """How many singular values exceed both atol and rtol times the largest one."""
    values = jnp.abs(jnp.linalg.eigvalsh(A)) if hermitian else jnp.linalg.svd(A, compute_uv=False)
    if not values.shape[-1]:
        return jnp.zeros(values.shape[:-1], int)
    usual = max(A.shape[-2:]) * jnp.finfo(A.dtype).eps
    atol = jnp.asarray(0.0 if atol is None else atol)
    rtol = jnp.where(atol > 0, 0.0, usual) if rtol is None else jnp.asarray(rtol)
    limit = jnp.maximum(atol, rtol * values.max(-1))
    return (values > limit[..., None]).sum(-1)
