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
from unbayes.memory import Keep, keep, kinds_of
from unbayes.models import AbstractConjugateModel, AbstractModel
from unbayes.posteriors import (
    AbstractExponentialFamily,
    AbstractGaussian,
    AbstractVariational,
    FullGaussian,
    gaussian_kl,
)
from unbayes.progress import AbstractProgress
from unbayes.training.base import AbstractTraining, Trained
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
    progress: AbstractProgress | None = None,
) -> Trained:
    """Train: the posterior q(θ|D) of `model` given `records`.

    Parameters
    ----------
    model
        Prior and likelihood.
    records
        The data D, as `model.encode` takes them.
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
    progress
        A `ProgressBar()`, say.
    """
    started = time.perf_counter()
    require_key(key)
    kinds = kinds_of(memory)
    require_precision(model=model)
    with kept(model.holds_functions):
        evidence = model.encode(records)
        named = require_ids(ids, count(evidence))
        trained = _train(model, evidence, family, method, key, progress)
        if not np.isfinite(trained.elbo):
            raise ValueError(
                f"training ended at an ELBO of {trained.elbo}: check the scales of the prior, of the "
                "likelihood and of the inputs, or give a smaller learning rate"
            )
        remembered = keep(
            trained.posterior,
            model,
            records,
            evidence,
            kinds,
            trained.stationarity,
            ids=named,
            roster=roster,
            deviance=_deviance(trained, model, evidence),
            key=jax.random.fold_in(key, 1) if kinds else key,
            nodes=method.nodes if isinstance(method, NaturalGradientVI) else QUASI_RANDOM_NODES,
        )
    return dataclasses.replace(trained, memory=remembered, seconds=time.perf_counter() - started)


def _deviance(trained: Trained, model: AbstractModel, evidence: Any) -> float | None:
    """Of all records: E_q[log p(D|θ)] is the ELBO, and what the prior took from it."""
    most, prior = model.largest_log_likelihood(evidence), model.gaussian_prior
    if most is None or prior is None or not isinstance(trained.posterior, AbstractGaussian):
        return None
    return max(float(most) - trained.elbo - float(gaussian_kl(trained.posterior, prior)), 0.0)


def _train(model: AbstractModel, evidence, family, method: AbstractTraining | None, key, progress) -> Trained:
    """Exactly, where the family is conjugate, else by the method given or the family's default."""
    if isinstance(model, AbstractConjugateModel):
        if method is not None:
            raise ValueError(f"method must be left out: the posterior of {type(model).__name__} is exact")
        return _condition(model.prior, model, evidence)
    kind = _require_family(family, model)
    conjugate = model.conjugate_prior if method is None else None
    if isinstance(conjugate, kind):
        return _condition(conjugate, model, evidence)
    if method is None:
        method = NaturalGradientVI() if issubclass(kind, AbstractGaussian) else _by_gradients()
    # Nothing about natural gradients is random, and splitting a key takes a while.
    is_random = not isinstance(method, NaturalGradientVI)
    start_key, run_key = jax.random.split(key) if is_random else (key, key)
    start = family
    if isinstance(start, type):
        start = start.standard(model.dim, model.dtype, key=start_key)
    return method.run(model, evidence, start, key=run_key, progress=progress)


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
