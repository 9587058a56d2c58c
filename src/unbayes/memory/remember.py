"""Keeping what later unlearning can use, while the training records are at hand."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from unbayes._numerics.fingerprint import fingerprint
from unbayes._numerics.quadrature import QUASI_RANDOM_NODES
from unbayes._numerics.records import count, padded, take
from unbayes._validation import require_ids
from unbayes.inference.ascent import Bound
from unbayes.memory.coreset import draw_coreset
from unbayes.memory.kinds import Coreset, Keep, Sums, kinds_of
from unbayes.memory.marks import Marker, Marks, count_equal
from unbayes.memory.memory import Memory
from unbayes.memory.sums import keep_sums
from unbayes.models import AbstractModel
from unbayes.posteriors import (
    AbstractFlow,
    AbstractGaussian,
    AbstractPosterior,
    DiagonalGaussian,
    GaussianNatural,
    matched_gaussian,
)

# Nodes, where quadrature is not possible: influence only says which records to draw more often.
INFLUENCE_NODES = 64


def remember(
    posterior: AbstractPosterior,
    model: AbstractModel,
    records: Any,
    memory: Keep,
    stationarity: float | None,
    *,
    ids: Iterable[str] | None = None,
    roster: bool = True,
    key: PRNGKeyArray,
) -> Memory:
    """Keep what later unlearning can use, while the training records are still at hand.

    Parameters
    ----------
    posterior, model
        As trained.
    records
        All the training records D, as `model.encode` takes them.
    memory
        What to keep, as `fit` takes it; the dense curvature of a diagonal posterior comes with anything.
    stationarity
        Of the posterior, in nats.
    ids
        One identifier for each record, by which it will be erased; else records are known by their digits.
    roster
        Whether to keep marks of all training records. Without them it cannot be told whether a record was
        among them, or was erased before.
    key
        Key of the draw.
    """
    given = (posterior, model, records, model.encode(records), memory, stationarity)
    return keep(*given, ids=ids, roster=roster, key=key)


def keep(
    posterior: AbstractPosterior,
    model: AbstractModel,
    records: Any,
    evidence: Any,
    memory: Keep,
    stationarity: float | None,
    *,
    ids: Iterable[str] | None,
    roster: bool,
    deviance: float | None = None,
    key: PRNGKeyArray,
    nodes: int = QUASI_RANDOM_NODES,
) -> Memory:
    """As `remember`, of records that are encoded already."""
    named = require_ids(ids, count(evidence))
    kinds = kinds_of(memory)
    sums = next((kind for kind in kinds if isinstance(kind, Sums)), None)
    size = next((kind.size for kind in kinds if isinstance(kind, Coreset)), 0)
    # A KL of zero may be rounded to less.
    stationarity = None if stationarity is None else max(stationarity, 0.0)
    kept = Memory(count(evidence), stationarity, deviance=deviance).kept_for(posterior, model)
    if kinds:
        require_rememberable(posterior, model, sums)
    marks = None
    if roster or size:
        rows = None if named else model.rows(records)
        salt = fingerprint(posterior, key)
        marker = Marker(salt) if named else Marker.for_rows(rows, salt)
        marks = marker.mark(rows, named)
        kept = dataclasses.replace(kept, marker=marker, roster=marks.in_order() if roster else None)
    if kinds:
        gaussian = posterior if isinstance(posterior, AbstractGaussian) else matched_gaussian(posterior, key)
        points = model.nodes(nodes)
        if isinstance(gaussian, DiagonalGaussian):
            kept = dataclasses.replace(kept, curvature=_full_step(gaussian, model, evidence, points))
        if sums is not None:
            found = keep_sums(gaussian, model, *padded(evidence, model.dtype), sums, points)
            kept = dataclasses.replace(kept, sums=found)
        if size and marks is not None:
            kept = _with_coreset(kept, gaussian, model, evidence, size, marks, key)
    return dataclasses.replace(kept, lineage=fingerprint(kept))


def _with_coreset(
    memory: Memory, gaussian: AbstractGaussian, model: AbstractModel, evidence, size: int, marks: Marks, key
) -> Memory:
    # NumPy picks rows in a fraction of the time that JAX takes for them outside compiled code.
    filled, _ = padded(take(evidence, slice(None)), model.dtype)
    influence = np.asarray(_influence(gaussian, model, filled, model.nodes(INFLUENCE_NODES)))
    rows, weights = draw_coreset(influence[: memory.records], size, key)
    drawn = marks.at(rows)
    return dataclasses.replace(
        memory,
        coreset=take(evidence, rows),
        weights=jnp.asarray(weights, model.dtype),
        coreset_marks=drawn,
        copies=count_equal(marks.exact, drawn.exact),
    )


def require_rememberable(posterior: AbstractPosterior, model: AbstractModel, sums: Sums | None) -> None:
    """Refuse a posterior that what training keeps cannot serve."""
    if not isinstance(posterior, AbstractGaussian | AbstractFlow) or not model.has_dense_sites:
        raise ValueError(
            "memory must be left out: it serves Gaussians and autoregressive flows, of models with "
            f"affordable dense sites, got {type(posterior).__name__} of {posterior.dim} parameters"
        )
    if sums is not None and not isinstance(posterior, AbstractGaussian):
        raise ValueError(
            "memory must be a number of records, or left out: sums serve Gaussian posteriors, got "
            f"{type(posterior).__name__}"
        )


@eqx.filter_jit
def _full_step(posterior: AbstractGaussian, model: AbstractModel, evidence, nodes) -> GaussianNatural:
    return Bound(model, evidence, nodes).target(posterior)


@eqx.filter_jit
def _influence(posterior: AbstractGaussian, model: AbstractModel, evidence, nodes):
    return model.influence(posterior, evidence, nodes)
