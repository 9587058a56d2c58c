"""Sums of outer products of features, roots of many small matrices, inverses of triangular ones."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unbayes._numerics.records import accumulate

# Blocks of a triangular matrix up to this size are inverted row by row, larger ones by products.
LARGEST_SUBSTITUTED = 32
# Matrices up to this size are multiplied entry by entry.
LARGEST_IN_PAIRS = 5
# Products of features that are formed at a time: as many as stay in a processor's cache.
CACHED_ELEMENTS = 1 << 18
# Matrices up to this size are factored without a loop, whose steps would take longer than what they do.
LARGEST_UNROLLED = 4
# Least width of the blocks in which products are taken that are half zero, or half told by the other half:
# narrower ones cost more by themselves than they save.
LEAST_BLOCK = 256


def dense_gram(design: Float[Array, "n p"], weights: Float[Array, "n o o"]) -> Float[Array, "d d"]:
    """Σ_n weights_n ⊗ a_n a_nᵀ of symmetric weights, as matrix products over the records."""
    outputs, size = weights.shape[1], design.shape[1]
    if outputs == 1:
        return _symmetric_product(weights[:, 0] * design, design)
    pairs, products = Half(outputs), Half(size)

    def part(records):
        design, weights = records
        return weights[:, *pairs.indices].T @ products.of(design)

    halves = accumulate(part, (design, weights), max(CACHED_ELEMENTS // len(products.is_diagonal), 1))
    blocks = halves[pairs.place][:, :, products.place]
    return blocks.transpose(0, 2, 1, 3).reshape(outputs * size, outputs * size)


def _symmetric_product(left: Float[Array, "n d"], right: Float[Array, "n d"]) -> Float[Array, "d d"]:
    """leftᵀ right where that is symmetric: blocks below the diagonal are those above it."""
    rows = [
        jnp.pad(left[:, block].T @ right[:, block.start :], ((0, 0), (block.start, 0)))
        for block in _blocks(left.shape[1])
    ]
    if len(rows) == 1:
        return rows[0]
    upper = jnp.concatenate(rows)
    return jnp.triu(upper) + jnp.triu(upper, 1).T


def squared_lengths(design: Float[Array, "n d"], factor: Float[Array, "d d"]) -> Float[Array, " n"]:
    """|Lᵀ a|² of every row a, for lower-triangular L."""
    products = (design[:, block.start :] @ factor[block.start :, block] for block in _blocks(len(factor)))
    return sum(((product**2).sum(1) for product in products), jnp.zeros((), design.dtype))


def _blocks(size: int) -> list[slice]:
    """At most four equal parts of so many columns, or one where they are few."""
    count = min(max(size // LEAST_BLOCK, 1), 4)
    ends = [size * number // count for number in range(count + 1)]
    return [slice(*pair) for pair in itertools.pairwise(ends)]


def quadratic_forms(
    design: Float[Array, "n p"], matrix: Float[Array, "d d"], outputs: int
) -> Float[Array, "n o o"]:
    """aᵀ M_oq a of every block of a symmetric matrix, record by record: the adjoint of `dense_gram`."""
    size = design.shape[1]
    pairs, products = Half(outputs), Half(size)
    blocks = matrix.reshape(outputs, size, outputs, size).transpose(0, 2, 1, 3)[pairs.indices]
    both = (blocks + blocks.mT)[:, *products.indices] * np.where(products.is_diagonal, 0.5, 1.0)
    return (products.of(design) @ both.T.astype(design.dtype))[:, pairs.place]


def mean_outer(values: Float[Array, "o k"], weights: Float[Array, " k"]) -> Float[Array, "o o"]:
    """Weighted sum of v vᵀ over the columns; of few rows, pair by pair, which suits many matrices at once."""
    if len(values) > LARGEST_IN_PAIRS:
        return (values * weights) @ values.T
    pairs = Half(len(values))
    rows, columns = pairs.indices
    return ((values[rows] * values[columns]) @ weights)[pairs.place]


class Half:
    """The half of a symmetric matrix that tells the rest."""

    def __init__(self, size: int):
        self.indices = np.triu_indices(size)
        rows, columns = self.indices
        self.is_diagonal = rows == columns
        self.place = np.zeros((size, size), int)
        self.place[rows, columns] = self.place[columns, rows] = np.arange(len(rows))

    @property
    def size(self) -> int:
        """Number h of entries that are kept."""
        return len(self.is_diagonal)

    def of(self, design: Float[Array, "n p"]) -> Float[Array, "n h"]:
        """That half of a aᵀ, for every row a."""
        rows, columns = self.indices
        return design[:, rows] * design[:, columns]

    def contracted(self, matrix: Float[Array, "d d"]) -> Float[Array, " h"]:
        """What a product with such halves takes to be a sum over all entries of a symmetric matrix."""
        return matrix[self.indices] * np.where(self.is_diagonal, 1, 2).astype(matrix.dtype)

    def matrix(self, half: Float[Array, " h"]) -> Float[Array, "d d"]:
        """The symmetric matrix."""
        return half[self.place]


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

    size, none = matrices.shape[1], jnp.zeros_like(matrices)
    if size > LARGEST_UNROLLED:
        return jax.lax.fori_loop(0, size, add_column, none)
    return functools.reduce(lambda factors, j: add_column(j, factors), range(size), none)


@jax.custom_jvp
def inverse_triangular(factor: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """Inverse of a lower-triangular matrix by products of blocks, without LAPACK for the reason above."""
    size = factor.shape[-1]
    count = 1 << (-(-size // LARGEST_SUBSTITUTED) - 1).bit_length()
    width = -(-size // count)
    whole = jnp.eye(count * width, dtype=factor.dtype).at[:size, :size].set(jnp.tril(factor))

    def blocks(first: int):
        """Every other block along the diagonal, or below it: rows from `first`, columns from 0."""
        rows = jnp.arange(first, count, 2) if first else jnp.arange(count)
        return whole.reshape(count, width, count, width)[rows, :, rows - first]

    inverses = _substitute(blocks(0))
    while count > 1:
        upper, lower = inverses[::2], inverses[1::2]
        corner = -lower @ (blocks(1) @ upper)
        inverses = jnp.block([[upper, jnp.zeros_like(upper)], [corner, lower]])
        count, width = count // 2, 2 * width
    return inverses[0, :size, :size]


@inverse_triangular.defjvp
def _change_of_inverse(primals, tangents):
    inverse = inverse_triangular(*primals)
    return inverse, -inverse @ (jnp.tril(tangents[0]) @ inverse)


def _substitute(factors: Float[Array, "n w w"]) -> Float[Array, "n w w"]:
    """Inverses of many small lower-triangular matrices, row by row for all at once."""
    identity = jnp.eye(factors.shape[1], dtype=factors.dtype)

    def add_row(i, inverses):
        row = identity[i] - jnp.einsum("nj,njk->nk", factors[:, i], inverses)
        return inverses.at[:, i].set(row / factors[:, i, i][:, None])

    return jax.lax.fori_loop(0, factors.shape[1], add_row, jnp.zeros_like(factors))


def inverse_cholesky(precision: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """Lower-triangular L with L Lᵀ = precision⁻¹, by the Cholesky factor of the reversed matrix."""
    return inverse_triangular(jnp.linalg.cholesky(precision[::-1, ::-1]))[::-1, ::-1].T
