"""What training keeps, on request, so that unlearning can tell how the remaining records answer."""

import dataclasses
from typing import Any, ClassVar, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unbayes._numerics.fingerprint import fingerprint
from unbayes._numerics.records import count, padded
from unbayes._storable import Storable
from unbayes._validation import require_positive
from unbayes.inference.ascent import Bound
from unbayes.memory.coreset import count_matches, draw_coreset, draw_rows
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
# Erased records, at most, that stand in for the remaining ones.
LARGEST_STAND_IN = 500


class Memory(Storable):
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
    lineage
        Fingerprint of the memory as training made it; what is left of it after erasures keeps it.
    is_stand_in
        Whether the coreset holds erased records that stand in for the remaining ones.
    """

    later_fields: ClassVar[dict[str, Any]] = {"lineage": "", "is_stand_in": False}

    records: int = eqx.field(static=True)
    stationarity: float | None = eqx.field(static=True, default=None)
    curvature: GaussianNatural | None = None
    coreset: Any = None
    weights: Float[Array, " k"] | None = None
    lineage: str = eqx.field(static=True, default="")
    is_stand_in: bool = eqx.field(static=True, default=False)

    def with_sample(self, model: AbstractModel, erased: Any, *, key: PRNGKeyArray) -> Self:
        """The memory with the erased records as its coreset, where these are a random sample of all records.

        Use it for one erasure of exactly these records; what a result hands on holds none of them.

        Parameters
        ----------
        model
            Prior and likelihood.
        erased
            The records D_e, as `model.encode` takes them.
        key
            Key of the draw, where there are more than 500.
        """
        evidence = model.encode(erased, "erased")
        if count(evidence) > self.records:
            raise ValueError(
                f"erased must be among the {self.records} training records, got {count(evidence)}"
            )
        coreset, counts = draw_rows(evidence, LARGEST_STAND_IN, key, model.dtype)
        weights = jnp.asarray(counts * (self.records - count(evidence)) / count(evidence), model.dtype)
        return dataclasses.replace(self, coreset=coreset, weights=weights, lineage="", is_stand_in=True)

    def require_valid(self) -> None:
        """Refuse numbers below zero, and a coreset whose arrays or weights differ in length."""
        require_positive("records", self.records, or_zero=True)
        if self.stationarity is not None:
            require_positive("stationarity", self.stationarity, or_zero=True)
        if (self.coreset is None) != (self.weights is None):
            raise ValueError("weights must be given for a coreset, and for a coreset alone")
        if self.weights is None:
            return
        require_positive("weights", self.weights, or_zero=True)
        leaves = jax.tree.leaves(self.coreset)
        lengths = sorted({np.shape(leaf)[:1] for leaf in leaves})
        if lengths != [self.weights.shape]:
            found = ", ".join(str(length[0]) if length else "none" for length in lengths)
            raise ValueError(f"coreset must hold {len(self.weights)} records, as weights does, got {found}")

    @property
    def size(self) -> int:
        """Number of records in the coreset."""
        return 0 if self.coreset is None else count(self.coreset)

    @property
    def origin(self) -> str:
        """The lineage or, where training gave none, a fingerprint of what is here."""
        return self.lineage or fingerprint(self)

    def matches(self, evidence: Any) -> Float[Array, " k"] | None:
        """How many of the records in `evidence` equal each record of the coreset; adds up over batches."""
        if self.coreset is None or self.weights is None or self.is_stand_in:
            return None
        return count_matches(self.coreset, *padded(evidence, self.weights.dtype))

    def remaining_coreset(
        self, matches: Float[Array, " k"] | None
    ) -> tuple[Any, Float[np.ndarray, " k"]] | None:
        """The coreset, and its weights with zero for what was erased; None where nothing remains of it."""
        if self.coreset is None or self.weights is None:
            return None
        weights = np.asarray(self.weights)
        weights = weights if matches is None else np.where(np.asarray(matches) > 0, 0, weights)
        return (self.coreset, weights) if (weights > 0).any() else None

    def without(
        self, records: int, matches: Float[Array, " k"] | None, curvature: GaussianNatural | None = None
    ) -> Self:
        """Memory once `records` were erased: those of the coreset that match one are gone for good.

        `curvature` is that of the posterior which was recovered.
        """
        coreset, weights = self.coreset, self.weights
        if self.is_stand_in:
            coreset, weights = None, None
        elif matches is not None:
            kept = np.asarray(matches) == 0
            coreset, weights = jax.tree.map(lambda leaf: np.asarray(leaf)[kept], (coreset, weights))
        return type(self)(self.records - records, None, curvature, coreset, weights)

    def blanked(self, matches: Float[Array, " k"] | None) -> Self:
        """Memory with its erased records overwritten by zeros, in the same shape.

        It serves further requests to the same trained posterior, and nothing compiles anew.
        """
        if matches is None or self.weights is None:
            return self
        gone = np.asarray(matches) > 0

        def overwrite(leaf):
            rows = np.array(leaf)
            rows[gone] = 0
            return jnp.asarray(rows)

        coreset, weights = jax.tree.map(overwrite, (self.coreset, self.weights))
        return dataclasses.replace(self, coreset=coreset, weights=weights, lineage=self.origin)

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
    if not isinstance(posterior, AbstractGaussian | AbstractFlow) or not model.has_dense_sites:
        raise ValueError(
            "memory must be left out: it serves Gaussians and autoregressive flows, of models with "
            f"affordable dense sites, got {type(posterior).__name__} of {posterior.dim} parameters"
        )
    if not isinstance(posterior, AbstractGaussian):
        posterior = matched_gaussian(posterior, key)
    nodes = model.nodes()
    curvature = None
    if isinstance(posterior, DiagonalGaussian):
        curvature = _full_step(posterior, model, evidence, nodes)
    coreset, weights = None, None
    if size > 0:
        rough = model.nodes(INFLUENCE_NODES)
        influence = _influence(posterior, model, padded(evidence, model.dtype)[0], rough)
        rows, drawn = draw_coreset(np.asarray(influence)[:records], size, key)
        coreset = jax.tree.map(lambda leaf: jnp.asarray(leaf[rows]), evidence)
        weights = jnp.asarray(drawn, model.dtype)
    kept = Memory(records, stationarity, curvature, coreset, weights)
    return dataclasses.replace(kept, lineage=fingerprint(kept))


@eqx.filter_jit
def _full_step(posterior: AbstractGaussian, model: AbstractModel, evidence, nodes) -> GaussianNatural:
    return Bound(model, evidence, nodes).target(posterior)


@eqx.filter_jit
def _influence(posterior: AbstractGaussian, model: AbstractModel, evidence, nodes):
    return model.influence(posterior, evidence, nodes)
