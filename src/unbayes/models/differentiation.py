"""Expectations of a log-likelihood that is known as a function alone, by differentiating it at the nodes.

Such a function is the user's, so that every process compiles what is made of it anew. Each of these therefore
differentiates it in one place only: value, gradient and second derivatives come from one pass, and all else
from them. Third derivatives come by Stein's lemma, E[∇³ log p] = E[∇² log p ⊗ z] where q is N(m, L Lᵀ) and
θ = m + L z, and fourth ones are how those change with the mean.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unbayes._numerics.linalg import Half
from unbayes._numerics.quadrature import Nodes
from unbayes._numerics.records import CHUNK_ELEMENTS, count, weighted_sum
from unbayes.models.derivatives import Derivatives, of_log_density
from unbayes.posteriors import AbstractGaussian, DensePrecision, GaussianNatural

# θ and records ↦ log p of each record.
LogLikelihood = Callable[[Float[Array, " d"], Any], Float[Array, " n"]]
# Pairs of directions along which the change of a record's precision is looked at: all, or so many at random.
LARGEST_PAIRS = 300


class SecondOrder(NamedTuple):
    """Expectations of a log-density under a belief.

    Attributes
    ----------
    value
        E_q[log p].
    gradient
        E_q[∇ log p], shape (d,).
    curvature
        −E_q[∇² log p], shape (d, d).
    third
        E_q[∇³ log p] along given directions, pairs by directions, shape (h, k); None where not asked for.
    """

    value: Float[Array, ""]
    gradient: Float[Array, " d"]
    curvature: Float[Array, "d d"]
    third: Float[Array, "h k"] | None = None

    def site(self, gaussian: AbstractGaussian) -> GaussianNatural:
        """Natural gradient of the value, at the belief over which the expectations are taken."""
        return gaussian.site(self.gradient, DensePrecision(self.curvature))


def second_order(
    log_likelihood: LogLikelihood,
    gaussian: AbstractGaussian,
    evidence: Any,
    nodes: Nodes,
    weights: Float[Array, " n"] | None = None,
    directions: Float[Array, "d k"] | None = None,
    shift: Float[Array, " d"] | float = 0.0,
) -> SecondOrder:
    """Sums over records, in one pass; third derivatives along `directions` where these are given.

    `shift` moves all of the belief.
    """
    thetas = jax.vmap(gaussian.colour)(nodes.points) + shift

    def part(weighted):
        evidence, weights = weighted

        def total(theta):
            each = log_likelihood(theta, evidence)
            return weighted_sum(each, weights), each

        def first_order(theta):
            (_, each), gradient = jax.value_and_grad(total, has_aux=True)(theta)
            return gradient, (each, gradient)

        second, (each, gradients) = jax.vmap(jax.jacfwd(first_order, has_aux=True))(thetas)
        # Each record is centred before it is summed: float32 keeps the digits in which nodes differ.
        mean = each.mean(0)
        value = weighted_sum(mean, weights) + nodes.weights @ weighted_sum((each - mean).T, weights)
        third = None
        if directions is not None:
            third = _stein(second, gaussian, directions, nodes)
        curvature = -jnp.tensordot(nodes.weights, second, 1)
        return SecondOrder(value, nodes.weights @ gradients, curvature, third)

    return _summed(part, evidence, weights, nodes.count * gaussian.dim, gaussian.dtype)


def site_and_derivatives(
    log_likelihood: LogLikelihood,
    gaussian: AbstractGaussian,
    directions: Float[Array, "d k"],
    evidence: Any,
    nodes: Nodes,
    weights: Float[Array, " n"] | None,
    order: int,
) -> tuple[GaussianNatural, Derivatives]:
    """Natural gradient and higher derivatives, summed over records.

    Fourth derivatives are central differences of third ones, along directions of which each is about a
    standard deviation long.
    """
    arguments = (log_likelihood, gaussian, evidence, nodes, weights)
    if nodes.count == 1:
        # The mean alone: there is nothing to average, and Stein's lemma says nothing.
        return second_order(*arguments).site(gaussian), _at_the_mean(*arguments, directions, order)
    if order == 3:
        found = second_order(*arguments, directions)
        assert found.third is not None
        return found.site(gaussian), Derivatives(_symmetric_third(found.third))
    length = float(jnp.finfo(gaussian.dtype).eps) ** 0.25
    shifts = length * jnp.concatenate([0 * directions[:, :1], directions, -directions], 1).T
    each = jax.lax.map(lambda shift: second_order(*arguments, directions, shift), shifts)
    along = directions.shape[1]
    ahead, behind = (
        jax.tree.map(lambda leaf, start=start: leaf[start : start + along], each) for start in (1, 1 + along)
    )
    second, third = ((one - other) / (2 * length) for one, other in zip(ahead[2:], behind[2:], strict=True))
    third_of = -jnp.einsum("cde,da,eb->abc", second, directions, directions)[Half(along).indices]
    at_centre = jax.tree.map(lambda leaf: leaf[0], each)
    return at_centre.site(gaussian), Derivatives(third_of, _symmetric_fourth(third))


def influence(
    log_likelihood: LogLikelihood, gaussian: AbstractGaussian, evidence: Any, nodes: Nodes
) -> Float[Array, " n"]:
    """tr(Σ s_i) of every record's own precision s_i: second derivatives along the columns of the factor."""
    thetas = jax.vmap(gaussian.colour)(nodes.points)

    def along(column):
        return nodes.weights @ _along(log_likelihood, thetas, evidence, column, column)[1]

    return -jax.lax.map(along, gaussian.to_full().scale_tril.T).sum(0)


def site_changes(
    log_likelihood: LogLikelihood,
    before: AbstractGaussian,
    after: AbstractGaussian,
    evidence: Any,
    nodes: Nodes,
) -> Float[Array, " n"]:
    """As `AbstractModel.site_changes`, from derivatives of all records at once along pairs of directions.

    With many parameters, along so many random pairs: their mean square is the same.
    """
    root, dim = after.to_full().scale_tril, after.dim
    first, second, counts = (each.astype(after.dtype) for each in _pairs(dim))
    thetas = [jax.vmap(belief.colour)(nodes.points) for belief in (before, after)]
    # A pull is compared with what the site before says of it at the mean after.
    move = jnp.broadcast_to(after.mean - before.mean, (dim, dim))

    def along(directions):
        slopes, bends = _along(log_likelihood, jnp.concatenate(thetas), evidence, *directions)
        return [nodes.weights @ half for each in (slopes, bends) for half in jnp.split(each, 2)]

    directions = (jnp.concatenate([root.T, first @ root.T]), jnp.concatenate([move, second @ root.T]))
    old_slopes, slopes, old_bends, bends = jax.lax.map(along, directions)
    pulls = (slopes - old_slopes - old_bends)[:dim]
    return 0.5 * (pulls**2).sum(0) + 0.25 * counts @ (bends - old_bends)[dim:] ** 2


def _pairs(dim: int):
    """Directions z, in pairs, and how often the square of what is found along each pair counts."""
    half = Half(dim)
    if half.size <= LARGEST_PAIRS:
        identity = np.eye(dim)
        first, second = (identity[rows] for rows in half.indices)
        return first, second, np.where(half.is_diagonal, 1.0, 2.0)
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (2, LARGEST_PAIRS, dim))
    return *signs, np.full(LARGEST_PAIRS, 1 / LARGEST_PAIRS)


def _along(log_likelihood, thetas: Float[Array, "k d"], evidence, first, second):
    """First derivatives along one direction, and second ones along two, at every θ and record by record."""

    def at(theta):
        def slope(theta):
            return jax.jvp(lambda theta: log_likelihood(theta, evidence), (theta,), (first,))[1]

        return jax.jvp(slope, (theta,), (second,))

    return jax.vmap(at)(thetas)


def _summed(part, evidence, weights, elements: int, dtype) -> Any:
    """Sum of `part` over chunks of records, of equal size so that it is compiled once."""
    total = count(evidence)
    chunks = -(-total // max(CHUNK_ELEMENTS // elements, 1))
    if chunks == 1:
        return part((evidence, weights))
    size = -(-total // chunks)
    rows = np.minimum(np.arange(chunks * size), total - 1)
    weights = jnp.ones(total, dtype) if weights is None else jnp.asarray(weights)
    weights = jnp.where(np.arange(chunks * size) < total, weights[rows], 0)
    pieces = jax.tree.map(
        lambda leaf: leaf.reshape(chunks, size, *leaf.shape[1:]),
        (jax.tree.map(lambda leaf: jnp.asarray(leaf)[rows], evidence), weights),
    )
    return jax.tree.map(lambda leaf: leaf.sum(0), jax.lax.map(part, pieces))


def _stein(
    second: Float[Array, "n d d"], gaussian: AbstractGaussian, directions: Float[Array, "d k"], nodes: Nodes
) -> Float[Array, "h k"]:
    """E_q[∇³ log p] along directions, pairs by directions."""
    pairs = jnp.einsum("nde,da,eb->nab", second, directions, directions, optimize=True)
    pairs = pairs[:, *Half(directions.shape[1]).indices]
    unit = jax.vmap(gaussian.whiten)(gaussian.mean + directions.T)
    return pairs.T @ (nodes.weights[:, None] * (nodes.points @ unit.T))


def _symmetric_third(third: Float[Array, "h k"]) -> Float[Array, "h k"]:
    """The mean over which of the three directions Stein's lemma was used for."""
    half = Half(third.shape[1])
    whole = third[half.place]
    return ((whole + whole.transpose(0, 2, 1) + whole.transpose(2, 1, 0)) / 3)[half.indices]


def _symmetric_fourth(third: Float[Array, "k h k"]) -> Float[Array, "h h"]:
    """The mean over which of the four directions Stein's lemma was used for, from changes of third ones."""
    half = Half(third.shape[2])
    whole = third[:, half.place]
    whole = sum((whole.swapaxes(axis, 3) for axis in range(3)), whole) / 4
    fourth = whole[half.indices][:, *half.indices]
    return 0.5 * (fourth + fourth.T)


def _at_the_mean(log_likelihood, gaussian, evidence, nodes, weights, directions, order) -> Derivatives:
    def log_density(theta):
        return weighted_sum(log_likelihood(theta, evidence), weights)

    return of_log_density(log_density, gaussian, directions, nodes, order)
