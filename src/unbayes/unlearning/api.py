"""The calls that take records back out of a posterior."""

import dataclasses
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
from jaxtyping import PRNGKeyArray

from unbayes.memory import Memory
from unbayes.models import AbstractModel
from unbayes.posteriors import AbstractPosterior
from unbayes.progress import AbstractProgress
from unbayes.records import count
from unbayes.settings import require_settings
from unbayes.unlearning.auto import Auto
from unbayes.unlearning.base import AbstractAdditiveMethod, AbstractAdjustedMethod, AbstractMethod, Statistics
from unbayes.unlearning.checks import (
    doubts_about_information,
    doubts_about_origin,
    doubts_about_training,
    information_removed,
    is_finite,
    require_additive,
    require_parts,
    require_threshold,
    site_of,
)
from unbayes.unlearning.result import RetrainingNeeded, Solution, Unlearned
from unbayes.unlearning.trust import Doubt, Trust

AUTO = Auto()


def unlearn(
    posterior: AbstractPosterior,
    model: AbstractModel,
    erased: Any,
    *,
    memory: Memory | None = None,
    method: AbstractMethod = AUTO,
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
    memory
        What training kept of the training set, `trained.memory`: the more of it, the closer the result.
    method
        How: `Auto()` unless given, which chooses between `Exact()`, `NaturalGradient()` and
        `BankReverseKL()` and says why; the paper's own are `EUBO(lam)` and `ReverseKL(lam)`.
    key
        Key of whatever is random.
    progress
        A `ProgressBar()`, say.
    """
    started = time.perf_counter()
    call = _prepare(posterior, model, method, memory, key)
    evidence = model.encode(erased, "erased")
    matches = None if memory is None else memory.matches(evidence)
    # Long work is not begun in vain: what was never trained on is refused before it, where that takes a pass.
    knows = isinstance(call.method, AbstractAdditiveMethod) and call.method.gives_site
    site = None if knows else site_of(posterior, model, evidence)
    doubts = doubts_about_origin(posterior, model, site)
    solution = call.remembering(matches).run(posterior, model, evidence, key=key, progress=progress)
    doubts += doubts_about_origin(posterior, model, solution.site)
    return _conclude(call, count(evidence), matches, solution, started, doubts)


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
    calls = [
        _prepare(posterior, model, dataclasses.replace(method, lam=require_threshold(lam)), None, key)
        for lam in lams
    ]
    evidence = model.encode(erased, "erased")
    doubts = doubts_about_origin(posterior, model, site_of(posterior, model, evidence))
    found = method.run_each(posterior, model, evidence, tuple(lams), key=key, progress=progress)
    return [
        _conclude(call, count(evidence), None, solution, started, doubts)
        for call, solution in zip(calls, found, strict=True)
    ]


def summarise(
    posterior: AbstractPosterior,
    model: AbstractModel,
    erased: Any,
    *,
    memory: Memory | None = None,
    method: AbstractMethod = AUTO,
    key: PRNGKeyArray,
) -> Statistics:
    """What one batch of erased records leaves behind; add such statistics up, then `solve`.

    Give the trained posterior, and the same memory and key, for every batch. The rows are not needed
    afterwards.
    """
    call = _prepare(posterior, model, method, memory, key)
    additive = require_additive(call.method)
    evidence = model.encode(erased, "erased")
    value = additive.summarise(posterior, model, evidence, key=key)
    site = additive.site(value) if additive.gives_site else site_of(posterior, model, evidence)
    matches = None if memory is None else memory.matches(evidence)
    return Statistics(value, site, matches, count(evidence), additive.origin(posterior, model, key))


def solve(
    posterior: AbstractPosterior,
    model: AbstractModel,
    statistics: Statistics,
    *,
    memory: Memory | None = None,
    method: AbstractMethod = AUTO,
    key: PRNGKeyArray,
    progress: AbstractProgress | None = None,
) -> Unlearned:
    """Take the records summed up in `statistics` back out of `posterior`."""
    started = time.perf_counter()
    call = _prepare(posterior, model, method, memory, key)
    additive = require_additive(call.method)
    if not isinstance(statistics, Statistics):
        raise TypeError(f"statistics must be a sum of what summarise returned, got {statistics!r}")
    if statistics.origin != additive.origin(posterior, model, key):
        raise ValueError(
            "statistics must come from the posterior, model, memory, method and key that are given here"
        )
    doubts = doubts_about_origin(posterior, model, statistics.site)
    additive = require_additive(call.remembering(statistics.matches))
    solution = additive.solve(posterior, model, statistics.value, key=key, progress=progress)
    return _conclude(call, statistics.records, statistics.matches, solution, started, doubts)


class _Call(NamedTuple):
    """What was asked for, found to fit together; `method` is the one that runs."""

    posterior: AbstractPosterior
    model: AbstractModel
    memory: Memory | None
    key: PRNGKeyArray
    method: AbstractMethod
    choice: str

    def remembering(self, matches) -> AbstractMethod:
        """The method, with no weight on what of the memory was erased."""
        return self.method.with_memory(None if self.memory is None else self.memory.disregarding(matches))


def _prepare(posterior, model, method, memory: Memory | None, key) -> _Call:
    require_parts(posterior, model, memory, method, key)
    method, choice = method.with_memory(memory).choose(posterior, model)
    require_settings(method)
    method.check(posterior, model)
    return _Call(posterior, model, memory, key, method, choice)


def _conclude(
    call: _Call, records: int, matches, solution: Solution, started: float, doubts: tuple[Doubt, ...]
) -> Unlearned:
    jax.block_until_ready(solution.posterior)
    seconds = time.perf_counter() - started
    doubts = (*solution.doubts, *doubts)
    if not is_finite(solution.posterior):
        reasons = "".join(f"; {doubt}" for doubt in doubts)
        raise RetrainingNeeded(
            f"{type(call.method).__name__} found no posterior without these {records} records{reasons}"
        )
    removed, share = information_removed(solution.posterior, call.posterior, call.model, call.key)
    measures = solution.measures._replace(
        information_share=share,
        stationarity=None if call.memory is None else call.memory.stationarity,
    )
    doubts = (
        *doubts,
        *doubts_about_information(removed, call.model),
        *doubts_about_training(call.memory, call.posterior, solution.posterior, records),
    )
    return Unlearned(
        posterior=solution.posterior,
        method=call.method,
        choice=call.choice,
        records=records,
        information=removed,
        trust=Trust(measures, doubts),
        seconds=seconds,
        trace=solution.trace,
        memory=call.memory and call.memory.without(records, matches, solution.curvature),
    )
