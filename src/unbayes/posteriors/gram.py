"""Sums of outer products of features, roots of many small matrices, inverses of triangular ones."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float


def dense_gram(design: Float[Array, "n p"], weights: Float[Array, "n o o"]) -> Float[Array, "d d"]:
    """Σ_n weights_n ⊗ a_n a_nᵀ, as one matrix product over the records."""
    outputs, size = weights.shape[1], design.shape[1]
    if outputs == 1:
        return (weights[:, 0] * design).T @ design
    # a aᵀ is symmetric, so that half of the products is enough.
    rows, columns = np.triu_indices(size)
    place = np.zeros((size, size), int)
    place[rows, columns] = place[columns, rows] = np.arange(len(rows))
    halves = weights.reshape(-1, outputs**2).T @ (design[:, rows] * design[:, columns])
    blocks = halves[:, place].reshape(outputs, outputs, size, size)
    return blocks.transpose(0, 2, 1, 3).reshape(outputs * size, outputs * size)


def cholesky_of_each(matrices: Float[Array, "n o o"]) -> Float[Array, "n o o"]:
    """Cholesky factors of many small positive-definite matrices, column by column for all at once.

    LAPACK's factors of a batch are computed by threads that wait for other threads; where two batches meet on
    two cores, they wait for ever.
    """
    rows = jnp.arange(matrices.shape[1])

    def add_column(j, factors):
        column = matrices[:, :, j] - jnp.einsum("nik,nk->ni", factors, factors[:, j])
        column = column / jnp.sqrt(column[:, j, None])
        return factors.at[:, :, j].set(jnp.where(rows >= j, column, 0))

    return jax.lax.fori_loop(0, matrices.shape[1], add_column, jnp.zeros_like(matrices))


def inverse_triangular(factor: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """Inverse of a lower-triangular matrix."""
    return solve_triangular(factor, jnp.eye(factor.shape[-1], dtype=factor.dtype), lower=True)
