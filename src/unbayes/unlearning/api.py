"""The calls that take records back out of a posterior."""

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import jax
from jaxtyping import PRNGKeyArray

from unbayes.metrics import information
from unbayes.models import AbstractModel
from unbayes.posteriors import AbstractPosterior
from unbayes.progress import AbstractProgress
from unbayes.records import count
from unbayes.unlearning.base import AbstractAdditiveMethod, AbstractAdjustedMethod, AbstractMethod, Statistics
from unbayes.unlearning.checks import (
    doubts_about_information,
    doubts_about_origin,
    is_finite,
    require_additive,
    require_fit,
    require_threshold,
    site_of,
)
from unbayes.unlearning.result import RetrainingNeeded, Solution, Unlearned


def unlearn(
    posterior: AbstractPosterior,
    model: AbstractModel,
    erased: Any,
    *,
    method: AbstractMethod,
    key: PRNGKeyArray,
    progress: AbstractProgress | None = None,
) -> Unlearned:
    """Take `erased` back out of `posterior`.

    Parameters
    ----------
    posterior
        The trained q(θ|D); all that is seen of the remaining data.
    model
        The model it was trained with.
    erased
        The records D_e, as `model.encode` takes them.
    method
        How: `Exact()`, `NaturalGradient()`, `EUBO(lam)`, `ReverseKL(lam)` or `BankReverseKL(lam)`.
    key
        Key of whatever is random.
    progress
        A `ProgressBar()`, say.
    """
    started = time.perf_counter()
    require_fit(posterior, model, method, key)
    evidence = model.encode(erased, "erased")
    doubts = doubts_about_origin(posterior, model, site_of(posterior, model, evidence, key))
    solution = method.run(posterior, model, evidence, key=key, progress=progress)
    return _conclude(posterior, model, method, count(evidence), solution, started, key, doubts)


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
    methods = [dataclasses.replace(method, lam=require_threshold(lam)) for lam in lams]
    require_fit(posterior, model, method, key)
    evidence = model.encode(erased, "erased")
    doubts = doubts_about_origin(posterior, model, site_of(posterior, model, evidence, key))
    found = method.run_each(posterior, model, evidence, tuple(lams), key=key, progress=progress)
    return [
        _conclude(posterior, model, each, count(evidence), solution, started, key, doubts)
        for each, solution in zip(methods, found, strict=True)
    ]


def summarise(
    posterior: AbstractPosterior,
    model: AbstractModel,
    erased: Any,
    *,
    method: AbstractAdditiveMethod,
    key: PRNGKeyArray,
) -> Statistics:
    """What one batch of erased records leaves behind; add such statistics up, then `solve`.

    Give the trained posterior and the same key for every batch. The rows are not needed afterwards.
    """
    require_fit(posterior, model, method, key)
    require_additive(method)
    evidence = model.encode(erased, "erased")
    value = method.summarise(posterior, model, evidence, key=key)
    site = site_of(posterior, model, evidence, key)
    return Statistics(value, site, count(evidence), method.origin(posterior, model, key))


def solve(
    posterior: AbstractPosterior,
    model: AbstractModel,
    statistics: Statistics,
    *,
    method: AbstractAdditiveMethod,
    key: PRNGKeyArray,
    progress: AbstractProgress | None = None,
) -> Unlearned:
    """Take the records summed up in `statistics` back out of `posterior`."""
    started = time.perf_counter()
    require_fit(posterior, model, method, key)
    require_additive(method)
    if not isinstance(statistics, Statistics):
        raise TypeError(f"statistics must be a sum of what summarise returned, got {statistics!r}")
    if statistics.origin != method.origin(posterior, model, key):
        raise ValueError("statistics must come from the posterior, model, method and key that are given here")
    doubts = doubts_about_origin(posterior, model, statistics.site)
    solution = method.solve(posterior, model, statistics.value, key=key, progress=progress)
    return _conclude(posterior, model, method, statistics.records, solution, started, key, doubts)


def _conclude(
    full: AbstractPosterior,
    model: AbstractModel,
    method: AbstractMethod,
    records: int,
    solution: Solution,
    started: float,
    key: PRNGKeyArray,
    doubts: tuple[str, ...] = (),
) -> Unlearned:
    jax.block_until_ready(solution.posterior)
    seconds = time.perf_counter() - started
    doubts = (*solution.doubts, *doubts)
    if not is_finite(solution.posterior):
        reasons = "".join(f"; {doubt}" for doubt in doubts)
        raise RetrainingNeeded(
            f"{type(method).__name__} found no posterior without these {records} records{reasons}"
        )
    removed = information(solution.posterior, full, key=key).value
    return Unlearned(
        posterior=solution.posterior,
        method=method,
        records=records,
        information=removed,
        effective_sample_size=solution.effective_sample_size,
        khat=solution.khat,
        seconds=seconds,
        trace=solution.trace,
        doubts=(*doubts, *doubts_about_information(removed, model)),
    )
