"""What is refused at the boundary, and what is doubted afterwards."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from unbayes.models import AbstractModel, LinearModel
from unbayes.posteriors import AbstractGaussian, AbstractPosterior, GaussianNatural, Table
from unbayes.settings import require_key, require_settings
from unbayes.unlearning.base import AbstractAdditiveMethod, AbstractAdjustedMethod, AbstractMethod

# Shares of the posterior's own precision by which erased records may exceed what it holds beyond its prior.
# Stochastic training leaves errors of a few per cent; records never trained on go far beyond.
DOUBTED_EXCESS = 0.05
REFUSED_EXCESS = 0.5
# Nats by which a belief may shrink, when records are taken away, before that is called odd.
DOUBTED_SHRINKAGE = 0.1


def require_fit(
    posterior: AbstractPosterior, model: AbstractModel, method: AbstractMethod, key: PRNGKeyArray
) -> None:
    """Refuse what does not fit together."""
    if not isinstance(method, AbstractMethod):
        raise TypeError(f"method must be an unlearning method such as EUBO(), got {method!r}")
    if not isinstance(posterior, AbstractPosterior):
        raise TypeError(f"posterior must be a posterior of unbayes, got {type(posterior).__name__}")
    if not isinstance(model, AbstractModel):
        raise TypeError(f"model must be a model of unbayes, got {type(model).__name__}")
    if (posterior.dim, posterior.dtype) != (model.dim, model.dtype):
        raise ValueError(
            f"posterior must have {model.dim} parameters of {model.dtype} to fit the model, "
            f"got {posterior.dim} of {posterior.dtype}"
        )
    if not is_finite(posterior):
        raise ValueError("posterior must be finite, got NaN or infinite parameters")
    if isinstance(method, AbstractAdjustedMethod):
        require_threshold(method.lam)
    require_settings(method)
    require_key(key)
    method.check(posterior, model)


def require_threshold(lam: float) -> float:
    """Refuse a λ outside [0, 1]."""
    if not 0 <= lam <= 1:
        raise ValueError(f"lam must lie in [0, 1], got {lam}")
    return lam


def require_additive(method: AbstractMethod) -> None:
    """Refuse a method whose statistics do not add up."""
    if not isinstance(method, AbstractAdditiveMethod):
        raise TypeError(
            f"method {type(method).__name__} reads the erased rows in every iteration, so that batches "
            "cannot be summarised apart; use unlearn, or an additive method such as BankReverseKL"
        )


def is_finite(posterior: AbstractPosterior) -> bool:
    """Whether no parameter is NaN or infinite, but for log-probabilities of impossible values in a table."""
    if isinstance(posterior, Table):
        return bool(jnp.isfinite(posterior.values).all() & ~jnp.isnan(posterior.natural_log_prob).any())
    leaves = jax.tree.leaves(eqx.filter(posterior, eqx.is_inexact_array))
    return all(bool(jnp.isfinite(leaf).all()) for leaf in leaves)


def site_of(
    posterior: AbstractPosterior, model: AbstractModel, evidence: Any, key: PRNGKeyArray
) -> GaussianNatural | None:
    """What the records had added to a Gaussian posterior; None where log-concavity does not bound it."""
    if not isinstance(posterior, AbstractGaussian) or not isinstance(model, LinearModel):
        return None
    return _site(posterior, model, evidence, key)


def doubts_about_origin(
    posterior: AbstractPosterior, model: AbstractModel, site: GaussianNatural | None
) -> tuple[str, ...]:
    """Refuse or doubt records that carry more precision than the posterior holds beyond its prior.

    At a stationary posterior the precision is the prior's plus that of every training record, none of them
    negative, so no part of the training data can exceed it in any direction.
    """
    if site is None or not isinstance(posterior, AbstractGaussian):
        return ()
    left = float(_evidence_left(posterior, model.gaussian_prior, site))
    if left < -REFUSED_EXCESS:
        raise ValueError(
            "erased holds more evidence than the posterior has beyond its prior; some of these records "
            "cannot have been part of its training data, or it was not trained to convergence"
        )
    if left < -DOUBTED_EXCESS:
        return (
            f"the erased records carry more precision than the posterior holds beyond its prior (by "
            f"{-left:.0%} in some direction): were all of them trained on, and until convergence?",
        )
    return ()


def doubts_about_information(information: float, model: AbstractModel) -> tuple[str, ...]:
    """Doubt a belief that grew narrower as records of a log-concave likelihood were taken away."""
    if information >= -DOUBTED_SHRINKAGE or not isinstance(model, LinearModel):
        return ()
    return (
        f"the recovered belief is narrower than the trained one (by {-information:.2g} nats), "
        "although evidence was taken away",
    )


@eqx.filter_jit
def _site(gaussian: AbstractGaussian, model: AbstractModel, evidence, key):
    return model.site(gaussian, evidence, model.nodes(key))


@eqx.filter_jit
def _evidence_left(gaussian: AbstractGaussian, prior, site: GaussianNatural):
    return gaussian.evidence_left(jax.tree.map(jnp.subtract, gaussian.natural, site), prior)
