"""Solves, factors and special functions of the layer library against torch."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from jaxmigrate.layers.library import counting, factors, linalg, special, tensor

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


@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd", "gelss"])
@pytest.mark.parametrize("rows", [2, 4, 6])
def test_lstsq(same, driver: str, rows: int) -> None:
    rng = np.random.default_rng(rows)
    A, B = rng.normal(size=(3, rows, 4)).astype(np.float32), rng.normal(size=(3, rows, 2)).astype(np.float32)
    A += 3 * np.eye(rows, 4, dtype=np.float32)  # gradients lose as many digits as the square of the condition number
    assert np.linalg.cond(A).max() < 10
    same(lambda a, b: torch.linalg.lstsq(a, b, driver=driver), lambda a, b: factors.lstsq(a, b, driver=driver), A, B)


def test_lstsq_of_vectors_and_of_short_rank() -> None:
    A, b = torch.tensor([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]]), torch.tensor([1.0, 0.0, 2.0])
    theirs = torch.linalg.lstsq(A, b[:, None], driver="gelsd")
    ours = factors.lstsq(jnp.asarray(A), jnp.asarray(b), driver="gelsd")
    np.testing.assert_allclose(ours.solution, theirs.solution[:, 0], rtol=1e-4, atol=1e-5)
    assert int(ours.rank) == int(theirs.rank) == 1


def test_division_towards_zero_is_exact_for_integers() -> None:
    a = np.array([16_777_217, -16_777_217, 7, -7], np.int32)
    wanted = torch.div(torch.from_numpy(a), 2, rounding_mode="trunc")
    np.testing.assert_array_equal(tensor.div_trunc(jnp.asarray(a), 2), wanted)
    assert tensor.div_trunc(jnp.asarray(a), 2).dtype == jnp.int32
    np.testing.assert_array_equal(tensor.div_trunc(jnp.array([-3.5]), 2), [-1.0])


def test_runs_of_one_value_and_histograms_of_nothing() -> None:
    assert counting.unique_consecutive(jnp.array([3])).tolist() == torch.unique_consecutive(torch.tensor([3])).tolist()
    theirs = torch.histogram(torch.zeros(0), 3)
    ours = counting.histogram(jnp.zeros(0), 3)
    np.testing.assert_allclose(ours.hist, theirs.hist)
    np.testing.assert_allclose(ours.bin_edges, theirs.bin_edges, rtol=1e-6)


def test_the_first_zero_pivot() -> None:
    singular = A.copy()
    singular[1, :, 2] = singular[1, :, 1]
    theirs = torch.linalg.lu_factor_ex(torch.from_numpy(np.triu(singular) * (np.arange(4) != 2)))
    ours = factors.lu_factor_ex(jnp.asarray(np.triu(singular) * (np.arange(4) != 2)))
    np.testing.assert_array_equal(ours.info, theirs.info)
    assert factors.lu_factor_ex(jnp.zeros((2, 0, 0))).info.tolist() == [0, 0]
