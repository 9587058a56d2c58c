"""`fit` of records that are read in passes: from files, a stream or a cluster."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from unbayes.inference.passes import Passes, Together, require_untied
from unbayes.memory.passes import Survey, Surveyed, keep_by_passes
from unbayes.models import AbstractModel
from unbayes.posteriors import AbstractExponentialFamily, AbstractGaussian, GaussianNatural
from unbayes.training.base import AbstractTraining, Trained, deviance_of, require_finite
from unbayes.training.natural import NaturalGradientVI
from unbayes.training.passes import (
    Evaluation,
    LogLikelihood,
    SufficientStatistics,
    middle_of,
    train_by_passes,
)


class _End(NamedTuple):
    """Where training ended, what was found on the way, and natural parameters after a full step."""

    trained: Trained
    surveyed: Surveyed
    target: GaussianNatural | None


def fit_source(
    model: AbstractModel,
    passes: Passes,
    start: Any,
    method: AbstractTraining | None,
    kinds: tuple[Any, ...],
    *,
    roster: bool,
    key: PRNGKeyArray,
) -> Trained:
    """As `fit`: exactly from the conjugate prior `start` where there is no method, else by natural gradients.

    The records are surveyed for the memory in the first pass of training.
    """
    require_untied(model, passes.name)
    survey = Survey(model, passes.name, bool(roster or kinds) and not passes.source.has_ids)
    if method is None:
        nodes = model.nodes()
        end = _condition(start, model, passes, survey)
    elif isinstance(method, NaturalGradientVI) and isinstance(start, AbstractGaussian):
        nodes = model.nodes(method.nodes)
        found = train_by_passes(method, Evaluation(passes, model, nodes), type(start), start, survey)
        end = _End(found.trained, found.others[0], found.target)
    else:
        raise TypeError(
            "records that are read in passes need a Gaussian family and natural gradients; got family "
            f"{type(start).__name__} and method {type(method).__name__}"
        )
    trained, surveyed, target = end
    require_finite(trained)
    records_site = None
    if target is not None and isinstance(trained.posterior, AbstractGaussian):
        full = trained.posterior.to_full() if model.has_dense_sites else trained.posterior
        records_site = target - model.prior_site(full, nodes)
    memory = keep_by_passes(
        passes,
        trained.posterior,
        model,
        kinds,
        trained.stationarity,
        surveyed,
        target=target,
        records_site=records_site,
        roster=roster,
        deviance=deviance_of(trained, model, surveyed.most),
        key=jax.random.fold_in(key, 1) if kinds else key,
        nodes=nodes,
    )
    return dataclasses.replace(trained, memory=memory, passes=passes.taken)


def _condition(
    prior: AbstractExponentialFamily, model: AbstractModel, passes: Passes, survey: Survey
) -> _End:
    """Exact posterior; a second pass finds the evidence, by Bayes' rule at one θ."""
    task = Together(model, passes.name, (SufficientStatistics(model, passes.name), survey))
    sums, surveyed = passes.total(task, "adding up")
    posterior = prior.with_natural(jax.tree.map(jnp.add, prior.natural, sums))
    theta = middle_of(posterior, jax.random.key(0))
    expected = passes.total(LogLikelihood(model, passes.name, theta), "log-likelihood")
    log_evidence = float(model.log_prior(theta) + expected - posterior.log_prob(theta))
    trained = Trained(posterior, "Bayes' rule", log_evidence, 0.0, True, np.full(1, log_evidence))
    target = posterior.natural if isinstance(posterior, AbstractGaussian) else None
    return _End(trained, surveyed, target)
