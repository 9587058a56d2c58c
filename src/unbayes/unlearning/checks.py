"""What is refused at the boundary, and what is doubted afterwards."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from unbayes.memory import Memory
from unbayes.metrics import information, parameter_kl
from unbayes.models import AbstractModel, LinearModel
from unbayes.posteriors import (
    AbstractExponentialFamily,
    AbstractGaussian,
    AbstractPosterior,
    DiagonalGaussian,
    GaussianNatural,
    Table,
)
from unbayes.settings import require_key
from unbayes.unlearning.base import AbstractAdditiveMethod, AbstractAdjustedMethod, AbstractMethod
from unbayes.unlearning.trust import Doubt, Verdict

# Shares of the posterior's own precision by which erased records may exceed what it holds beyond its prior.
# Stochastic training leaves errors of a few per cent; records never trained on go far beyond.
DOUBTED_EXCESS = 0.05
REFUSED_EXCESS = 0.5
# Stationarity, as a share of what unlearning changes, that is no longer called convergence.
DOUBTED_STATIONARITY = 0.1
# Nats by which a belief may shrink, when records are taken away, before that is called odd.
DOUBTED_SHRINKAGE = 0.1


def require_parts(
    posterior: AbstractPosterior,
    model: AbstractModel,
    memory: Memory | None,
    method: AbstractMethod,
    key: PRNGKeyArray,
) -> None:
    """Refuse what does not fit together."""
    if not isinstance(method, AbstractMethod):
        raise TypeError(f"method must be an unlearning method such as EUBO(), got {method!r}")
    if not isinstance(posterior, AbstractPosterior):
        raise TypeError(f"posterior must be a posterior of unbayes, got {type(posterior).__name__}")
    if not isinstance(model, AbstractModel):
        raise TypeError(f"model must be a model of unbayes, got {type(model).__name__}")
    if not isinstance(memory, Memory | None):
        raise TypeError(f"memory must be what fit kept, trained.memory, got {type(memory).__name__}")
    if (posterior.dim, posterior.dtype) != (model.dim, model.dtype):
        raise ValueError(
            f"posterior must have {model.dim} parameters of {model.dtype} to fit the model, "
            f"got {posterior.dim} of {posterior.dtype}"
        )
    if not is_finite(posterior):
        raise ValueError("posterior must be finite, got NaN or infinite parameters")
    if isinstance(method, AbstractAdjustedMethod):
        require_threshold(method.lam)
    require_key(key)


def require_threshold(lam: float) -> float:
    """Refuse a λ outside [0, 1]."""
    if not 0 <= lam <= 1:
        raise ValueError(f"lam must lie in [0, 1], got {lam}")
    return lam


def require_additive(method: AbstractMethod) -> AbstractAdditiveMethod:
    """Refuse a method whose statistics do not add up."""
    if not isinstance(method, AbstractAdditiveMethod):
        raise TypeError(
            f"method {type(method).__name__} reads the erased rows in every iteration, so that batches "
            "cannot be summarised apart; use unlearn, or an additive method such as BankReverseKL"
        )
    return method


def is_finite(posterior: AbstractPosterior) -> bool:
    """Whether no parameter is NaN or infinite, but for log-probabilities of impossible values in a table."""
    if isinstance(posterior, Table):
        return bool(jnp.isfinite(posterior.values).all() & ~jnp.isnan(posterior.natural_log_prob).any())
    leaves = jax.tree.leaves(eqx.filter(posterior, eqx.is_inexact_array))
    return all(np.isfinite(leaf).all() for leaf in leaves)


def site_of(posterior: AbstractPosterior, model: AbstractModel, evidence: Any) -> GaussianNatural | None:
    """What the records had added to a Gaussian posterior; None where log-concavity does not bound it."""
    if not isinstance(posterior, AbstractGaussian) or not isinstance(model, LinearModel):
        return None
    return _site(posterior, model, evidence)


def doubts_about_origin(
    posterior: AbstractPosterior, model: AbstractModel, site: GaussianNatural | None
) -> tuple[Doubt, ...]:
    """Refuse or doubt records that carry more precision than the posterior holds beyond its prior.

    At a stationary posterior the precision is the prior's plus that of every training record, none of them
    negative, so no part of the training data can exceed it in any direction.
    """
    if site is None or not isinstance(posterior, AbstractGaussian) or not isinstance(model, LinearModel):
        return ()
    left = float(_evidence_left(posterior, model.gaussian_prior, site))
    # Sampled integrals over wide predictors are off by more than any sensible limit: doubted, never refused.
    if left < -REFUSED_EXCESS and not model.is_sampled:
        raise ValueError(
            "erased holds more evidence than the posterior has beyond its prior; some of these records "
            "cannot have been part of its training data, or it was not trained to convergence"
        )
    if left < -DOUBTED_EXCESS:
        return (
            Doubt(
                f"the erased records carry more precision than the posterior holds beyond its prior (by "
                f"{-left:.0%} in some direction): were all of them trained on, and until convergence?",
                Verdict.RETRAIN,
            ),
        )
    return ()


def doubts_about_information(information: float, model: AbstractModel) -> tuple[Doubt, ...]:
    """Doubt a belief that grew narrower as records of a log-concave likelihood were taken away."""
    if information >= -DOUBTED_SHRINKAGE or not isinstance(model, LinearModel):
        return ()
    return (
        Doubt(
            f"the recovered belief is narrower than the trained one (by {-information:.2g} nats), "
            "although evidence was taken away",
            Verdict.RETRAIN,
        ),
    )


def information_removed(
    found: AbstractPosterior, full: AbstractPosterior, model: AbstractModel, key: PRNGKeyArray
) -> tuple[float, float | None]:
    """I = H(θ|D_r) − H(θ|D) in nats, and as a share of all that training told, where that is closed."""
    if not (isinstance(found, AbstractExponentialFamily) and isinstance(full, AbstractExponentialFamily)):
        return information(found, full, key=key).value, None
    prior = model.conjugate_prior if model.gaussian_prior is None else model.gaussian_prior
    removed, told = map(float, _entropies(found, full, prior))
    return removed, removed / told if told > 0 else None


def doubts_about_training(
    memory: Memory | None, full: AbstractPosterior, found: AbstractPosterior, records: int
) -> tuple[Doubt, ...]:
    """Doubt a posterior that was not trained to convergence; refuse to erase more than was trained on."""
    if memory is None:
        return ()
    if records > memory.records:
        raise ValueError(f"erased must be among the {memory.records} training records, got {records}")
    if records == memory.records:
        return (Doubt("all the training data were erased: start from the prior", Verdict.RETRAIN),)
    if not (isinstance(full, AbstractGaussian) and isinstance(found, AbstractGaussian)):
        return ()
    if memory.stationarity is None:
        return ()
    change = parameter_kl(full, found).value
    if memory.stationarity <= DOUBTED_STATIONARITY * change:
        return ()
    return (
        Doubt(
            f"training had not converged: a step of it would still have moved the belief by "
            f"{memory.stationarity:.2g} nats, beside {change:.2g} nats that unlearning moved it"
        ),
    )


@eqx.filter_jit
def _site(gaussian: AbstractGaussian, model: AbstractModel, evidence):
    return model.site(gaussian, evidence, model.nodes())


@eqx.filter_jit
def _evidence_left(gaussian: AbstractGaussian, prior, site: GaussianNatural):
    precision = site.precision
    if isinstance(gaussian, DiagonalGaussian) and precision.ndim == 2:
        precision = jnp.diagonal(precision)
    linear, held = gaussian.natural
    return gaussian.evidence_left(GaussianNatural(linear, held - precision), prior)


@eqx.filter_jit
def _entropies(found: AbstractExponentialFamily, full: AbstractExponentialFamily, prior):
    told = jnp.nan if prior is None else prior.entropy() - full.entropy()
    return found.entropy() - full.entropy(), told
