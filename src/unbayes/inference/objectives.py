"""The paper's objectives, equation by equation.

Equation numbers are those of "Variational Bayesian Unlearning" (Nguyen, Low, Jaillet, NeurIPS 2020).
`evidence` and `erased` are what `model.encode` returned.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unbayes._numerics.records import CHUNK_ELEMENTS, accumulate
from unbayes.models import AbstractModel
from unbayes.posteriors import AbstractGaussian, AbstractPosterior, FullGaussian, gaussian_kl


def elbo(
    candidate: AbstractPosterior,
    model: AbstractModel,
    evidence: Any,
    *,
    key: PRNGKeyArray | None = None,
    draws: int = 1000,
    scale: float = 1.0,
) -> Float[Array, ""]:
    """Evidence lower bound, equation (1): E_q[log p(D|θ)] − KL[q‖p(θ)]; training maximises it.

    Parameters
    ----------
    candidate
        The belief q.
    model, evidence
        What D says about θ.
    key
        Given, expectations come from reparametrised draws. Without it, they are computed by quadrature, which
        takes a Gaussian candidate and a model whose integrals have at most two dimensions.
    draws
        Number of draws.
    scale
        |D| / |batch|, where `evidence` is a random batch of D.
    """
    if key is None:
        gaussian, nodes = _require_quadrature(candidate, model), model.nodes()
        expected = model.expected_log_likelihood(gaussian, evidence, nodes)
        return scale * expected + model.expected_log_prior(gaussian, nodes) + gaussian.entropy()
    thetas, log_candidate = candidate.sample_and_log_prob(key, (draws,))
    expected = _log_likelihood(model, thetas, evidence).mean()
    if isinstance(candidate, AbstractGaussian) and model.gaussian_prior is not None:
        divergence = gaussian_kl(candidate, model.gaussian_prior)
    else:
        divergence = (log_candidate - jax.vmap(model.log_prior)(thetas)).mean()
    return scale * expected - divergence


def eubo(
    candidate: AbstractPosterior,
    full: AbstractPosterior,
    model: AbstractModel,
    erased: Any,
    *,
    lam: float | Float[Array, ""] = 0.0,
    log_max: Float[Array, ""] | None = None,
    key: PRNGKeyArray | None = None,
    draws: int = 1000,
    scale: float = 1.0,
) -> Float[Array, ""]:
    """Evidence upper bound: E_q̃[log p_adj(D_e|θ; λ)] + KL[q̃‖full]; unlearning minimises it.

    With `full` the exact posterior and λ = 0 this is equation (3), with the trained q(θ|D) equation (5), and
    with λ > 0 equation (8).

    Parameters
    ----------
    candidate
        The belief q̃ after unlearning.
    full
        The belief given all data.
    model, erased
        What D_e says about θ.
    lam
        Threshold λ of the adjusted likelihood.
    log_max
        max log full(θ); where it is not given and λ > 0, a Gaussian's own.
    key, draws, scale
        As for `elbo`; quadrature takes λ = 0.
    """
    adjusted = log_max is not None or lam != 0
    if key is None:
        gaussian = _require_quadrature(candidate, model)
        if not isinstance(full, AbstractGaussian) or adjusted:
            raise ValueError("key must be given: without it, full must be Gaussian and lam zero")
        return scale * model.expected_log_likelihood(gaussian, erased, model.nodes()) + gaussian_kl(
            gaussian, full
        )
    thetas, log_candidate = candidate.sample_and_log_prob(key, (draws,))
    log_full = full.log_prob(thetas)
    log_likelihood = scale * _log_likelihood(model, thetas, erased)
    if adjusted:
        log_max = full.max_log_prob() if log_max is None else log_max
        log_likelihood = log_adjusted_likelihood(log_likelihood, log_full, log_max, lam)
    if isinstance(candidate, AbstractGaussian) and isinstance(full, AbstractGaussian):
        divergence = gaussian_kl(candidate, full)
    else:
        divergence = (log_candidate - log_full).mean()
    return log_likelihood.mean() + divergence


def log_adjusted_likelihood(
    log_likelihood: Float[Array, " s"],
    log_full: Float[Array, " s"],
    log_max: Float[Array, ""],
    lam: float | Float[Array, ""],
) -> Float[Array, " s"]:
    """Adjusted likelihood, equation (6): log p(D_e|θ) where full(θ) > λ max full, and 0 elsewhere.

    The threshold is on q(θ|D) for every model. (For its airline experiment the paper puts it on q(f, θ|D),
    record by record.) Gradients do not see the jump at the edge of the region.
    """
    return jnp.where(_trusted_region(log_full, log_max, lam), log_likelihood, 0)


def removal_log_weights(
    deviations: Float[Array, " s"],
    mean: Float[Array, ""],
    log_full: Float[Array, " s"],
    log_max: Float[Array, ""],
    lam: float | Float[Array, ""],
) -> Float[Array, " s"]:
    """Log-weights 1/p_adj(D_e|θ; λ) that turn draws of q(θ|D) into draws of p̃_adj(θ|D_r; λ), equation (7).

    Parameters
    ----------
    deviations, mean
        log p(D_e|θ_s), as `log_likelihood_at` splits it; the weights are shifted by `mean` so that digits of
        the deviations are not lost in it.
    log_full, log_max
        log q(θ_s|D) and its maximum.
    lam
        Threshold λ.

    Returns
    -------
    log_weights
        Normalised: their exponentials add up to one.
    """
    return jax.nn.log_softmax(jnp.where(_trusted_region(log_full, log_max, lam), -deviations, mean))


def cross_entropy(
    candidate: AbstractPosterior, thetas: Float[Array, "s d"], log_weights: Float[Array, " s"]
) -> Float[Array, ""]:
    """−Σ_s w_s log q̃(θ_s), the part of the reverse KL, equation (9), that depends on q̃; minimised."""
    weights = jnp.exp(log_weights)
    if not isinstance(candidate, FullGaussian) or len(thetas) <= candidate.dim:
        return -weights @ candidate.log_prob(thetas)
    # A dense Gaussian needs no more of many draws than their moments, which do not move with q̃.
    mean = weights @ thetas / weights.sum()
    centred = thetas - mean
    around_zero = FullGaussian(jnp.zeros_like(candidate.mean), candidate.scale_tril)
    rows = jax.vmap(around_zero.whiten)((centred.T * weights) @ centred)
    spread = jnp.trace(jax.vmap(around_zero.whiten)(rows.T))
    return 0.5 * spread - weights.sum() * candidate.log_prob(mean)


def _trusted_region(log_full, log_max, lam):
    return log_full > log_max + jnp.log(jnp.asarray(lam, log_full.dtype))


def _log_likelihood(model: AbstractModel, thetas, evidence) -> Float[Array, " s"]:
    def part(evidence):
        return jax.vmap(model.log_likelihood, (0, None))(thetas, evidence).sum(1)

    return accumulate(part, evidence, max(CHUNK_ELEMENTS // len(thetas), 1))


def _require_quadrature(candidate: AbstractPosterior, model: AbstractModel) -> AbstractGaussian:
    if not isinstance(candidate, AbstractGaussian) or model.is_sampled:
        raise ValueError(
            "key must be given: without it, candidate must be Gaussian and integrals in few dimensions"
        )
    return candidate
