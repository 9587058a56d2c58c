"""Sums over records of third to fifth derivatives: how their sites change as a belief does.

Derivatives are taken along k directions of θ, the columns of a matrix W of shape (d, k), and averaged over a
belief q. They are symmetric, so of two neighbouring directions only h = k(k + 1)/2 pairs are kept.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unbayes._numerics.linalg import Half
from unbayes._numerics.quadrature import Nodes
from unbayes._numerics.records import CHUNK_ELEMENTS, accumulate
from unbayes._storable import Storable
from unbayes.posteriors import AbstractGaussian

# Directions along which fifth derivatives are kept. They only tell how far off fourth ones are, and with this
# many the estimate is within a tenth of that from all directions (20, sparse Gaussian processes).
LARGEST_FIFTH_DIRECTIONS = 16
# Part of the largest entry by which rounding may make a symmetric matrix of sums less so, in float32.
LARGEST_ROUNDING = 1e-3


class Derivatives(Storable):
    """Sums of E_q[∇³ log p] and so on over records, along k directions; they add up as sites do.

    Attributes
    ----------
    third
        Pairs of directions by directions, shape (h, k).
    fourth
        Pairs by pairs, shape (h, h); None where only third derivatives are known.
    fifth
        Pairs by pairs by directions, along the first of the directions; None where they are not known.
    """

    third: Float[Array, "h k"]
    fourth: Float[Array, "h h"] | None = None
    fifth: Float[Array, "g g j"] | None = None

    @property
    def order(self) -> int:
        """The highest order of derivatives along all directions, 3 or 4."""
        return 3 if self.fourth is None else 4

    @property
    def directions(self) -> int:
        """Number k of directions."""
        return self.third.shape[1]

    @property
    def half(self) -> Half:
        """Which pairs of directions the rows stand for."""
        return Half(self.directions)

    def require_valid(self) -> None:
        """Refuse sums that are not over pairs of directions."""
        pairs = self.half.size
        if len(self.third) != pairs:
            raise ValueError(
                f"third must have {pairs} rows, one for each pair of {self.directions} directions, "
                f"got {len(self.third)}"
            )
        if self.fourth is not None and not _is_symmetric(self.fourth):
            raise ValueError("fourth must be symmetric, got a matrix that is not")
        if self.fifth is not None:
            few = self.fifth.shape[2]
            wanted = (Half(few).size, Half(few).size, few)
            if few > self.directions:
                raise ValueError(f"fifth must go along {self.directions} directions at most, got {few}")
            if self.fifth.shape != wanted:
                raise ValueError(f"fifth must have shape {wanted}, got {self.fifth.shape}")

    def __add__(self, other: Self) -> Self:
        return jax.tree.map(jnp.add, self, other)

    def __sub__(self, other: Self) -> Self:
        left = jax.tree.map(jnp.subtract, self, other)
        if left.fourth is None:
            return left
        # Where next to nothing is left, rounding is all there is.
        return dataclasses.replace(left, fourth=0.5 * (left.fourth + left.fourth.T))

    def seen_from(self, move: Float[Array, " k"], turn: Float[Array, "k k"]) -> Self:
        """The same sums around a belief whose mean lies at `move`, along directions y with z = turn y.

        `turn` is lower-triangular: leading directions stay among themselves. Third derivatives change with
        the mean by the fourth; how fourth ones change is left out.
        """
        third, fourth, fifth = self.third, self.fourth, self.fifth
        pairs = _turned_pairs(turn)
        if fourth is not None:
            third = third + jax.vmap(self.half.matrix)(fourth) @ move
            fourth = pairs @ fourth @ pairs.T
        if fifth is not None:
            among = turn[: fifth.shape[2], : fifth.shape[2]]
            few = _turned_pairs(among)
            fifth = jnp.einsum("ghj,ag,bh,ji->abi", fifth, few, few, among)
        return type(self)(pairs @ third @ turn, fourth, fifth)


def _is_symmetric(matrix: Float[Array, "h h"]) -> bool:
    """To rounding, in either floating-point type."""
    entries = np.asarray(matrix)
    return bool(np.abs(entries - entries.T).max() <= LARGEST_ROUNDING * np.abs(entries).max())


def _turned_pairs(turn: Float[Array, "k k"]) -> Float[Array, "h h"]:
    """What pairs of the new directions are in pairs of the old ones."""
    half = Half(len(turn))
    first, second = half.indices
    products = turn.T[first][:, :, None] * turn.T[second][:, None, :]
    return jax.vmap(half.contracted)(0.5 * (products + products.mT))


def leading(directions: int) -> int:
    """Number of directions, the first ones, along which fifth derivatives are kept."""
    return min(directions, LARGEST_FIFTH_DIRECTIONS)


def of_outputs(along: Float[Array, "n o k"], tensors: Sequence[Array]) -> Derivatives:
    """Sums from the derivatives of each record by its outputs f = along z, as products over the records.

    Parameters
    ----------
    along
        How far the outputs move along each direction, shape (n, o, k).
    tensors
        Derivatives by the outputs, of order 3, 4 and 5 as far as given: shapes (n, o, o, o) and so on.
    """
    records, outputs, directions = along.shape
    # Directions first: rows that lie together in memory are cheap to pick.
    columns = jnp.moveaxis(along, 2, 0)
    pairs, few = _pairs(columns), leading(directions)

    def by_pairs(tensor):
        return tensor.reshape(records, outputs**2, -1)

    third = jnp.einsum("hna,nab,lnb->hl", pairs, by_pairs(tensors[0]), columns, optimize=True)
    if len(tensors) == 1:
        return Derivatives(third)
    fourth = jnp.einsum("gna,nab,hnb->gh", pairs, by_pairs(tensors[1]), pairs, optimize=True)
    if len(tensors) == 2:
        return Derivatives(third, fourth)
    among = _pairs(columns[:few])
    triples = among[:, None, :, :, None] * columns[None, :few, :, None, :]
    triples = triples.reshape(len(among) * few, records, outputs**3)
    fifth = jnp.einsum("gna,nab,xnb->gx", among, by_pairs(tensors[2]), triples, optimize=True)
    return Derivatives(third, fourth, fifth.reshape(len(among), len(among), few))


def _pairs(columns: Float[Array, "k n o"]) -> Float[Array, "h n oo"]:
    """Products of the outputs along every two directions."""
    first, second = Half(len(columns)).indices
    products = columns[first][:, :, :, None] * columns[second][:, :, None, :]
    return products.reshape(len(first), columns.shape[1], -1)


def of_log_density(
    log_density: Callable[[Float[Array, " d"]], Float[Array, ""]],
    gaussian: AbstractGaussian,
    directions: Float[Array, "d k"],
    nodes: Nodes,
    order: int,
    records: int = 1,
) -> Derivatives:
    """Derivatives of any function of θ up to fourth order, by differentiating it along the directions.

    `records` is how many numbers the function adds up: the more, the fewer nodes are gone to at a time.
    """
    half = Half(directions.shape[1])
    origin = jnp.zeros(directions.shape[1], gaussian.dtype)

    def part(weighted):
        thetas, weights = weighted

        def second(z):
            def total(z):
                return weights @ jax.vmap(lambda theta: log_density(theta + directions @ z))(thetas)

            return jax.hessian(total)(z)[half.indices]

        third = jax.jacfwd(second)(origin)
        if order == 3:
            return Derivatives(third)
        fourth = jax.jacfwd(jax.jacfwd(second))(origin)[:, *half.indices]
        return Derivatives(third, 0.5 * (fourth + fourth.T))

    thetas = jax.vmap(gaussian.colour)(nodes.points)
    elements = tangents(directions, order) * max(records, gaussian.dim)
    return accumulate(part, (thetas, nodes.weights), max(CHUNK_ELEMENTS // elements, 1))


def tangents(directions: Float[Array, "d k"], order: int) -> int:
    """Numbers that stand behind each one while a gradient is differentiated up to such an order."""
    return directions.shape[1] ** (min(order, 4) - 1)
