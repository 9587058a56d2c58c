"""Roots of many small matrices."""

import jax
import jax.numpy as jnp
import numpy as np

from problems import KEY
from unbayes.posteriors.gram import cholesky_of_each


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
