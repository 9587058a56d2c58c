"""From measures to a verdict: each rule is a function of the measures and returns at most one doubt."""

import math

from unbayes.trust.error import PredictedError, Source, predict
from unbayes.trust.limits import (
    DOUBTED_ABSENCE,
    DOUBTED_EXCESS,
    DOUBTED_IMPROBABLE,
    DOUBTED_KHAT,
    DOUBTED_PROJECTION_LOSS,
    DOUBTED_SAMPLING_ERROR,
    DOUBTED_SHRINKAGE,
    DOUBTED_STATIONARITY,
    DOUBTED_STATIONARITY_ALONE,
    DOUBTED_UNLIKELIHOOD,
    LARGEST_SHIFT,
    LEAST_CHANCE,
    REFUSED_DEVIANCE,
    REFUSED_EXCESS,
    REFUSED_KHAT,
    REFUSED_SHARE,
    REFUSED_UNLIKELIHOOD,
    SMALL_BESIDE_NOTHING,
)
from unbayes.trust.measures import Measures
from unbayes.trust.verdict import Doubt, Trust, Verdict


def judge(measures: Measures) -> Trust:
    """The verdict on a result, from what was measured of it."""
    found = (rule(measures) for rule in RULES)
    return Trust(measures, tuple(doubt for doubt in found if doubt is not None))


def require_possible(measures: Measures, rounding: float) -> None:
    """Refuse records that the posterior cannot have been trained on, before any long work.

    At a stationary posterior the precision is the prior's plus that of every training record. Where none of
    them is negative, no part of the training data can exceed it in any direction.

    Parameters
    ----------
    measures
        Of which `evidence_left`, the deviances, `is_exact` and `is_sampled` matter.
    rounding
        Share of the evidence that may be missing where nothing but rounding is off.
    """
    left = measures.evidence_left
    own, most = measures.deviance, measures.training_deviance
    if own is not None and most is not None and own > (1 + REFUSED_DEVIANCE) * most + 1:
        raise ValueError(
            f"erased fits the model worse than all training records together (a deviance of {own:.3g} nats, "
            f"beside {most:.3g}); some of these records cannot have been part of its training data"
        )
    if left is None:
        return
    if measures.is_exact and not left > -rounding:
        unsettled = measures.stationarity
        reason = "some of these records cannot have been part of its training data"
        if unsettled is not None and unsettled > rounding:
            reason = (
                f"it was not trained to convergence (a step would still move it by {unsettled:.2g} nats; "
                f"settle it first), or {reason}"
            )
        raise ValueError(f"erased holds more evidence than the posterior has beyond its prior; {reason}")
    # Sampled integrals over wide predictors are off by more than any sensible limit: doubted, never refused.
    if left < -REFUSED_EXCESS and not measures.is_sampled:
        raise ValueError(
            "erased holds more evidence than the posterior has beyond its prior; some of these records "
            "cannot have been part of its training data, or it was not trained to convergence"
        )


def require_number(records: int, training_records: int | None) -> None:
    """Refuse to erase more records than there were."""
    if training_records is not None and records > training_records:
        raise ValueError(f"erased must be among the {training_records} training records, got {records}")


def _strangers(measures: Measures) -> Doubt | None:
    """Records that the roster does not know."""
    if not measures.strangers:
        return None
    reason = (
        f"{measures.strangers} of the {measures.records} erased records are not among the training records: "
        "never trained on, erased before, or changed on the way"
    )
    return Doubt(reason, Verdict.RETRAIN)


def _unlikelihood(measures: Measures) -> Doubt | None:
    """Records that are hardly possible under the belief without them, where no roster knows them."""
    unlikely, single = measures.unlikelihood, measures.improbable
    if unlikely is None:
        return None
    if single <= DOUBTED_IMPROBABLE * measures.records and unlikely <= DOUBTED_UNLIKELIHOOD:
        return None
    found = "the erased records, taken together, are"
    if single:
        rows = ", ".join(map(str, measures.improbable_rows))
        more = ", …" if single > len(measures.improbable_rows) else ""
        found = f"{single} of the {measures.records} erased records{f' (row {rows}{more})' if rows else ''}"
        found += " is" if single == 1 else " are"
    reason = (
        f"{found} very improbable under the belief without {'it' if single == 1 else 'them'}: trained on, "
        "with such targets? A memory with a roster tells"
    )
    return Doubt(reason, Verdict.RETRAIN if unlikely > REFUSED_UNLIKELIHOOD else Verdict.DOUBTFUL)


def _absence(measures: Measures) -> Doubt | None:
    """Too few of the records in a coreset of training records, where no roster knows them."""
    found, expected = measures.found_in_memory, measures.expected_in_memory
    if found is None or expected is None or measures.strangers is not None:
        return None
    mean = LEAST_CHANCE * expected
    if found >= mean or _poisson_tail(math.floor(found), mean) >= DOUBTED_ABSENCE:
        return None
    return Doubt(
        f"{found:.0f} of the erased records are in the memory, where about {expected:.0f} were to be "
        "expected: were they trained on?",
        Verdict.RETRAIN,
    )


def _poisson_tail(count: int, mean: float) -> float:
    """Probability of at most so many events."""
    return sum(math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(count + 1))


def _weights(measures: Measures) -> Doubt | None:
    """Importance weights that are too uneven."""
    khat = measures.khat
    if khat is None or khat <= DOUBTED_KHAT:
        return None
    reason = (
        f"the weights 1/p(D_e|θ) are too uneven (k-hat {khat:.2f} > {DOUBTED_KHAT}): the erased records are "
        "too informative for this method, or the draws too few; retrain, or erase less"
    )
    return Doubt(reason, Verdict.DOUBTFUL if khat < REFUSED_KHAT else Verdict.RETRAIN)


def _trace(measures: Measures) -> Doubt | None:
    """A descent that ended higher than it began, which is without unlearning."""
    if not measures.rose:
        return None
    return Doubt(
        "the objective rose instead of falling: give a smaller learning rate, more draws or another λ"
    )


def _shift(measures: Measures) -> Doubt | None:
    """A belief that left where q(θ|D) says anything, as it does where EUBO has no minimum."""
    if measures.shift is None or measures.shift <= LARGEST_SHIFT:
        return None
    reason = (
        f"the belief moved by {measures.shift:.1f} standard deviations per parameter, to where the trained "
        "posterior says nothing: retrain, or give a larger λ"
    )
    return Doubt(reason, Verdict.RETRAIN)


def _sampling_error(measures: Measures) -> Doubt | None:
    """Moments whose sampling error is not small beside what changed."""
    error, change = measures.sampling_error, measures.change
    if error is None or change is None or error <= DOUBTED_SAMPLING_ERROR * change:
        return None
    return Doubt(
        f"the bank is small for {measures.dim} parameters: its sampling error of {error:.2g} nats is not "
        f"small beside a change of {change:.2g} nats; give more draws"
    )


def _kept_width(measures: Measures) -> Doubt | None:
    """A step of the mean alone."""
    if not measures.keeps_width:
        return None
    share, least_share = measures.share_removed or 0.0, measures.least_share_removed or 0.0
    if share > REFUSED_SHARE:
        reason = (
            f"the erased records hold {share:.0%} of the belief's precision in some direction, and taking it "
            f"away would leave none: only the mean was moved, by {measures.step or 0.0:.0%} of a step, and "
            "the belief is as narrow as before; retrain"
        )
        return Doubt(reason, Verdict.RETRAIN)
    return Doubt(
        f"the erased records had made the belief wider in some direction (by {-least_share:.0%} of its "
        "precision): the model is not log-concave there, so only the mean was moved; refine, or retrain"
    )


def _share_removed(measures: Measures) -> Doubt | None:
    """One step that takes away most of the precision, with nothing to tell how the rest answers."""
    share = measures.share_removed
    if share is None or share <= REFUSED_SHARE or measures.is_exact or measures.keeps_width:
        return None
    if measures.coverage is not None or (measures.order or 1) > 1:
        return None
    reason = f"{share:.0%} of the belief's precision in some direction came from the erased records"
    return Doubt(reason, Verdict.RETRAIN)


def _error(measures: Measures) -> Doubt | None:
    """A result that is too far from retraining, or may be, by the prediction and its range.

    | predicted | verdict |
    | --- | --- |
    | the whole range within the tolerance | trusted |
    | the range reaches above it, or the prediction does and is small beside doing nothing | doubtful |
    | the prediction is above it, and not small beside doing nothing | retrain |
    | no prediction | doubtful where weights are even, else retrain |
    """
    error, tolerance = predict(measures), measures.tolerance * measures.dim
    if error is None:
        is_even = measures.khat is not None and measures.khat <= DOUBTED_KHAT
        reason = "how far this is from retraining cannot be predicted for this posterior and method"
        return Doubt(reason, Verdict.DOUBTFUL if is_even else Verdict.RETRAIN)
    if error.high <= tolerance:
        return None
    is_above = error.nats > tolerance
    is_far = is_above and error.nats > SMALL_BESIDE_NOTHING * error.nothing
    probably, verb = f"about {error.nats:.2g} nats", "exceeds"
    if not is_above:
        probably, verb = f"up to {error.high:.2g} nats", "would exceed"
    reason = (
        f"this is probably {probably} from retraining, where doing nothing leaves {error.nothing:.2g}; that "
        f"{verb} the tolerance of {tolerance:.2g} ({measures.tolerance:g} per parameter). {_advice(error)}"
    )
    return Doubt(reason, Verdict.RETRAIN if is_far else Verdict.DOUBTFUL)


def _advice(error: PredictedError) -> str:
    """What would help, by what the prediction rests on."""
    match error.source:
        case Source.STEP | Source.HELD_BACK:
            return "A memory of sums brings the result closer, and the prediction"
        case Source.SUMS | Source.UNSUMMED:
            return "The erased records are too informative for the memory's sums: refine, or retrain"
        case Source.CORESET:
            return "Keep sums, or more records, or refine"
        case Source.TRAINING:
            return "Training had not converged: settle the posterior first, or refine the result"
        case Source.COMPARISON:
            return "Natural gradients come closer"
        case _:
            return "Give more draws"


def _unsettled(measures: Measures) -> Doubt | None:
    """A memory whose records gave no answer."""
    if measures.unsettled is None or measures.coverage is not None:
        return None
    return Doubt("the memory's records give no answer that settles, so this is one step without them")


def _excess(measures: Measures) -> Doubt | None:
    """Records that carry more precision than the posterior holds beyond its prior."""
    left = measures.evidence_left
    if left is None or measures.is_exact or left >= -DOUBTED_EXCESS:
        return None
    reason = (
        f"the erased records carry more precision than the posterior holds beyond its prior (by {-left:.0%} "
        "in some direction): were all of them trained on, and until convergence?"
    )
    return Doubt(reason, Verdict.RETRAIN)


def _total_erasure(measures: Measures) -> Doubt | None:
    """Nothing left to have learnt from."""
    if measures.records == measures.training_records:
        return Doubt("all the training data were erased: start from the prior", Verdict.RETRAIN)
    if measures.is_prior:
        return Doubt("nothing is left beyond the prior: all the training data were erased")
    return None


def _shrinkage(measures: Measures) -> Doubt | None:
    """A belief that grew narrower as records of a log-concave likelihood were taken away."""
    if measures.information >= -DOUBTED_SHRINKAGE or not measures.is_log_concave:
        return None
    reason = (
        f"the recovered belief is narrower than the trained one (by {-measures.information:.2g} nats), "
        "although evidence was taken away"
    )
    return Doubt(reason, Verdict.RETRAIN)


def _stationarity(measures: Measures) -> Doubt | None:
    """A posterior that was not trained to convergence."""
    left, change = measures.stationarity, measures.change
    if left is None or change is None:
        return None
    if left <= min(DOUBTED_STATIONARITY * change, DOUBTED_STATIONARITY_ALONE * measures.dim):
        return None
    return Doubt(
        f"training had not converged: a step of it would still have moved the belief by {left:.2g} nats, "
        f"beside {change:.2g} nats that unlearning moved it; settle it first (`settle` of an adapter, or "
        "`refine`), then remember and unlearn"
    )


def _projection(measures: Measures) -> Doubt | None:
    """A family that cannot hold what was recovered."""
    loss, change = measures.projection_loss, measures.change
    if loss is None or change is None or loss <= DOUBTED_PROJECTION_LOSS * change:
        return None
    return Doubt(
        f"the guide's low rank cannot hold what was recovered: {loss:.2g} nats are lost, beside "
        f"{change:.2g} nats that unlearning changed"
    )


RULES = (
    _stationarity,
    _strangers,
    _unlikelihood,
    _absence,
    _weights,
    _trace,
    _shift,
    _sampling_error,
    _kept_width,
    _unsettled,
    _share_removed,
    _error,
    _excess,
    _total_erasure,
    _shrinkage,
    _projection,
)
