"""Products by blocks, roots of many small matrices, and inverses of triangular ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.linalg import solve_triangular

from problems import KEY
from unbayes._numerics.linalg import (
    LARGEST_SUBSTITUTED,
    LEAST_BLOCK,
    cholesky_of_each,
    dense_gram,
    inverse_triangular,
    squared_lengths,
)


def test_factors_are_those_of_lapack(dtype):
    roots = jax.random.normal(KEY, (7, 4, 6), dtype)
    matrices = roots @ roots.mT
    tolerance = 1e-4 if dtype == jnp.float32 else 1e-12
    np.testing.assert_allclose(cholesky_of_each(matrices), np.linalg.cholesky(matrices), atol=tolerance)


def test_what_is_singular_to_rounding_gets_a_factor(dtype):
    root = jax.random.normal(KEY, (5, 4, 2), dtype)
    matrices = root @ root.mT
    factors = cholesky_of_each(matrices)
    np.testing.assert_allclose(factors @ factors.mT, matrices, atol=1e4 * jnp.finfo(dtype).eps)


def test_gradients_are_those_of_lapack():
    roots = jax.random.normal(KEY, (3, 2, 5))
    matrices = roots @ roots.mT

    def total(factor):
        return lambda m: (factor(0.5 * (m + m.mT)) ** 2 * jnp.arange(4.0).reshape(2, 2)).sum()

    ours, theirs = (jax.grad(total(f))(matrices) for f in (cholesky_of_each, jnp.linalg.cholesky))
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


def triangular(size: int, dtype=None):
    wide = jax.random.normal(KEY, (size, 3 * size), dtype or float)
    return jnp.linalg.cholesky(wide @ wide.T / size)


@pytest.mark.parametrize("size", [3, 2 * LEAST_BLOCK + 1, 5 * LEAST_BLOCK])
def test_products_by_blocks_are_those_of_whole_matrices(size):
    rng = np.random.default_rng(0)
    design, weights = rng.normal(size=(6, size)), rng.normal(size=6)
    factor = np.tril(rng.normal(size=(size, size)))
    whole = np.einsum("n,np,nq->pq", weights, design, design)
    found = dense_gram(jnp.asarray(design), jnp.asarray(weights)[:, None, None])
    np.testing.assert_allclose(found, whole, atol=1e-12)
    lengths = squared_lengths(jnp.asarray(design), jnp.asarray(factor))
    np.testing.assert_allclose(lengths, ((design @ factor) ** 2).sum(1), rtol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("size", [1, 20, LARGEST_SUBSTITUTED + 1, 100])
def test_inverses_of_triangular_matrices(size, dtype):
    factor = triangular(size, dtype)
    inverse = inverse_triangular(factor)
    assert inverse.dtype == dtype
    np.testing.assert_allclose(inverse @ factor, np.eye(size), atol=1e3 * jnp.finfo(dtype).eps)
    np.testing.assert_array_equal(jnp.triu(inverse, 1), 0)


@pytest.mark.parametrize("size", [20, LARGEST_SUBSTITUTED + 1])
def test_gradients_of_inverses_are_those_of_solving(size):
    factor, identity = triangular(size), jnp.eye(size)
    ours = jax.grad(lambda m: jnp.sin(inverse_triangular(m)).sum())(factor)
    theirs = jax.grad(lambda m: jnp.sin(solve_triangular(m, identity, lower=True)).sum())(factor)
    np.testing.assert_allclose(ours, theirs, atol=1e-10)


def test_batches_of_inverses_leave_lapack_alone():
    """LAPACK solves a batch by threads that wait for other threads: two batches on two cores never end."""
    batch = jnp.stack([triangular(100)] * 2)
    program = jax.jit(jax.vmap(jax.grad(lambda m: inverse_triangular(m).sum()))).lower(batch).as_text()
    assert "lapack" not in program
    assert "dot" in program
