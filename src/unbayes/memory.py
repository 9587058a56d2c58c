"""What training keeps, on request, so that unlearning can tell how the remaining records answer."""

import dataclasses
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unbayes.ascent import Bound
from unbayes.models import AbstractModel
from unbayes.posteriors import (
    AbstractGaussian,
    AbstractPosterior,
    AutoregressiveFlow,
    DiagonalGaussian,
    GaussianNatural,
    matched_gaussian,
)
from unbayes.records import accumulate, count, padded

# Part of the draws of a coreset that goes to records by their influence; the rest to all records alike.
INFLUENCE_SHARE = 0.5
# Nodes, where quadrature is not possible: influence only says which records to draw more often.
INFLUENCE_NODES = 64
CHUNK_ELEMENTS = 1 << 22


class Memory(eqx.Module):
    """What is known of the training set besides the posterior.

    Attributes
    ----------
    records
        Number of training records.
    stationarity
        KL, in nats, from the posterior to its own full natural-gradient step; None where not measured.
    curvature
        For a diagonal posterior, dense natural parameters of the Gaussian that it is nearest to: how the
        parameters depend on each other. None where not kept, or not needed.
    coreset
        Some of the training records, as `model.encode` returned them. These are data: they deserve the same
        protection as the training set, and are dropped when they are erased.
    weights
        How many training records each of them stands for, shape (k,).
    """

    records: int = eqx.field(static=True)
    stationarity: float | None = eqx.field(static=True, default=None)
    curvature: GaussianNatural | None = None
    coreset: Any = None
    weights: Float[Array, " k"] | None = None

    @property
    def size(self) -> int:
        """Number of records in the coreset."""
        return 0 if self.coreset is None else count(self.coreset)

    def matches(self, evidence: Any) -> Float[Array, " k"] | None:
        """How many of the records in `evidence` equal each record of the coreset; adds up over batches."""
        if self.coreset is None or self.weights is None:
            return None
        return _matches(self.coreset, *padded(evidence, self.weights.dtype))

    def disregarding(self, matches: Float[Array, " k"] | None) -> Self:
        """The same memory, with no weight on the records of the coreset that were erased."""
        if matches is None or self.weights is None:
            return self
        return dataclasses.replace(self, weights=jnp.where(matches > 0, 0, self.weights))

    def without(
        self, records: int, matches: Float[Array, " k"] | None, curvature: GaussianNatural | None = None
    ) -> Self:
        """Memory once `records` were erased: those of the coreset that match one are gone for good.

        `curvature` is that of the posterior which was recovered.
        """
        coreset, weights = self.coreset, self.weights
        if matches is not None:
            kept = np.asarray(matches) == 0
            coreset, weights = jax.tree.map(lambda leaf: leaf[kept], (coreset, weights))
        return type(self)(self.records - records, None, curvature, coreset, weights)

    def __str__(self) -> str:
        parts = [f"{self.records} training records"]
        parts += [f"a coreset of {self.size}"] if self.size else []
        parts += ["dense curvature"] if self.curvature is not None else []
        return "memory of " + ", ".join(parts)


def remember(
    posterior: AbstractPosterior,
    model: AbstractModel,
    evidence: Any,
    size: int | None,
    stationarity: float | None,
    *,
    key: PRNGKeyArray,
) -> Memory:
    """Keep `size` records, and the dense curvature for a diagonal posterior; neither where `size` is None."""
    records = count(evidence)
    if size is None:
        return Memory(records, stationarity)
    if not isinstance(posterior, AbstractGaussian | AutoregressiveFlow) or not model.has_dense_sites:
        raise ValueError(
            f"memory must be left out: it serves Gaussians and autoregressive flows, of models with "
            f"affordable "
            f"dense sites, got {type(posterior).__name__} of {posterior.dim} parameters"
        )
    if not isinstance(posterior, AbstractGaussian):
        posterior = matched_gaussian(posterior, key)
    nodes = model.nodes()
    curvature = None
    if isinstance(posterior, DiagonalGaussian):
        curvature = _full_step(posterior, model, evidence, nodes)
    if size == 0:
        return Memory(records, stationarity, curvature)
    rough = model.nodes(INFLUENCE_NODES)
    influence = _influence(posterior, model, padded(evidence, model.dtype)[0], rough)
    rows, weights = draw_coreset(np.asarray(influence)[:records], size, key)
    coreset = jax.tree.map(lambda leaf: jnp.asarray(leaf[rows]), evidence)
    return Memory(records, stationarity, curvature, coreset, jnp.asarray(weights, model.dtype))


def draw_coreset(
    influence: Float[np.ndarray, " n"], size: int, key: PRNGKeyArray
) -> tuple[np.ndarray, np.ndarray]:
    """Draw about `size` different records, the influential ones more often.

    Returns
    -------
    rows
        Which records.
    weights
        One over the probability with which each was to be drawn: weighted sums over the coreset have the sums
        over all records as their mean.
    """
    total = len(influence)
    if size >= total:
        return np.arange(total), np.ones(total)
    influence = np.abs(influence) + np.finfo(influence.dtype).tiny
    share = INFLUENCE_SHARE * influence / influence.sum() + (1 - INFLUENCE_SHARE) / total
    probability = np.minimum(1, size * share)
    for _ in range(100):
        certain = probability >= 1
        spare = (size - certain.sum()) / share[~certain].sum()
        again = np.where(certain, 1, np.minimum(1, spare * share))
        if (again >= 1).sum() == certain.sum():
            break
        probability = again
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    order = rng.permutation(total)
    # Systematic: equal strides over the cumulated probabilities hit no record twice.
    strides = np.floor(np.cumsum(probability[order]) + rng.random())
    rows = np.sort(order[np.diff(strides, prepend=0) > 0])
    return rows, 1 / probability[rows]


def draw_rows(evidence: Any, size: int, key: PRNGKeyArray, dtype: jnp.dtype) -> tuple[Any, np.ndarray]:
    """At most `size` records, drawn alike, and how many each stands for."""
    total = count(evidence)
    if total <= size:
        return evidence, np.ones(total, dtype)
    rows = np.random.default_rng(np.asarray(jax.random.key_data(key))).choice(total, size, replace=False)
    drawn = jax.tree.map(lambda leaf: np.asarray(leaf)[rows], evidence)
    return drawn, np.full(size, total / size, dtype)


@eqx.filter_jit
def _full_step(posterior: AbstractGaussian, model: AbstractModel, evidence, nodes) -> GaussianNatural:
    return Bound(model, evidence, nodes).target(posterior)


@eqx.filter_jit
def _influence(posterior: AbstractGaussian, model: AbstractModel, evidence, nodes):
    return model.influence(posterior, evidence, nodes)


@eqx.filter_jit
def _matches(coreset, evidence, weights):
    """Rows that agree to half the digits, as features of the same record do whatever batch it came in."""
    kept = _as_rows(coreset)
    eps = jnp.finfo(kept.dtype).eps
    centre = kept.mean(0)
    kept = kept - centre

    def part(weighted):
        evidence, weights = weighted
        rows = _as_rows(evidence) - centre
        squares = (rows**2).sum(1)[:, None] + (kept**2).sum(1)
        distance = squares - 2 * rows @ kept.T
        return weights @ (distance <= 100 * eps * squares).astype(kept.dtype)

    return accumulate(part, (evidence, weights), max(CHUNK_ELEMENTS // kept.shape[0], 1))


def _as_rows(evidence) -> Float[Array, "n m"]:
    leaves = jax.tree.leaves(evidence)
    floats = [leaf.dtype for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)]
    dtype = floats[0] if floats else jnp.result_type(float)
    return jnp.concatenate([leaf.reshape(len(leaf), -1).astype(dtype) for leaf in leaves], axis=1)
