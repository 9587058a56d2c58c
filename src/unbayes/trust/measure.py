"""Measuring: the numbers that verdicts rest on, as far as they do not depend on the method."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from unbayes.metrics import information
from unbayes.models import AbstractModel
from unbayes.posteriors import (
    AbstractExponentialFamily,
    AbstractGaussian,
    AbstractPosterior,
    GaussianNatural,
    Table,
    gaussian_kl,
    matched_gaussian,
)
from unbayes.trust.measures import Measures


def is_finite(posterior: AbstractPosterior) -> bool:
    """Whether no parameter is NaN or infinite, but for log-probabilities of impossible values in a table."""
    if isinstance(posterior, Table):
        return bool(jnp.isfinite(posterior.values).all() & ~jnp.isnan(posterior.natural_log_prob).any())
    leaves = jax.tree.leaves(eqx.filter(posterior, eqx.is_inexact_array))
    return all(np.isfinite(leaf).all() for leaf in leaves)


def rounding(posterior: AbstractPosterior) -> float:
    """Share of the evidence that may be off where sums over many records were rounded."""
    return float(jnp.finfo(posterior.dtype).eps) ** 0.4


def site(
    posterior: AbstractPosterior, model: AbstractModel, evidence: Any, weights: Any
) -> GaussianNatural | None:
    """What the records had added to a Gaussian posterior; None where log-concavity does not bound it."""
    if not isinstance(posterior, AbstractGaussian) or not model.is_log_concave:
        return None
    return _site(posterior, model, evidence, weights)


def evidence_left(posterior: AbstractPosterior, model: AbstractModel, site: Any, *, is_exact: bool):
    """Least share of the posterior's evidence that is left beyond its prior; None where nothing bounds it."""
    if site is None or not (is_exact or model.is_log_concave):
        return None
    assert isinstance(posterior, AbstractExponentialFamily)
    prior = model.conjugate_prior if is_exact else model.gaussian_prior
    return float(_evidence_left(posterior, prior, site))


def compare(
    found: AbstractPosterior,
    full: AbstractPosterior,
    model: AbstractModel,
    measures: Measures,
    key: PRNGKeyArray,
) -> Measures:
    """The measures, with what can be told of any recovered belief beside the trained one."""
    if not (isinstance(found, AbstractExponentialFamily) and isinstance(full, AbstractExponentialFamily)):
        return measures._replace(information=information(found, full, key=key).value)
    conjugate = measures.is_exact or model.gaussian_prior is None
    prior = model.conjugate_prior if conjugate else model.gaussian_prior
    is_change_known = measures.change is not None
    numbers = jax.device_get(_compare(found, full, prior, is_change_known, measures.is_exact))
    removed, known = float(numbers["information"]), float(numbers["known"])
    return measures._replace(
        information=removed,
        information_share=removed / known if known > 0 else None,
        change=measures.change if numbers["change"] is None else float(numbers["change"]),
        is_prior=measures.is_exact and bool(numbers["distance_to_prior"] <= rounding(full)),
    )


def shift(full: AbstractPosterior, candidate: AbstractPosterior, key: PRNGKeyArray) -> float:
    """Root mean square distance of a belief from the trained mean, in standard deviations of q(θ|D)."""
    before, after = (
        belief if isinstance(belief, AbstractGaussian) else matched_gaussian(belief, key)
        for belief in (full, candidate)
    )
    wider = after.entropy() - before.entropy()
    return float(jnp.sqrt(1 + 2 * (gaussian_kl(after, before) + wider) / full.dim))


def rose(trace: np.ndarray) -> bool:
    """Whether a descent ended, beyond noise, higher than it began."""
    end = trace[-max(len(trace) // 50, 10) :]
    return bool(trace.size and end.mean() > trace[0] + 3 * end.std())


@eqx.filter_jit
def _site(gaussian: AbstractGaussian, model: AbstractModel, evidence, weights):
    return model.site(gaussian, evidence, model.nodes(), weights)


@eqx.filter_jit
def _evidence_left(posterior: AbstractExponentialFamily, prior, site):
    if isinstance(posterior, AbstractGaussian):
        return posterior.evidence_left_without(site, prior)
    return posterior.evidence_left(jax.tree.map(jnp.subtract, posterior.natural, site), prior)


@eqx.filter_jit
def _compare(
    found: AbstractExponentialFamily,
    full: AbstractExponentialFamily,
    prior,
    is_change_known: bool,
    is_exact: bool,
) -> dict[str, Any]:
    change = None
    if isinstance(found, AbstractGaussian) and isinstance(full, AbstractGaussian) and not is_change_known:
        change = gaussian_kl(found, full)
    distance = jnp.inf
    if is_exact and type(found) is type(prior):
        pairs = zip(jax.tree.leaves(found.natural), jax.tree.leaves(prior.natural), strict=True)
        distance = jnp.stack([(jnp.abs(new - old) / (1 + jnp.abs(old))).max() for new, old in pairs]).max()
    return {
        "information": found.entropy() - full.entropy(),
        "known": jnp.nan if prior is None else prior.entropy() - full.entropy(),
        "change": change,
        "distance_to_prior": distance,
    }
