"""Sums of outer products of features, roots of many small matrices, inverses of triangular ones."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

# Size beyond which a triangular matrix is inverted by halves.
LARGEST_SOLVED = 128


def dense_gram(design: Float[Array, "n p"], weights: Float[Array, "n o o"]) -> Float[Array, "d d"]:
    """Σ_n weights_n ⊗ a_n a_nᵀ of symmetric weights, as one matrix product over the records."""
    outputs, size = weights.shape[1], design.shape[1]
    if outputs == 1:
        return (weights[:, 0] * design).T @ design
    pairs, products = _Half(outputs), _Half(size)
    halves = weights[:, *pairs.indices].T @ products.of(design)
    blocks = halves[pairs.place][:, :, products.place]
    return blocks.transpose(0, 2, 1, 3).reshape(outputs * size, outputs * size)


def quadratic_forms(
    design: Float[Array, "n p"], matrix: Float[Array, "d d"], outputs: int
) -> Float[Array, "n o o"]:
    """aᵀ M_oq a of every block of a symmetric matrix, record by record: the adjoint of `dense_gram`."""
    size = design.shape[1]
    pairs, products = _Half(outputs), _Half(size)
    blocks = matrix.reshape(outputs, size, outputs, size).transpose(0, 2, 1, 3)[pairs.indices]
    both = (blocks + blocks.mT)[:, *products.indices] * np.where(products.is_diagonal, 0.5, 1.0)
    return (products.of(design) @ both.T.astype(design.dtype))[:, pairs.place]


class _Half:
    """The half of a symmetric matrix that tells the rest."""

    def __init__(self, size: int):
        self.indices = np.triu_indices(size)
        rows, columns = self.indices
        self.is_diagonal = rows == columns
        self.place = np.zeros((size, size), int)
        self.place[rows, columns] = self.place[columns, rows] = np.arange(len(rows))

    def of(self, design: Float[Array, "n p"]) -> Float[Array, "n h"]:
        """That half of a aᵀ, for every row a."""
        rows, columns = self.indices
        return design[:, rows] * design[:, columns]


def cholesky_of_each(matrices: Float[Array, "n o o"]) -> Float[Array, "n o o"]:
    """Cholesky factors of many small positive-definite matrices, column by column for all at once.

    What is singular to rounding gets the factor of a matrix nearby. LAPACK's factors of a batch are computed
    by threads that wait for other threads; where two batches meet on two cores, they wait for ever.
    """
    rows = jnp.arange(matrices.shape[1])
    rounding = 8 * jnp.finfo(matrices.dtype).eps * (1 + jnp.trace(matrices, axis1=1, axis2=2))

    def add_column(j, factors):
        column = matrices[:, :, j] - jnp.einsum("nik,nk->ni", factors, factors[:, j])
        column = column / jnp.sqrt(jnp.maximum(column[:, j], rounding))[:, None]
        return factors.at[:, :, j].set(jnp.where(rows >= j, column, 0))

    return jax.lax.fori_loop(0, matrices.shape[1], add_column, jnp.zeros_like(matrices))


def inverse_triangular(factor: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """Inverse of a lower-triangular matrix; a large one by halves, so that most of it is products."""
    size = factor.shape[-1]
    if size <= LARGEST_SOLVED:
        return solve_triangular(factor, jnp.eye(size, dtype=factor.dtype), lower=True)
    half = size // 2
    first, last = inverse_triangular(factor[:half, :half]), inverse_triangular(factor[half:, half:])
    below = -last @ (factor[half:, :half] @ first)
    return jnp.block([[first, jnp.zeros_like(factor[:half, half:])], [below, last]])


def inverse_cholesky(precision: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """Lower-triangular L with L Lᵀ = precision⁻¹, by the Cholesky factor of the reversed matrix."""
    return inverse_triangular(jnp.linalg.cholesky(precision[::-1, ::-1]))[::-1, ::-1].T
