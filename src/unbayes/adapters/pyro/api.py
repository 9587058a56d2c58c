"""Unlearn and remember."""

# pyright: reportMissingImports=false

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import jax
import torch
from jaxtyping import PRNGKeyArray

from unbayes import memory as memories
from unbayes._validation import require_key
from unbayes.adapters._torch import Guard, to_array
from unbayes.adapters.pyro.densities import Density, PriorDensity
from unbayes.adapters.pyro.guides import Guide, copied, parameters, read, write
from unbayes.adapters.pyro.model import TorchModel, require_log_likelihood, require_prior
from unbayes.inference.ascent import stationarity
from unbayes.memory import Coreset, Keep, Memory, Sums
from unbayes.progress import AbstractProgress
from unbayes.trust import TOLERANCE
from unbayes.unlearning import AbstractMethod, Unlearned
from unbayes.unlearning import unlearn as unlearn_from_posterior
from unbayes.unlearning.methods.auto import Auto
from unbayes.unlearning.provenance import Missing

AUTO = Auto()

LogLikelihood: TypeAlias = Callable[[dict[str, torch.Tensor], Any], torch.Tensor]
LogPrior: TypeAlias = Callable[[dict[str, torch.Tensor]], torch.Tensor]


def unlearn(
    guide: Guide,
    log_likelihood: LogLikelihood,
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
) -> tuple[Guide, Unlearned]:
    """Take `erased` back out of a trained `guide`.

    Always start from the guide as it was trained: where requests arrive one after the other, give it and all
    the records that were erased so far.

    Parameters
    ----------
    guide
        An `AutoMultivariateNormal` or `AutoDiagonalNormal`, trained by `pyro.infer.SVI`. All its latent
        variables must be shared by all records.
    log_likelihood
        (sites, records) ↦ log p(record|θ), shape (n,): `sites` holds a value of every latent site under its
        name, in its own support, and `records` is `erased`, or some of its rows. It must be written in
        operations that `torch.func` can differentiate twice.
    erased
        The records D_e: a tensor, or a tuple or dict of them, with the records along the leading axis.
    memory
        What `remember` kept of the training set: the more of it, the closer the result.
    method, ids, missing, tolerance, key, progress
        As for `unbayes.unlearn`.
    in_place
        Whether to change `guide` itself, instead of a copy, which gets a name of its own in Pyro's parameter
        store and holds nothing of the data that the guide was set up with. If anything fails, it stays as it
        was. A guide that was changed in place is refused from then on, and so is a call during which another
        one changed it.

    Returns
    -------
    guide
        The guide without the erased records.
    result
        How it was done, and how far to trust it.
    """
    with jax.enable_x64(True):
        guard = Guard(guide, lambda: parameters(guide), "guide")
        posterior = read(guide)
        model = TorchModel(Density(guide, log_likelihood), posterior.dim)
        records = jax.tree.map(to_array, erased)
        require_log_likelihood(model, posterior, model.encode(records, "erased"))
        result = unlearn_from_posterior(
            posterior,
            model,
            records,
            memory=memory,
            method=method,
            ids=ids,
            missing=missing,
            tolerance=tolerance,
            key=key,
            progress=progress,
        )
        recovered = guide
        if in_place:
            guard.swap(lambda: write(guide, result.posterior))
        else:
            recovered = copied(guide)
            guard.require_unchanged()
            write(recovered, result.posterior)
        if result.memory is not None:
            # For the guide as it was written, in its own type.
            handed_on = result.memory.kept_for(read(recovered), model)
            result = dataclasses.replace(result, memory=handed_on)
    return recovered, result


def remember(
    guide: Guide,
    log_likelihood: LogLikelihood,
    log_prior: LogPrior,
    records: Any,
    memory: Keep = "sums",
    *,
    ids: Iterable[Any] | None = None,
    key: PRNGKeyArray,
) -> Memory:
    """Keep what later unlearning can use, while the training records are still at hand.

    Parameters
    ----------
    guide, log_likelihood
        As for `unlearn`, once trained.
    log_prior
        Sites ↦ log p(sites), one number: the prior that the guide was trained with, which it does not tell.
        The sites are in their own support, as for `log_likelihood`.
    records
        All the training records D, as `erased` for `unlearn`.
    memory
        What to keep beside how well training has converged, as `unbayes.fit` takes it: "sums" over all
        records, which hold nobody's record, and for which both functions must be written in operations that
        `torch.func` can differentiate four times; "curvature", for a diagonal guide how its parameters depend
        on each other, which comes with sums too; None for nothing. Records are not kept.
    ids
        One identifier for each record, by which `unlearn` will know it; else its digits do.
    key
        Key of the draw.
    """
    require_key(key)
    kinds = memories.kinds_of(memory)
    for kind in kinds:
        if isinstance(kind, Coreset):
            raise ValueError(
                "memory must be 'sums', 'curvature' or None for a guide of Pyro, whose prior is not known "
                f"when records are erased, got {kind}"
            )
    with jax.enable_x64(True):
        posterior, density = read(guide), Density(guide, log_likelihood)
        model = TorchModel(density, posterior.dim, PriorDensity(guide, log_prior))
        given = jax.tree.map(to_array, records)
        evidence = model.encode(given)
        require_log_likelihood(model, posterior, evidence)
        orders = [kind.order for kind in kinds if isinstance(kind, Sums)]
        require_prior(model, posterior, evidence, max(orders, default=2))
        left = float(stationarity(posterior, model, evidence))
        kept = memories.remember(posterior, model, given, kinds, left, ids=ids, key=key)
        # Unlearning needs no prior.
        return kept.kept_for(posterior, TorchModel(density, posterior.dim))
