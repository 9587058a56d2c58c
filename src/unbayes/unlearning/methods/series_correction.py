"""The correction by sums: how the remaining records answer, of which not one is kept.

One step keeps the sites of the remaining records as they were at q(θ|D). Sums of their third and fourth
derivatives tell how these sites change, see `unbayes.inference.series`. What the sums of all training records
tell, less those of the erased ones, is added to one step, and the ELBO of that is ascended by guarded steps
from where one step ends. A coreset beside the sums supplies what is beyond their order.

A series need not converge. It is summed several ways, which agree to its order, from the plain one to more
and more damped ones; the first that settles, and of which the next one makes little difference, is taken.
Where none is, the same is tried without the term of fourth order. The term after the last, of fifth order
along the leading directions, tells how far off it is.
"""

import itertools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unbayes._numerics.programs import compiled
from unbayes._numerics.quadrature import Nodes
from unbayes._numerics.records import padded
from unbayes.inference.ascent import AscentState, Bound, ascend, attainable
from unbayes.inference.series import Series, SeriesModel
from unbayes.memory.sums import KeptSums
from unbayes.models import AbstractModel
from unbayes.posteriors import AbstractGaussian, GaussianNatural, gaussian_kl
from unbayes.trust.limits import LARGEST_NEXT_TERM
from unbayes.unlearning.methods.step import Step

# Passes cost next to nothing here.
PASSES, TOLERANCE = 300, 1e-13
# How strongly the change of the width is damped, from the plain series on: of E[σ′(f)], whose variance grows,
# the next term is met by γ between 0 and ¾.
DAMPINGS = (0.0, 0.1, 0.25, 0.5, 1.0)
# What may be left of the way to the fixed point, as a share of the correction, where an ascent has settled.
LARGEST_REST = 1e-3


class Answer(NamedTuple):
    """What sums say of the remaining records.

    Attributes
    ----------
    posterior
        The belief that takes their answer into account; that of one step where no sum is to be believed.
    natural
        Its natural parameters, dense also where it is diagonal.
    order
        Of the sums; 1 where none is to be believed.
    change
        KL, in nats, from the belief to the trained one.
    second_term
        KL, in nats, from the belief to that of one step; zero where no sum is to be believed.
    next_term
        KL, in nats, that the term after the last would make; None where it is not known.
    knows_next_term
        Whether that is known along all directions of the sums, not only along the leading ones.
    disagreement
        KL, in nats, to the belief that the next more damped sum gives.
    damping
        How strongly the change of the width was damped.
    """

    posterior: AbstractGaussian
    natural: GaussianNatural
    order: int
    change: float
    second_term: float
    next_term: float | None = None
    disagreement: float | None = None
    damping: float | None = None
    knows_next_term: bool = True


def series_correction(
    posterior: AbstractGaussian,
    model: AbstractModel,
    step: Step,
    sums: KeptSums,
    coreset: tuple[Any, Float[np.ndarray, " k"]] | None,
    nodes: Nodes,
) -> Answer:
    """Correct one step by how the remaining records change their pull, where a sum is to be believed.

    Parameters
    ----------
    posterior
        q(θ|D).
    step
        One step, with its natural parameters η − Σ_{D_e} s_i(q) dense.
    sums
        Over the remaining records.
    coreset
        Some of the remaining records, as evidence, and how many each stands for; None for none.
    """
    evidence = weights = None
    if coreset is not None:
        evidence, present = padded(coreset[0], coreset[1].dtype)
        weights = np.pad(coreset[1], (0, len(present) - len(coreset[1])))
        sums = _beyond(posterior, model, sums, evidence, weights, nodes)
    first = float(step.info.change)
    for order in range(sums.derivatives.order, 2, -1):
        ways = (
            _sum(posterior, model, step, sums, damping, order, evidence, weights, nodes)
            for damping in jnp.asarray(DAMPINGS, posterior.dtype)
        )
        for way, other in itertools.pairwise(ways):
            answer = _compare(way, other, order)
            if _is_believed(answer, way, other, first):
                fifth = sums.derivatives.fifth
                is_partial = order > 3 and fifth is not None and fifth.shape[2] < sums.derivatives.directions
                return answer._replace(knows_next_term=not is_partial)
    return Answer(step.posterior, step.natural, 1, first, 0.0)


class _Way(NamedTuple):
    """One way to sum the series, where its ascent ended, and how far that is from the beliefs before."""

    end: AscentState
    change: Float[Array, ""]
    second_term: Float[Array, ""]
    next_term: Float[Array, ""] | None
    damping: Float[Array, ""]

    @property
    def is_settled(self) -> bool:
        """Whether the ascent came to its fixed point."""
        rest, correction = float(self.end.stationarity), float(self.second_term)
        return math.isfinite(correction) and rest <= LARGEST_REST * correction + attainable(
            TOLERANCE, self.end.gaussian.dtype
        )


@compiled
def _sum(
    posterior, model: AbstractModel, step: Step, sums: KeptSums, damping, order: int, evidence, weights, nodes
) -> _Way:
    series = Series(posterior.mean, sums.projection(posterior), sums.derivatives, damping, order)
    base = step.natural
    if evidence is not None:
        base = base - model.site(posterior.to_full(), evidence, nodes, weights)
    bound = Bound(SeriesModel(model, series), evidence, nodes, weights, base)
    end = ascend(bound, step.posterior, PASSES, TOLERANCE)
    found = end.gaussian
    return _Way(
        end._replace(trace=end.trace[:0]),
        gaussian_kl(found, posterior),
        gaussian_kl(found, step.posterior),
        series.next_term(found, end.target),
        damping,
    )


@compiled
def _beyond(posterior, model: AbstractModel, sums: KeptSums, evidence, weights, nodes) -> KeptSums:
    """The sums less those of a coreset that is there itself."""
    return sums.without(sums.of(posterior, model, evidence, nodes, weights))


kl = compiled(gaussian_kl)


def _compare(way: _Way, other: _Way, order: int) -> Answer:
    numbers = (way.change, way.second_term, way.damping, kl(other.end.gaussian, way.end.gaussian))
    change, second_term, damping, disagreement = map(float, jax.device_get(numbers))
    next_term = None if way.next_term is None else float(way.next_term)
    if next_term is not None and not math.isfinite(next_term):
        # Nothing holds the belief in some direction: it may be off by as much as it was corrected.
        next_term = second_term
    found = way.end
    return Answer(found.gaussian, found.target, order, change, second_term, next_term, disagreement, damping)


def _is_believed(answer: Answer, way: _Way, other: _Way, step: float) -> bool:
    """Whether a sum settles at a correction that is smaller than the step, and known to a part of itself."""
    if not way.is_settled or answer.second_term > step:
        return False
    if answer.next_term is not None and answer.next_term > LARGEST_NEXT_TERM * step:
        return False
    limit = LARGEST_NEXT_TERM * answer.second_term
    converges = answer.next_term is not None and answer.next_term <= limit
    agrees = answer.disagreement is not None and answer.disagreement <= limit
    return converges or (other.is_settled and agrees)
