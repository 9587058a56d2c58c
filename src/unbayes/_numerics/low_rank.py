"""Matrices of low rank: their roots, factors that change by them, and the largest eigenvalue of a sum.

Products with narrow matrices all along: O(d²k) for d × d matrices that change by rank k. Small factors come
without LAPACK, whose threads take longer to meet than these take to compute.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unbayes._numerics.linalg import cholesky_of_each, inverse_triangular

# Columns of a factor that are changed at a time: wide enough for products, narrow beside the whole.
BLOCK = 128
# Roundings, as a share of the largest entry, below which what is left of a matrix is taken for zero.
NEGLIGIBLE = 8
# Directions in which an eigenvector is looked for before the search begins anew from the best so far, how
# often that is done at most, and directions that are added before looking again.
SEARCHED, RESTARTS, ADDED = 48, 40, 8
# Error of an eigenvalue, as a power of a rounding: 4e-11 in float64, 2e-5 in float32.
EIGENVALUE_POWER = 2 / 3


def low_rank_root(matrix: Float[Array, "d d"], rank: int) -> Float[Array, "k d"]:
    """R with RᵀR = `matrix`, positive semidefinite and of rank k at most, by Cholesky's method with pivots.

    Each row of R is one column of what the rows before it have left, so that O(dk²) operations do. Rows
    beyond the matrix's own rank are zero.
    """
    dim, dtype = len(matrix), matrix.dtype
    smallest = NEGLIGIBLE * dim * jnp.finfo(dtype).eps * jnp.diagonal(matrix).max()

    def unfinished(state):
        _, left, count = state
        return (count < rank) & (left.max() > smallest)

    def add_row(state):
        root, left, count = state
        pivot = jnp.argmax(left)
        row = (matrix[pivot] - root[:, pivot] @ root) / jnp.sqrt(left[pivot])
        # Rounding must not bring back what is gone.
        left = jnp.maximum(left - row**2, 0).at[pivot].set(0)
        return root.at[count].set(row), left, count + 1

    first = (jnp.zeros((rank, dim), dtype), jnp.diagonal(matrix), jnp.asarray(0))
    return jax.lax.while_loop(unfinished, add_row, first)[0]


def updated_factor(factor: Float[Array, "d d"], change: Float[Array, "d k"]) -> Float[Array, "d d"]:
    """Lower-triangular L′ with L′L′ᵀ = L(I + VVᵀ)Lᵀ, for lower-triangular L and `change` V.

    L′ = LC, with C the Cholesky factor of I + VVᵀ. Below the diagonal blocks of C stands VWᵀ: with M = I
    at first, block by block of rows Vᵢ, Cᵢᵢ = chol(I + VᵢMVᵢᵀ), Wᵢ = Cᵢᵢ⁻¹VᵢM, and M − WᵢᵀWᵢ for the next.
    """
    dim, rank = change.shape
    count = -(-dim // BLOCK)
    extra = count * BLOCK - dim
    rows = jnp.pad(change, ((0, extra), (0, 0))).reshape(count, BLOCK, rank)
    columns = jnp.pad(factor, ((0, 0), (0, extra))).reshape(dim, count, BLOCK).transpose(1, 0, 2)
    identity = jnp.eye(BLOCK, dtype=factor.dtype)

    def factorise(inner, block):
        along = block @ inner
        diagonal = cholesky_of_each((identity + along @ block.T)[None])[0]
        across = inverse_triangular(diagonal) @ along
        return inner - across.T @ across, (diagonal, across)

    _, blocks = jax.lax.scan(factorise, jnp.eye(rank, dtype=factor.dtype), rows)

    def multiply(below, block):
        column, row, diagonal, across = block
        return below + column @ row, column @ diagonal + below @ across.T

    below = jnp.zeros((dim, rank), factor.dtype)
    _, found = jax.lax.scan(multiply, below, (columns, rows, *blocks), reverse=True)
    return jnp.tril(found.transpose(1, 0, 2).reshape(dim, -1)[:, :dim])


def probe(dim: int, dtype: jnp.dtype) -> Float[Array, " d"]:
    """A direction of length one that is at right angles to nothing in particular: fixed signs."""
    return jnp.asarray(np.random.default_rng(0).choice([-1.0, 1.0], dim) / dim**0.5, dtype)


def largest_eigenpair(
    product: Callable[[Float[Array, " d"]], Float[Array, " d"]], start: Float[Array, " d"]
) -> tuple[Float[Array, ""], Float[Array, " d"]]:
    """Largest eigenvalue of a positive semidefinite matrix, and its eigenvector, by Lanczos's method.

    Every direction is made orthogonal to all before it. The search begins half from `start` and half from
    `probe`, so that it does not end at an eigenvector of another eigenvalue.

    Parameters
    ----------
    product
        v ↦ Mv.
    start
        A guess of the eigenvector; zero for none.
    """
    dim, dtype = len(start), start.dtype
    tolerance = float(jnp.finfo(dtype).eps) ** EIGENVALUE_POWER
    size = min(SEARCHED, dim)

    def add_direction(index, state):
        basis, images, direction = state
        basis = basis.at[index].set(direction)
        image = product(direction)
        images = images.at[index].set(image)
        least = NEGLIGIBLE * dim**0.5 * jnp.finfo(dtype).eps * jnp.linalg.norm(image)
        for _ in range(2):
            image = image - (basis @ image) @ basis
        # Where nothing but rounding is left, all there is to find was found.
        length = jnp.linalg.norm(image)
        return basis, images, jnp.where(length > least, image / length, 0)

    def search(state):
        basis, images, direction, count, restarts, *_ = state
        end = jnp.minimum(count + ADDED, size)
        basis, images, direction = jax.lax.fori_loop(count, end, add_direction, (basis, images, direction))
        values, vectors = jnp.linalg.eigh(basis @ images.T)
        best = vectors[:, -1] @ basis
        residual = jnp.linalg.norm(vectors[:, -1] @ images - values[-1] * best)
        error = residual * jnp.minimum(residual / (values[-1] - values[-2]), 1)
        full = end == size
        begin = jnp.zeros_like(basis)
        state = (basis, images, direction, end, restarts)
        best = best / jnp.linalg.norm(best)
        anew = (begin, begin, best, 0 * end, restarts + 1)
        state = jax.tree.map(lambda new, old: jnp.where(full, new, old), anew, state)
        return *state, values[-1], best, error

    def unfinished(state):
        restarts, value, _, error = state[4:]
        return (restarts < RESTARTS) & (error > tolerance * jnp.maximum(value, 1))

    none, zero = jnp.zeros((size, dim), dtype), jnp.asarray(0)
    mixed = start / jnp.maximum(jnp.linalg.norm(start), jnp.finfo(dtype).tiny) + probe(dim, dtype)
    mixed = mixed / jnp.linalg.norm(mixed)
    first = (none, none, mixed, zero, zero, jnp.zeros((), dtype), mixed, jnp.asarray(jnp.inf, dtype))
    *_, value, vector, _ = jax.lax.while_loop(unfinished, search, first)
    return value, vector
