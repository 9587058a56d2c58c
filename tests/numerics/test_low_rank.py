"""Roots of low rank, factors that change by them, and largest eigenvalues, against dense linear algebra."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from problems import KEY
from unbayes._numerics.low_rank import BLOCK, SEARCHED, largest_eigenpair, low_rank_root, updated_factor


def of_rank(rank: int, dim: int, dtype=None):
    rows = jax.random.normal(KEY, (rank, dim), dtype or float)
    return rows.T @ rows


def triangular(dim: int, dtype=None):
    return jnp.tril(jax.random.normal(KEY, (dim, dim), dtype or float)) + 3 * jnp.eye(
        dim, dtype=dtype or float
    )


def test_a_root_gives_the_matrix(dtype):
    matrix = of_rank(7, 40, dtype)
    root = low_rank_root(matrix, 7)
    np.testing.assert_allclose(root.T @ root, matrix, atol=100 * jnp.finfo(dtype).eps * jnp.abs(matrix).max())


def test_rows_beyond_the_rank_are_zero():
    root = low_rank_root(of_rank(7, 40), 12)
    np.testing.assert_array_equal(root[7:], 0)
    np.testing.assert_allclose(root.T @ root, of_rank(7, 40), atol=1e-12)


def test_nothing_has_a_root_of_zeros():
    np.testing.assert_array_equal(low_rank_root(jnp.zeros((5, 5)), 3), 0)


def test_a_root_of_too_low_a_rank_leaves_something():
    matrix = of_rank(7, 40)
    root = low_rank_root(matrix, 6)
    assert jnp.abs(root.T @ root - matrix).max() > 0.1


@pytest.mark.parametrize("dim", [5, BLOCK, 2 * BLOCK + 3])
def test_an_updated_factor_is_that_of_the_changed_matrix(dim):
    factor, change = triangular(dim), jax.random.normal(KEY, (dim, 4))
    found = updated_factor(factor, change)
    inner = np.eye(dim) + change @ change.T
    np.testing.assert_allclose(found @ found.T, factor @ inner @ factor.T, rtol=1e-10, atol=1e-9)
    np.testing.assert_array_equal(found, jnp.tril(found))


def test_signs_of_columns_stay():
    factor = triangular(6) * jnp.where(jnp.arange(6) % 2, -1, 1)
    found = updated_factor(factor, jax.random.normal(KEY, (6, 2)))
    np.testing.assert_array_equal(jnp.sign(jnp.diagonal(found)), jnp.sign(jnp.diagonal(factor)))


@pytest.mark.parametrize("dim", [3, SEARCHED, 5 * SEARCHED])
def test_the_largest_eigenvalue_is_that_of_lapack(dim, dtype):
    matrix = of_rank(dim, dim, dtype)
    value, vector = largest_eigenpair(lambda v: matrix @ v, jnp.zeros(dim, dtype))
    largest = np.linalg.eigvalsh(matrix)[-1]
    tolerance = 1e-5 if dtype == jnp.float32 else 1e-10
    np.testing.assert_allclose(value, largest, rtol=tolerance)
    assert jnp.linalg.norm(matrix @ vector - value * vector) < 0.1 * value


def test_a_start_at_another_eigenvector_does_not_end_there():
    values = jnp.arange(1.0, 401.0)
    value, vector = largest_eigenpair(lambda v: values * v, jnp.eye(400)[17])
    np.testing.assert_allclose(value, 400, rtol=1e-10)
    assert abs(vector[-1]) > 0.99


def test_eigenvalues_that_are_many_times_there():
    values = jnp.repeat(jnp.array([1.0, 2.0]), 50)
    np.testing.assert_allclose(largest_eigenpair(lambda v: values * v, jnp.zeros(100))[0], 2, rtol=1e-12)
