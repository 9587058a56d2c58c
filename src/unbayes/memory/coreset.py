"""Drawing some of the training records."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from unbayes._numerics.records import count

# Part of the draws of a coreset that goes to records by their influence; the rest to all records alike.
INFLUENCE_SHARE = 0.5


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
