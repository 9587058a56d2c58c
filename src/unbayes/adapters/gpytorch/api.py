"""Unlearn, settle and remember."""

# pyright: reportMissingImports=false

import copy
import dataclasses
from collections.abc import Iterable
from typing import Any

import jax
from gpytorch.likelihoods import Likelihood
from gpytorch.models import ApproximateGP
from jaxtyping import PRNGKeyArray

from unbayes import memory as memories
from unbayes._validation import require_key
from unbayes.adapters._torch import Guard
from unbayes.adapters.gpytorch.reading import Reading, read
from unbayes.inference.ascent import stationarity
from unbayes.memory import Keep, Memory
from unbayes.progress import AbstractProgress
from unbayes.training import refine
from unbayes.trust import TOLERANCE
from unbayes.unlearning import AbstractMethod, Unlearned
from unbayes.unlearning import unlearn as unlearn_from_posterior
from unbayes.unlearning.methods.auto import Auto
from unbayes.unlearning.provenance import Missing, inducing_caveats

AUTO = Auto()
# Stationarity, in nats, at which settling stops: a belief that is off by a hundred-thousandth of its width.
SETTLED = 1e-10


@dataclasses.dataclass(frozen=True)
class Settled:
    """How far a module was from where training ends.

    Attributes
    ----------
    before, after
        Stationarity in nats: KL from the belief to its own full natural-gradient step on all records.
    passes
        Passes over the records.
    converged
        Whether the steps came to an end within these passes.
    """

    before: float
    after: float
    passes: int
    converged: bool

    def __str__(self) -> str:
        end = "converged" if self.converged else "not converged"
        return f"{self.before:.2g} nats from stationary, {self.after:.2g} after {self.passes} passes: {end}"


def unlearn(
    gp: ApproximateGP,
    likelihood: Likelihood,
    erased: Any,
    *,
    memory: Memory | None = None,
    method: AbstractMethod = AUTO,
    ids: Iterable[Any] | None = None,
    missing: Missing = "refuse",
    tolerance: float = TOLERANCE,
    key: PRNGKeyArray,
    in_place: bool = False,
    progress: AbstractProgress | None = None,
) -> tuple[ApproximateGP, Unlearned]:
    """Take `erased` back out of a trained `gp`.

    Always start from the module as it was trained: where requests arrive one after the other, give it and all
    the records that were erased so far.

    Parameters
    ----------
    gp
        Trained by `gpytorch.mlls.VariationalELBO` to convergence; see `settle`. Any mean and any kernel, of
        the inputs or of features that a network makes of them, with a whitened or unwhitened variational
        strategy and a Cholesky, mean-field, natural or triangular natural variational distribution.
    likelihood
        Gaussian, Student-t, Bernoulli or Poisson, as it was in training.
    erased
        The pair (inputs, targets) of the records D_e, tensors or arrays; labels are 0 and 1, or −1 and 1.
    memory
        What `remember` kept of the training set: the more of it, the closer the result.
    method, ids, missing, tolerance, key, progress
        As for `unbayes.unlearn`.
    in_place
        Whether to change `gp` itself, instead of a copy. If anything fails, it stays as it was. A module that
        was changed in place is refused from then on, and so is a call during which another one changed it.

    Returns
    -------
    gp
        The module without the erased records.
    result
        How it was done, and how far to trust it.
    """
    with jax.enable_x64(True):
        guard = _guard(gp)
        reading = read(gp, likelihood)
        result = unlearn_from_posterior(
            reading.posterior,
            reading.model,
            reading.records(erased, "erased"),
            memory=memory,
            method=method,
            ids=ids,
            missing=missing,
            tolerance=tolerance,
            key=key,
            progress=progress,
        )
        if in_place:
            guard.swap(lambda: reading.write(gp, result.posterior))
            recovered = gp
        else:
            recovered = _copied(gp)
            guard.require_unchanged()
            reading.write(recovered, result.posterior)
        return recovered, _completed(result, read(recovered, likelihood), reading.kept_inputs(erased))


def _completed(result: Unlearned, recovered: Reading, counts: Any) -> Unlearned:
    """The result with a memory for the module as it was written, in its own type, and what stays in it."""
    memory = result.memory
    if memory is not None:
        memory = memory.kept_for(recovered.posterior, recovered.model)
    return dataclasses.replace(result, memory=memory, caveats=(*inducing_caveats(counts), *result.caveats))


def settle(
    gp: ApproximateGP,
    likelihood: Likelihood,
    records: Any,
    *,
    passes: int = 100,
    key: PRNGKeyArray,
    in_place: bool = False,
    progress: AbstractProgress | None = None,
) -> tuple[ApproximateGP, Settled]:
    """Train the variational distribution of `gp` to its end, hyperparameters and inducing points fixed.

    Unlearning relies on training having converged, which a number of epochs seldom sees to. With Gaussian
    noise one natural-gradient step arrives; with other likelihoods a few more do.

    Parameters
    ----------
    gp, likelihood
        As for `unlearn`, once trained.
    records
        All the training records D, as a pair (inputs, targets).
    passes
        Passes over the records, at most.
    key
        As for `unbayes.refine`.
    in_place
        Whether to change `gp` itself, instead of a copy. If anything fails, it stays as it was.
    progress
        A `ProgressBar()`, say.

    Returns
    -------
    gp
        The settled module, of which to `remember` and to `unlearn`.
    settled
        How far it was from stationary before and after.
    """
    with jax.enable_x64(True):
        reading = read(gp, likelihood)
        given = reading.records(records, "records")
        before = _stationarity(reading, given)
        # Of a Gaussian belief, `refine` measures all that `Settled` tells.
        trained: Any = refine(
            reading.posterior,
            reading.model,
            given,
            passes=passes,
            tolerance=SETTLED,
            key=key,
            progress=progress,
        )
        recovered = gp if in_place else _copied(gp)
        reading.write(recovered, trained.posterior)
    return recovered, Settled(before, trained.stationarity, trained.passes, trained.converged)


def remember(
    gp: ApproximateGP,
    likelihood: Likelihood,
    records: Any,
    memory: Keep = "sums",
    *,
    ids: Iterable[Any] | None = None,
    key: PRNGKeyArray,
    size: int | None = None,
) -> Memory:
    """Keep what later unlearning can use, while the training records are still at hand.

    Parameters
    ----------
    gp, likelihood
        As for `unlearn`, once trained and settled.
    records
        All the training records D, as a pair (inputs, targets).
    memory
        What to keep beside how well training has converged, as `unbayes.fit` takes it: "sums" over all
        records, which hold nobody's record and bring results closest; a number of records, which are training
        data, and to be protected as such; several of these; 0 or "curvature", for a mean-field distribution
        how its parameters depend on each other; None for nothing.
    ids
        One identifier for each record, by which `unlearn` will know it; else its digits do.
    key
        Key of the draw.
    size
        Earlier name of `memory`, where that is a number of records.
    """
    require_key(key)
    kinds = memories.kinds_of(memory if size is None else size)
    with jax.enable_x64(True):
        reading = read(gp, likelihood)
        given = reading.records(records, "records")
        left = _stationarity(reading, given)
        return memories.remember(reading.posterior, reading.model, given, kinds, left, ids=ids, key=key)


def _stationarity(reading, given) -> float:
    evidence = reading.model.encode(given)
    return float(stationarity(reading.posterior, reading.model, evidence))


def _guard(gp: Any) -> Guard:
    """On the variational parameters; what has none is refused by `read`."""
    strategy = getattr(gp, "variational_strategy", None)
    distribution = getattr(strategy, "_variational_distribution", None)
    return Guard(gp, lambda: () if distribution is None else distribution.parameters(), "gp")


def _copied(gp: ApproximateGP) -> ApproximateGP:
    # What GPyTorch has cached belongs to the old values, and cannot be copied.
    gp.variational_strategy._clear_cache()
    return copy.deepcopy(gp)
