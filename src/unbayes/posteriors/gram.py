"""Sums of outer products of features, and roots of many small matrices."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def dense_gram(design: Float[Array, "n p"], weights: Float[Array, "n o o"]) -> Float[Array, "d d"]:
    """Σ_n weights_n ⊗ a_n a_nᵀ for symmetric weights, as one matrix product over the records."""
    outputs, size = weights.shape[1], design.shape[1]
    if outputs == 1:
        return (weights[:, 0] * design).T @ design
    # Both factors are symmetric, so that a quarter of the products is enough.
    (first, second), features = _half(size)
    (left, right), blocks = _half(outputs)
    columns = design.T
    products = (columns[first] * columns[second]) @ weights[:, left, right]
    return products[features[None, :, None, :], blocks[:, None, :, None]].reshape([outputs * size] * 2)


def _half(size: int):
    """Indices of the upper triangle of a symmetric matrix, and for every element where to find it there."""
    rows, columns = np.triu_indices(size)
    place = np.zeros((size, size), int)
    place[rows, columns] = place[columns, rows] = np.arange(len(rows))
    return (rows, columns), place


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
