"""Solves, factors and special functions of the layer library against torch."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from jaxmigrate.layers.library import linalg, special

RNG = np.random.default_rng(3)
A = (RNG.normal(size=(2, 4, 4)) + 4 * np.eye(4)).astype(np.float32)
B = RNG.normal(size=(2, 4, 3)).astype(np.float32)


def test_lu_solve_takes_what_lu_factor_gives() -> None:
    factors, pivots = linalg.lu_factor(jnp.asarray(A))
    theirs = torch.linalg.lu_factor(torch.from_numpy(A))
    np.testing.assert_array_equal(pivots, theirs.pivots)
    wanted = torch.lu_solve(torch.from_numpy(B), *theirs)
    np.testing.assert_allclose(linalg.lu_solve(jnp.asarray(B), factors, pivots), wanted, rtol=1e-4, atol=1e-5)


def test_solve_reads_a_batch_of_vectors_as_torch_does() -> None:
    vectors = RNG.normal(size=(2, 4)).astype(np.float32)
    wanted = torch.linalg.solve(torch.from_numpy(A), torch.from_numpy(vectors))
    np.testing.assert_allclose(linalg.solve(jnp.asarray(A), jnp.asarray(vectors)), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("some", [True, False])
def test_svd_puts_the_matrix_together_again(some: bool) -> None:
    U, S, V = linalg.svd(jnp.asarray(B[0]), some=some)
    assert [f.shape for f in (U, S, V)] == [tuple(f.shape) for f in torch.svd(torch.from_numpy(B[0]), some=some)]
    np.testing.assert_allclose(U[:, :3] * S @ V.T, B[0], atol=1e-5)


@pytest.mark.parametrize("n", [0, 1, 2, 4])
def test_polygamma_below_zero(n: int) -> None:
    x = np.array([-3.3, -0.7, -0.2, 0.4, 2.5], np.float32)
    t = torch.tensor(x, requires_grad=True)
    wanted = torch.polygamma(n, t)
    wanted.sum().backward()
    got, gradient = jax.value_and_grad(lambda x: special.polygamma(n, x).sum())(jnp.asarray(x))
    np.testing.assert_allclose(special.polygamma(n, jnp.asarray(x)), wanted.detach(), rtol=1e-4)
    np.testing.assert_allclose(gradient, t.grad, rtol=1e-4)
    np.testing.assert_allclose(got, wanted.sum().detach(), rtol=1e-4)
