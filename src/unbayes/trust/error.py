"""How far a result is from retraining, predicted from what was measured of it.

Where the remaining records can answer, the term after the last one that was used tells the error, as embedded
orders do in a solver of differential equations: with sums the next term of the series, with a coreset what
another draw of it would change. One step without a memory is judged by how far it changed the pull of the
erased records themselves, if the remaining ones are like them.
"""

import dataclasses
import enum
from typing import NamedTuple

from unbayes.trust.limits import (
    ANSWER_GROWTH,
    CORESET_RANGE,
    DIVERGING_RANGE,
    HELD_BACK_RANGE,
    LARGEST_NEXT_TERM,
    SAMPLING_RANGE,
    SETTLED_NEXT_TERM,
    STEP_RANGE,
    STEP_SHARE,
    SUMS_RANGE,
    TERM_DECAY,
    UNCERTAINTY_SCALE,
    UNSUMMED_RANGE,
    Range,
)
from unbayes.trust.measures import Measures


class Source(enum.StrEnum):
    """What a prediction rests on."""

    EXACT = "the method, which is exact"
    SUMS = "the next term of the memory's sums"
    UNSUMMED = "the memory's sums, which do not settle"
    CORESET = "the memory's records"
    STEP = "the erased records themselves"
    HELD_BACK = "the change, of which the step took a part"
    SAMPLING = "the finite number of draws"
    COMPARISON = "the distance to one natural-gradient step"
    TRAINING = "what training had left undone"


@dataclasses.dataclass(frozen=True)
class PredictedError:
    """Predicted distance of a result from retraining.

    Attributes
    ----------
    nats
        KL[retrained‖unlearned] over θ.
    low, high
        A range that holds the true one in nine of ten scenarios of `benchmarks/trust.py`.
    nothing
        What doing nothing would leave: KL[retrained‖trained] over θ.
    predictive
        Mean KL between predictive distributions at the erased inputs; None where it cannot be told.
    source
        What the prediction rests on.
    """

    nats: float
    low: float
    high: float
    nothing: float
    predictive: float | None
    source: Source

    def __str__(self) -> str:
        return f"{self.nats:.2g} nats ({self.low:.2g} to {self.high:.2g}) by {self.source}"


class _Estimate(NamedTuple):
    nats: float
    range: Range
    source: Source


def predict(measures: Measures) -> PredictedError | None:
    """The prediction; None where nothing that was measured allows one."""
    found = _estimate(measures)
    if found is None:
        return None
    # What training had left undone is still undone.
    undone = measures.stationarity or 0.0
    nats = found.nats + undone
    return PredictedError(
        nats=nats,
        low=found.range.low * nats,
        high=found.range.high * nats,
        nothing=(measures.change if measures.step_change is None else measures.step_change) or 0.0,
        predictive=_predictive(nats, measures),
        source=Source.TRAINING if undone > found.nats else found.source,
    )


def _estimate(measures: Measures) -> _Estimate | None:
    if measures.is_exact:
        return _Estimate(0.0, Range(0.0, 1.0), Source.EXACT)
    if measures.change is None:
        return None
    if measures.distance_to_step is not None:
        return _compared(measures, measures.distance_to_step)
    if measures.share_removed is None:
        return None
    if measures.keeps_width:
        return _Estimate(measures.change, HELD_BACK_RANGE, Source.HELD_BACK)
    if measures.order is not None:
        return _summed(measures, measures.order)
    if measures.uncertainty is not None:
        nats = UNCERTAINTY_SCALE * measures.inflation**0.5 * measures.uncertainty
        return _Estimate(nats, CORESET_RANGE, Source.CORESET)
    return _stepped(measures)


def _summed(measures: Measures, order: int) -> _Estimate:
    """From the term of the series after the last, and what may lie along directions that were not summed.

    Terms that do not fall fast are followed by others. Where the remaining records hold the mean, each adds
    to the one before; where the prior does, which does not answer, they cancel each other in part.
    """
    # By rounding, distances may come out below zero, and shares above one.
    second, next_term = max(measures.second_term or 0.0, 0.0), measures.next_term
    if order == 1:
        return _Estimate(_most(measures), UNSUMMED_RANGE, Source.UNSUMMED)
    disagreement = max(measures.disagreement or 0.0, 0.0)
    if next_term is None:
        # Between how far another sum is, which agrees by chance too, and all that the sum did.
        next_term = (disagreement * second) ** 0.5
    elif not measures.knows_next_term:
        next_term = max(next_term, disagreement)
    nats = next_term + max(1 - (measures.summed_share or 1.0), 0.0) ** 0.5 * second
    if order > 3 and nats > SETTLED_NEXT_TERM * second > 0:
        nats *= (nats / (SETTLED_NEXT_TERM * second)) ** (ANSWER_GROWTH * measures.answering - TERM_DECAY)
    converges = next_term <= LARGEST_NEXT_TERM * second
    return _Estimate(nats, SUMS_RANGE if converges else DIVERGING_RANGE, Source.SUMS)


def _stepped(measures: Measures) -> _Estimate:
    """From how far one step changed the pull of the erased records, if the remaining ones are like them.

    These change theirs by as much per unit of precision. A step was not seen to miss much more than a share
    of itself, so the two are added as resistances in parallel are.
    """
    change = measures.change or 0.0
    if not measures.knows_curvature:
        return _Estimate(change / (measures.step or 1.0), HELD_BACK_RANGE, Source.HELD_BACK)
    most = _most(measures)
    own, all_of_it = measures.erased_evidence, measures.evidence
    if measures.second_term is None or not own or all_of_it is None:
        return _Estimate(most, STEP_RANGE, Source.STEP)
    likewise = measures.second_term * (max(all_of_it - own, 0.0) / own) ** 2
    nats = likewise * most / (likewise + most) if likewise > 0 and most > 0 else 0.0
    return _Estimate(nats, STEP_RANGE, Source.STEP)


def _most(measures: Measures) -> float:
    """The share of a step that it was seen to miss where it misses most; the prior does not answer."""
    return STEP_SHARE * measures.answering * (measures.change or 0.0)


def _compared(measures: Measures, distance: float) -> _Estimate:
    """From the distance to one natural-gradient step and its own error, or from the sampling error."""
    if measures.sampling_error is not None and measures.sampling_error > distance:
        return _Estimate(measures.sampling_error, SAMPLING_RANGE, Source.SAMPLING)
    return _Estimate(
        distance + STEP_SHARE * measures.answering * (measures.step_change or 0.0),
        STEP_RANGE,
        Source.COMPARISON,
    )


def _predictive(nats: float, measures: Measures) -> float | None:
    """Mean predictive KL at the erased inputs, if the error lies in no special direction of θ.

    A displacement δ of the mean changes predictions of the erased records by ½ δᵀ P δ nats in all, P their
    precision. Over directions, E[δ δᵀ] = 2 nats/d Λ⁻¹, and tr(P Λ⁻¹) is their share of the evidence.
    """
    if measures.erased_evidence is None or not measures.records:
        return None
    return nats * max(measures.erased_evidence, 0.0) / (measures.dim * measures.records)
