"""The one call that trains."""

import dataclasses
import time
from collections.abc import Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from unbayes._numerics.programs import kept
from unbayes._numerics.quadrature import QUASI_RANDOM_NODES
from unbayes._numerics.records import count
from unbayes._validation import require_ids, require_key, require_precision
from unbayes.data.scan import as_source, is_source
from unbayes.inference.passes import AbstractCheckpoint, Passes
from unbayes.memory import Keep, keep, kinds_of
from unbayes.memory.kinds import Kind
from unbayes.models import AbstractConjugateModel, AbstractModel
from unbayes.posteriors import (
    AbstractExponentialFamily,
    AbstractGaussian,
    AbstractVariational,
    FullGaussian,
)
from unbayes.progress import AbstractProgress
from unbayes.training.base import AbstractTraining, Trained, deviance_of, require_finite
from unbayes.training.natural import NaturalGradientVI


def fit(
    model: AbstractModel,
    records: Any,
    *,
    family: type[AbstractVariational] | AbstractVariational = FullGaussian,
    method: AbstractTraining | None = None,
    memory: Keep = None,
    ids: Iterable[str] | None = None,
    roster: bool = True,
    key: PRNGKeyArray,
    checkpoint: AbstractCheckpoint | None = None,
    progress: AbstractProgress | None = None,
) -> Trained:
    """Train: the posterior q(θ|D) of `model` given `records`.

    Parameters
    ----------
    model
        Prior and likelihood.
    records
        The data D, as `model.encode` takes them. Or where they come from, such as a `scan`: they are then
        read in passes, a few batches at a time, with the same result to rounding; a Gaussian family by
        natural gradients, or exactly.
    family
        Class of the posterior, or a member of it to start from (a flow of a certain depth, say). The
        conjugate pairs, such as Beta–Bernoulli, ignore it.
    method
        How to train. By default: exactly, where the family is conjugate; `NaturalGradientVI` for Gaussians;
        `GradientVI` for anything else.
    memory
        What to keep in `trained.memory` for later unlearning: "sums", of third and fourth derivatives over
        all records, which hold nobody's record and bring results close to retraining (`Sums` has settings);
        a number of records, a `Coreset`, which are training data and to be protected as such; both, as a
        tuple; "curvature" or 0 for the dense curvature beside a diagonal posterior, which the others keep
        too; None for nothing.
    ids
        One identifier for each record, such as a customer's number, by which `unlearn` will know it. Digests
        of them are kept, not the identifiers. Without any, records are known by their digits.
    roster
        Whether `trained.memory` keeps such digests of all records, sixteen bytes each. With them, `unlearn`
        notices records that were erased before or never trained on. Whoever has them and a record can tell
        whether it was trained on.
    key
        Key of whatever is random.
    checkpoint
        A `Checkpoint(folder)`, where records are read in passes: with it, the same call goes on where an
        earlier one was broken off.
    progress
        A `ProgressBar()`, say.
    """
    started = time.perf_counter()
    require_key(key)
    kinds = kinds_of(memory)
    require_precision(model=model)
    prior, method = _choose(model, family, method)
    with kept(model.holds_functions):
        if is_source(records):
            if ids is not None:
                raise ValueError(
                    "ids must be left out where records are read in passes: scan names their column"
                )
            from unbayes.training.from_source import fit_source

            passes = Passes(as_source(records), progress, checkpoint=checkpoint)
            start = _start(family, model, key) if prior is None else prior
            trained = fit_source(model, passes, start, method, kinds, roster=roster, key=key)
            passes.end()
        elif checkpoint is not None:
            raise ValueError("checkpoint must be left out, unless records are read in passes; see scan")
        else:
            trained = _fit(model, records, family, prior, method, kinds, ids, roster, key, progress)
    return dataclasses.replace(trained, seconds=time.perf_counter() - started)


def _fit(
    model: AbstractModel,
    records: Any,
    family: Any,
    prior: AbstractExponentialFamily | None,
    method: AbstractTraining | None,
    kinds: tuple[Kind, ...],
    ids: Iterable[str] | None,
    roster: bool,
    key: PRNGKeyArray,
    progress: AbstractProgress | None,
) -> Trained:
    """Of records that are in memory."""
    evidence = model.encode(records)
    named = require_ids(ids, count(evidence))
    if prior is not None:
        trained = _condition(prior, model, evidence)
    else:
        assert method is not None
        # Nothing about natural gradients is random, and splitting a key takes a while.
        is_random = not isinstance(method, NaturalGradientVI)
        start_key, run_key = jax.random.split(key) if is_random else (key, key)
        start = _start(family, model, start_key)
        trained = method.run(model, evidence, start, key=run_key, progress=progress)
    require_finite(trained)
    remembered = keep(
        trained.posterior,
        model,
        records,
        evidence,
        kinds,
        trained.stationarity,
        ids=named,
        roster=roster,
        deviance=deviance_of(trained, model, model.largest_log_likelihood(evidence)),
        key=jax.random.fold_in(key, 1) if kinds else key,
        nodes=method.nodes if isinstance(method, NaturalGradientVI) else QUASI_RANDOM_NODES,
    )
    return dataclasses.replace(trained, memory=remembered)


def _choose(
    model: AbstractModel, family: Any, method: AbstractTraining | None
) -> tuple[AbstractExponentialFamily | None, AbstractTraining | None]:
    """The prior, where the posterior is exact; else the method given, or the family's default."""
    if isinstance(model, AbstractConjugateModel):
        if method is not None:
            raise ValueError(f"method must be left out: the posterior of {type(model).__name__} is exact")
        return model.prior, None
    kind = _require_family(family, model)
    if method is not None:
        return None, method
    if isinstance(conjugate := model.conjugate_prior, kind):
        return conjugate, None
    return None, NaturalGradientVI() if issubclass(kind, AbstractGaussian) else _by_gradients()


def _start(family: Any, model: AbstractModel, key: PRNGKeyArray) -> Any:
    """The member of the family to start from."""
    return family.standard(model.dim, model.dtype, key=key) if isinstance(family, type) else family


def _by_gradients() -> AbstractTraining:
    """The default for families without natural gradients, imported only where it is used."""
    from unbayes.training.gradient import GradientVI

    return GradientVI()


def _require_family(family, model: AbstractModel) -> type[AbstractVariational]:
    """The class of the posterior, or a sentence on why there is none."""
    if isinstance(family, type) and issubclass(family, AbstractVariational):
        return family
    if not isinstance(family, AbstractVariational):
        raise TypeError(f"family must be a variational family or a member of one, got {family!r}")
    if (family.dim, family.dtype) != (model.dim, model.dtype):
        raise ValueError(
            f"family must have {model.dim} parameters of {model.dtype}, got {family.dim} of {family.dtype}"
        )
    return type(family)


def _condition(prior: AbstractExponentialFamily, model: AbstractModel, evidence: Any) -> Trained:
    """Exact posterior: natural parameters plus sufficient statistics."""
    posterior, log_evidence = _conjugate_posterior(prior, model, evidence)
    trace = np.asarray(log_evidence)[None]
    return Trained(posterior, "Bayes' rule", float(log_evidence), 0.0, True, trace)


@eqx.filter_jit
def _conjugate_posterior(prior: AbstractExponentialFamily, model: AbstractModel, evidence):
    posterior = prior.with_natural(
        jax.tree.map(jnp.add, prior.natural, model.sufficient_statistics(evidence))
    )
    # Bayes' rule holds at every θ: the mean or, where that may be at the edge of what is possible, the middle
    # of some draws, which take a second to compile.
    is_gaussian = isinstance(posterior, AbstractGaussian)
    theta = posterior.mean if is_gaussian else posterior.sample(jax.random.key(0), (256,)).mean(0)
    log_joint = model.log_prior(theta) + model.log_likelihood(theta, evidence).sum()
    return posterior, log_joint - posterior.log_prob(theta)
