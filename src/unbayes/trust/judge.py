"""From measures to a verdict: each rule is a function of the measures and returns at most one doubt."""

import math

from unbayes.trust.limits import (
    DOUBTED_ABSENCE,
    DOUBTED_COVERAGE,
    DOUBTED_EXCESS,
    DOUBTED_IMPROBABLE,
    DOUBTED_KHAT,
    DOUBTED_PROJECTION_LOSS,
    DOUBTED_SAMPLING_ERROR,
    DOUBTED_SECOND_TERM,
    DOUBTED_SHARE_ALONE,
    DOUBTED_SHRINKAGE,
    DOUBTED_STATIONARITY,
    DOUBTED_STATIONARITY_ALONE,
    DOUBTED_UNCERTAINTY,
    DOUBTED_UNLIKELIHOOD,
    DOUBTED_UNSETTLED,
    LARGEST_SHIFT,
    LEAST_CHANCE,
    REFUSED_COVERAGE,
    REFUSED_DEVIANCE,
    REFUSED_EXCESS,
    REFUSED_KHAT,
    REFUSED_SECOND_TERM,
    REFUSED_SHARE,
    REFUSED_SHARE_ALONE,
    REFUSED_UNLIKELIHOOD,
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


def _is_one_step(measures: Measures) -> bool:
    """Whether the result is one natural-gradient step, neither exact nor corrected by a coreset."""
    is_step = measures.share_removed is not None and measures.coverage is None
    return is_step and not measures.is_exact and not measures.keeps_width


def _hidden_curvature(measures: Measures) -> Doubt | None:
    """A diagonal posterior without its curvature."""
    if not _is_one_step(measures) or measures.knows_curvature:
        return None
    return Doubt(
        "a diagonal posterior hides how parameters depend on each other: the step may fall short; give "
        "a memory, if only one of no records, which keeps the curvature"
    )


def _second_term(measures: Measures) -> Doubt | None:
    """A step after which the erased records would pull quite differently."""
    if not _is_one_step(measures) or measures.second_term is None:
        return None
    ratio = measures.second_term / measures.change if measures.change else 0.0
    if ratio <= DOUBTED_SECOND_TERM:
        return None
    reason = (
        f"the erased records pull quite differently after the step (by {ratio:.1f} times the step "
        "itself), and so may the remaining ones, which it does not see; give a memory, or retrain"
    )
    return Doubt(reason, Verdict.RETRAIN if ratio > REFUSED_SECOND_TERM else Verdict.DOUBTFUL)


def _share_removed(measures: Measures) -> Doubt | None:
    """A step that takes away much of the precision."""
    if not _is_one_step(measures):
        return None
    share = measures.share_removed or 0.0
    came = f"{share:.0%} of the belief's precision in some direction came from the erased records"
    if measures.second_term is not None:
        return Doubt(came, Verdict.RETRAIN) if share > REFUSED_SHARE else None
    if share <= DOUBTED_SHARE_ALONE:
        return None
    reason = f"{came}; the remaining ones may answer in ways that one step does not see"
    return Doubt(reason, Verdict.RETRAIN if share > REFUSED_SHARE_ALONE else Verdict.DOUBTFUL)


def _coverage(measures: Measures) -> Doubt | None:
    """A coreset that stands for little."""
    coverage = measures.coverage
    if coverage is None or measures.is_exact or coverage >= DOUBTED_COVERAGE:
        return None
    reason = f"the memory stands for only {coverage:.0%} of what the remaining records know"
    return Doubt(reason, Verdict.RETRAIN if coverage < REFUSED_COVERAGE else Verdict.DOUBTFUL)


def _uncertainty(measures: Measures) -> Doubt | None:
    """A coreset whose draw matters."""
    uncertainty, change = measures.uncertainty, measures.change or 0.0
    if uncertainty is None or measures.is_exact:
        return None
    if uncertainty <= min(DOUBTED_UNCERTAINTY * measures.dim, change):
        return None
    reason = (
        f"another draw of the memory would have moved the belief by about {uncertainty:.2g} nats; keep "
        "more records, or retrain"
    )
    return Doubt(reason, Verdict.RETRAIN if uncertainty > change else Verdict.DOUBTFUL)


def _unsettled(measures: Measures) -> Doubt | None:
    """A correction that did not reach its fixed point."""
    if measures.unsettled is None or measures.unsettled <= DOUBTED_UNSETTLED * (measures.change or 0.0):
        return None
    if measures.coverage is None:
        return Doubt("the memory's records give no answer that settles, so this is one step without them")
    return Doubt("the remaining records' answer did not settle; refine, or retrain")


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
    _hidden_curvature,
    _second_term,
    _share_removed,
    _coverage,
    _uncertainty,
    _unsettled,
    _excess,
    _total_erasure,
    _shrinkage,
    _projection,
)
