"""The calls that take records back out of a posterior."""

import dataclasses
import time
from collections.abc import Iterable, Sequence
from typing import Any

import jax
from jaxtyping import PRNGKeyArray

from unbayes._numerics.programs import kept
from unbayes._validation import require_threshold
from unbayes.data.scan import as_source, is_source
from unbayes.inference.passes import Passes
from unbayes.memory import Memory
from unbayes.memory.sums import KeptSums
from unbayes.models import AbstractModel
from unbayes.posteriors import AbstractGaussian, AbstractPosterior
from unbayes.progress import AbstractProgress
from unbayes.trust import TOLERANCE, Measures, RetrainingNeeded, judge, measure
from unbayes.trust.judge import require_number, require_possible
from unbayes.unlearning.base import AbstractAdjustedMethod, AbstractMethod
from unbayes.unlearning.methods.auto import Auto
from unbayes.unlearning.methods.step import distance_to_step
from unbayes.unlearning.provenance import Missing, caveats, measured, require_left
from unbayes.unlearning.result import Solution, Unlearned
from unbayes.unlearning.statistics import Statistics
from unbayes.unlearning.summarising import (
    Call,
    prepare,
    require_additive,
    summarise_records,
    summarise_source,
)

AUTO = Auto()


def unlearn(
    posterior: AbstractPosterior,
    model: AbstractModel,
    erased: Any,
    *,
    memory: Memory | None = None,
    method: AbstractMethod = AUTO,
    ids: Iterable[str] | None = None,
    missing: Missing = "refuse",
    tolerance: float = TOLERANCE,
    key: PRNGKeyArray,
    progress: AbstractProgress | None = None,
) -> Unlearned:
    """Take `erased` back out of `posterior`: summarise, then solve.

    Parameters
    ----------
    posterior
        The trained q(θ|D); all that is seen of the remaining data.
    model
        The model it was trained with.
    erased
        The records D_e, as `model.encode` takes them; or where they come from, such as a `scan`, which is
        read once, a few batches at a time.
    memory
        What training kept of the training set, `trained.memory`: the more of it, the closer the result.
    method
        How: `Auto()` unless given, which chooses between `Exact()`, `NaturalGradient()`, `Transport()` and
        `BankReverseKL()` and says why; the paper's own are `EUBO(lam)` and `ReverseKL(lam)`.
    ids
        One identifier for each record, as `fit` was given them.
    missing
        What to do with records that are not among the training records that are left, as far as the memory
        tells: "refuse" all of them, "skip" those, or "allow" them, with a verdict to match.
    tolerance
        Nats of KL[retrained‖unlearned] over θ, per parameter, that are good enough: the verdict compares the
        predicted error with it.
    key
        Key of whatever is random.
    progress
        A `ProgressBar()`, say.
    """
    started = time.perf_counter()
    call = prepare(posterior, model, method, memory, key, tolerance)
    with kept(model.holds_functions):
        statistics = _summarise(call, erased, ids, missing, progress)
        return _solve(call, statistics, progress, started)


def summarise(
    posterior: AbstractPosterior,
    model: AbstractModel,
    erased: Any,
    *,
    memory: Memory | None = None,
    method: AbstractMethod = AUTO,
    ids: Iterable[str] | None = None,
    missing: Missing = "refuse",
    key: PRNGKeyArray,
    progress: AbstractProgress | None = None,
) -> Statistics:
    """What one batch of erased records leaves behind; add such statistics up, then `solve`.

    Give the trained posterior, and the same memory and key, for every batch. The rows are not needed
    afterwards.

    Parameters
    ----------
    posterior, model, erased, memory, method, missing, key, progress
        As for `unlearn`.
    ids
        One identifier for each record, as `fit` was given them. Statistics that share one refuse to add up,
        so that nothing is taken out twice.
    """
    call = prepare(posterior, model, method, memory, key)
    require_additive(call.method)
    with kept(model.holds_functions):
        return _summarise(call, erased, ids, missing, progress)


def solve(
    posterior: AbstractPosterior,
    model: AbstractModel,
    statistics: Statistics,
    *,
    memory: Memory | None = None,
    method: AbstractMethod = AUTO,
    tolerance: float = TOLERANCE,
    key: PRNGKeyArray,
    progress: AbstractProgress | None = None,
) -> Unlearned:
    """Take the records summed up in `statistics` back out of `posterior`; otherwise as `unlearn`."""
    started = time.perf_counter()
    call = prepare(posterior, model, method, memory, key, tolerance)
    require_additive(call.method)
    if not isinstance(statistics, Statistics):
        raise TypeError(f"statistics must be a sum of what summarise returned, got {statistics!r}")
    if statistics.origin != call.origin:
        raise ValueError(
            "statistics must come from the posterior, model, memory, method and key that are given here"
        )
    with kept(model.holds_functions):
        return _solve(call, statistics, progress, started)


def sweep(
    posterior: AbstractPosterior,
    model: AbstractModel,
    erased: Any,
    *,
    method: AbstractAdjustedMethod,
    lams: Sequence[float],
    key: PRNGKeyArray,
    progress: AbstractProgress | None = None,
) -> list[Unlearned]:
    """Unlearn once for every λ in `lams`, in one compiled call; otherwise as `unlearn`."""
    if not isinstance(method, AbstractAdjustedMethod):
        raise TypeError(f"method must have a threshold lam to sweep over, got {type(method).__name__}")
    started = time.perf_counter()
    if not lams:
        raise ValueError("lams must hold at least one threshold, got none")
    lams = tuple(require_threshold(lam) for lam in lams)
    call = prepare(posterior, model, method, None, key)
    calls = [call._replace(method=dataclasses.replace(method, lam=lam)) for lam in lams]
    with kept(model.holds_functions):
        statistics = summarise_records(call, erased, None, "refuse")
        first = _measure_evidence(call, statistics)
        found = method.solve_each(posterior, model, statistics, lams, key=key, progress=progress)
        return [
            _conclude(each, statistics, first, solution, started)
            for each, solution in zip(calls, found, strict=True)
        ]


def _summarise(
    call: Call,
    erased: Any,
    ids: Iterable[str] | None,
    missing: Missing,
    progress: AbstractProgress | None,
) -> Statistics:
    if is_source(erased):
        passes = Passes(as_source(erased), progress, "erased")
        return summarise_source(call, passes, ids, missing)
    return summarise_records(call, erased, ids, missing)


def _solve(
    call: Call, statistics: Statistics, progress: AbstractProgress | None, started: float
) -> Unlearned:
    first = _measure_evidence(call, statistics)
    with call.in_little_time(statistics.records):
        solution = call.method.solve(
            call.posterior, call.model, statistics, memory=call.memory, key=call.key, progress=progress
        )
        return _conclude(call, statistics, first, solution, started)


def _measure_evidence(call: Call, statistics: Statistics) -> Measures:
    """What can be told before any long work; refuses records that were never trained on."""
    posterior, model, memory = call.posterior, call.model, call.memory
    require_left(memory, statistics)
    is_exact, left = call.method.is_exact(posterior, model), None
    if not call.method.measures_evidence:
        left = measure.evidence_left(posterior, model, statistics.site, is_exact=is_exact)
    measures = Measures(
        dim=posterior.dim,
        tolerance=call.tolerance,
        records=statistics.records,
        training_records=None if memory is None else memory.records,
        stationarity=None if memory is None else memory.stationarity,
        **measured(memory, statistics),
        is_exact=is_exact,
        is_log_concave=model.is_log_concave,
        is_sampled=model.is_sampled,
        evidence_left=left,
    )
    require_number(statistics.records, measures.training_records)
    require_possible(measures, measure.rounding(posterior))
    return measures


def _conclude(
    call: Call, statistics: Statistics, first: Measures, solution: Solution, started: float
) -> Unlearned:
    """Measure, judge and wrap up a solution."""
    jax.block_until_ready(solution.posterior)
    measures = first._replace(**solution.measured)
    require_possible(measures, measure.rounding(call.posterior))
    if not measure.is_finite(solution.posterior):
        reasons = "".join(f"; {doubt}" for doubt in judge(measures).doubts)
        raise RetrainingNeeded(
            f"{type(call.method).__name__} found no posterior without these {statistics.records} "
            f"records{reasons}"
        )
    handed_on = None
    # What follows works on beliefs: those of a Gaussian hold no functions of a user's.
    with kept(call.model.holds_functions and not isinstance(solution.posterior, AbstractGaussian)):
        measures = measure.compare(solution.posterior, call.posterior, call.model, measures, call.key)
        if not measures.is_exact and measures.share_removed is None:
            distance = distance_to_step(call.posterior, call.model, statistics.site, solution.posterior)
            measures = measures._replace(**distance)
        sums = _sums_left(call, statistics, solution)
    if call.memory is not None:
        handed_on = call.memory.without(
            statistics.records,
            statistics.matches,
            statistics.provenance.members,
            curvature=solution.curvature,
            sums=sums,
            deviance=first.deviance,
        ).kept_for(solution.posterior, call.model)
    return Unlearned(
        posterior=solution.posterior,
        method=call.method,
        choice=call.choice,
        records=statistics.records,
        trust=judge(measures),
        seconds=time.perf_counter() - started,
        trace=solution.trace,
        memory=handed_on,
        caveats=caveats(call.model, call.memory, statistics),
    )


def _sums_left(call: Call, statistics: Statistics, solution: Solution) -> KeptSums | None:
    """The memory's sums without those of the erased records, as seen from the recovered belief."""
    sums, erased = call.memory and call.memory.sums, getattr(statistics.value, "derivatives", None)
    before, after = call.posterior, solution.posterior
    if sums is None or erased is None:
        return None
    assert isinstance(before, AbstractGaussian)
    assert isinstance(after, AbstractGaussian)
    return sums.without(erased).moved(before, after)
