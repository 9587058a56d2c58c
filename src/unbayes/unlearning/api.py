"""The calls that take records back out of a posterior."""

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from unbayes.metrics import information
from unbayes.models import AbstractModel
from unbayes.posteriors import AbstractPosterior
from unbayes.progress import AbstractProgress
from unbayes.records import count
from unbayes.unlearning.base import AbstractAdditiveMethod, AbstractAdjustedMethod, AbstractMethod, Statistics
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
        How: `Exact()`, `EUBO(lam)`, `ReverseKL(lam)` or `BankReverseKL(lam)`.
    key
        Key of whatever is random.
    progress
        A `ProgressBar()`, say.
    """
    started = time.perf_counter()
    evidence = _prepare(posterior, model, erased, method)
    solution = method.run(posterior, model, evidence, key=key, progress=progress)
    return _conclude(posterior, method, count(evidence), solution, started, key)


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
    methods = [dataclasses.replace(method, lam=_require_threshold(lam)) for lam in lams]
    evidence = _prepare(posterior, model, erased, method)
    found = method.run_each(posterior, model, evidence, tuple(lams), key=key, progress=progress)
    return [
        _conclude(posterior, each, count(evidence), solution, started, key)
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
    _require_additive(method)
    return method.statistics(posterior, model, _prepare(posterior, model, erased, method), key=key)


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
    _require_additive(method)
    started = time.perf_counter()
    if statistics.origin != method.origin(posterior, key):
        raise ValueError("statistics must come from the posterior, method and key that are given here")
    solution = method.solve(posterior, model, statistics.value, key=key, progress=progress)
    return _conclude(posterior, method, statistics.records, solution, started, key)


def _prepare(posterior: AbstractPosterior, model: AbstractModel, erased: Any, method: AbstractMethod) -> Any:
    """Refuse what does not fit together; return the erased records as evidence."""
    if not isinstance(method, AbstractMethod):
        raise TypeError(f"method must be an unlearning method such as EUBO(), got {method!r}")
    if not isinstance(posterior, AbstractPosterior):
        raise TypeError(f"posterior must be a posterior of unbayes, got {type(posterior).__name__}")
    if (posterior.dim, posterior.dtype) != (model.dim, model.dtype):
        raise ValueError(
            f"posterior must have {model.dim} parameters of {model.dtype} to fit the model, "
            f"got {posterior.dim} of {posterior.dtype}"
        )
    if not _is_finite(posterior):
        raise ValueError("posterior must be finite, got NaN or infinite parameters")
    if isinstance(method, AbstractAdjustedMethod):
        _require_threshold(method.lam)
    method.check(posterior, model)
    return model.encode(erased, "erased")


def _require_threshold(lam: float) -> float:
    if not 0 <= lam <= 1:
        raise ValueError(f"lam must lie in [0, 1], got {lam}")
    return lam


def _require_additive(method: AbstractMethod) -> None:
    if not isinstance(method, AbstractAdditiveMethod):
        raise TypeError(
            f"method {type(method).__name__} reads the erased rows in every iteration, so that batches "
            "cannot be summarised apart; use unlearn, or an additive method such as BankReverseKL"
        )


def _conclude(
    full: AbstractPosterior, method: AbstractMethod, records: int, solution: Solution, started: float, key
) -> Unlearned:
    jax.block_until_ready(solution.posterior)
    seconds = time.perf_counter() - started
    if not _is_finite(solution.posterior):
        reasons = "".join(f"; {doubt}" for doubt in solution.doubts)
        raise RetrainingNeeded(
            f"{type(method).__name__} found no posterior without these {records} records{reasons}"
        )
    return Unlearned(
        posterior=solution.posterior,
        method=method,
        records=records,
        information=information(solution.posterior, full, key=key).value,
        effective_sample_size=solution.effective_sample_size,
        khat=solution.khat,
        seconds=seconds,
        trace=solution.trace,
        doubts=solution.doubts,
    )


def _is_finite(posterior: AbstractPosterior) -> bool:
    leaves = jax.tree.leaves(eqx.filter(posterior, eqx.is_inexact_array))
    return all(bool(jnp.isfinite(leaf).all()) for leaf in leaves)
