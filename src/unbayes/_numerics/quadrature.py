"""Nodes for expectations under a standard normal."""

import functools
import math

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

GAUSS_HERMITE_NODES = 40
# Per axis of a grid in two dimensions, at most; in more, a grid that is fine enough has too many of them.
GRID_NODES = 20
# Weight below which a node of a grid is left out; together they weigh less than a millionth.
NEGLIGIBLE_WEIGHT = 1e-8
# Quasi-random nodes in more dimensions. Training and unlearning take as many, hence the very same ones:
# where data say little, a posterior is stationary for the nodes that it was trained with and no others.
QUASI_RANDOM_NODES = 256


class Nodes(eqx.Module):
    """Points z and weights w with E[g(z)] ≈ Σ w g(z), for z ~ N(0, I) unless said otherwise.

    Attributes
    ----------
    points
        Shape (k, dim).
    weights
        Shape (k,), summing to one under a distribution.
    """

    points: Float[Array, "k dim"]
    weights: Float[Array, " k"]

    def __init__(self, points, weights):
        # NumPy's arrays too: compiled functions take them as they are, and outside of them they cost nothing.
        self.points, self.weights = points, weights

    @property
    def count(self) -> int:
        """Number k of nodes; a single one is the mean alone."""
        return len(self.weights)


def safe_sqrt(variance: Float[Array, "..."]) -> Float[Array, "..."]:
    """√variance with derivative zero at zero, where that of the square root would turn gradients into NaN."""
    zero = variance == 0
    return jnp.where(zero, 0, jnp.sqrt(jnp.where(zero, 1, variance)))


def gauss_hermite(dtype: jnp.dtype, count: int = GAUSS_HERMITE_NODES) -> Nodes:
    """One-dimensional nodes, exact for polynomials up to degree 2·count − 1."""
    points, weights = _hermite(count)
    return Nodes(points[:, None].astype(dtype), weights.astype(dtype))


@functools.lru_cache
def _hermite(count: int) -> tuple[Float[np.ndarray, " count"], Float[np.ndarray, " count"]]:
    points, weights = np.polynomial.hermite_e.hermegauss(count)
    return points, weights / weights.sum()


def gauss_laguerre(dtype: jnp.dtype, count: int = 32) -> Nodes:
    """Nodes on the half-line: Σ w g(x) ≈ ∫₀^∞ g(x) dx for g that falls off like e⁻ˣ."""
    points, weights = np.polynomial.laguerre.laggauss(count)
    return Nodes(points[:, None].astype(dtype), (weights * np.exp(points)).astype(dtype))


def trapezoid(dtype: jnp.dtype, count: int = 129, reach: float = 8.5) -> Nodes:
    """One-dimensional nodes at equal distances, for integrands that Gauss–Hermite nodes would step over.

    The error falls off exponentially for a smooth integrand, once the nodes are closer than its features.
    """
    points = np.linspace(-reach, reach, count)
    weights = np.exp(-0.5 * points**2)
    return Nodes(points[:, None].astype(dtype), (weights / weights.sum()).astype(dtype))


def centre_node(dim: int, dtype: jnp.dtype) -> Nodes:
    """The mean alone: expectations become values at it, and natural gradients Newton steps."""
    return Nodes(np.zeros((1, dim), dtype), np.ones(1, dtype))


def random_nodes(key: PRNGKeyArray, dim: int, dtype: jnp.dtype, count: int) -> Nodes:
    """Random draws in antithetic pairs, whitened so that second moments are exact.

    Exact means: linear and quadratic functions are integrated without Monte-Carlo error, wherever there are
    at least as many pairs as dimensions.
    """
    return _paired(jr.normal(key, (max(count // 2, 1), dim), dtype))


def quasi_random_nodes(dim: int, dtype: jnp.dtype, count: int) -> Nodes:
    """As `random_nodes`, from Sobol's sequence: the same whenever they are asked for, and more even."""
    points = _quasi_random(dim, max(count // 2, 1)).astype(dtype)
    return Nodes(points, np.full(len(points), 1 / len(points), dtype))


@functools.lru_cache
def _quasi_random(dim: int, pairs: int) -> Float[np.ndarray, "k dim"]:
    # By NumPy: it is always the same, and costs a compiled function nothing.
    half = _quasi_normal(dim, pairs)
    if pairs >= dim:
        half = half @ np.linalg.inv(np.linalg.cholesky(half.T @ half / pairs)).T
    return np.concatenate([half, -half])


@functools.lru_cache
def _quasi_normal(dim: int, count: int) -> Float[np.ndarray, "count dim"]:
    if dim > count:
        # Too few to be even in so many dimensions.
        return np.random.default_rng(0).standard_normal((count, dim))
    # Imported here: scipy.stats takes longer to import than JAX.
    from scipy.special import ndtri
    from scipy.stats import qmc

    sequence = qmc.Sobol(dim, rng=np.random.default_rng(0))
    return ndtri(sequence.random_base2(math.ceil(math.log2(count)))[:count])


def _paired(half: Float[Array, "k dim"]) -> Nodes:
    count, dim = half.shape
    if count >= dim:
        half = half @ jnp.linalg.inv(jnp.linalg.cholesky(half.T @ half / count)).T
    points = jnp.concatenate([half, -half])
    return Nodes(points, jnp.full(2 * count, 0.5 / count, half.dtype))


def grid_nodes(dim: int, dtype: jnp.dtype, count: int) -> Nodes:
    """Product of one-dimensional Gauss–Hermite nodes, `count` along each axis, without its corners.

    What is left is spread out so that second moments are exact.
    """
    points, weights = _grid(dim, count)
    return Nodes(points.astype(dtype), weights.astype(dtype))


@functools.lru_cache
def _grid(dim: int, count: int) -> tuple[Float[np.ndarray, "k dim"], Float[np.ndarray, " k"]]:
    points, weights = _hermite(count)
    axes = np.stack(np.meshgrid(*[points] * dim), -1).reshape(-1, dim)
    product = np.prod(np.meshgrid(*[weights] * dim), axis=0).ravel()
    matters = product >= NEGLIGIBLE_WEIGHT
    axes, product = axes[matters], product[matters] / product[matters].sum()
    return axes / np.sqrt(product @ axes**2), product


def is_sampled(dim: int) -> bool:
    """Whether expectations over so many dimensions are averages, good to a few digits only."""
    return dim > 2


def standard_normal_nodes(dim: int, dtype: jnp.dtype, count: int = QUASI_RANDOM_NODES) -> Nodes:
    """Gauss–Hermite nodes in one or two dimensions, quasi-random ones in more; always the same.

    `count` bounds their number in two dimensions, and is it in more; too few of them are the mean alone.
    """
    if dim == 1:
        return gauss_hermite(dtype)
    if count < (4 if dim == 2 else 2):
        return centre_node(dim, dtype)
    if dim == 2:
        return grid_nodes(dim, dtype, min(GRID_NODES, math.isqrt(count)))
    return quasi_random_nodes(dim, dtype, count)
