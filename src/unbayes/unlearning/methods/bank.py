"""Unlearning by the reverse KL, equation (9), on a bank of fixed draws."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from unbayes._numerics.quadrature import random_nodes
from unbayes.inference.objectives import cross_entropy, removal_log_weights
from unbayes.inference.stochastic import ADAM, minimise_each
from unbayes.posteriors import (
    AbstractGaussian,
    AbstractPosterior,
    DiagonalGaussian,
    FullGaussian,
)
from unbayes.trust.weights import WeightDiagnosis, diagnose_weights
from unbayes.unlearning.base import AbstractAdjustedMethod
from unbayes.unlearning.methods.descent import log_likelihood_at, require_variational
from unbayes.unlearning.result import Solution


class BankReverseKL(AbstractAdjustedMethod):
    """Minimise the reverse KL on draws θ_1 … θ_S of q(θ|D) that a key fixes once and for all.

    One pass over the erased records leaves log p(D_e|θ_s), which adds up over batches and serves every λ.
    With Pareto-smoothed weights, the best Gaussian has the weighted moments; a flow is fitted to the weighted
    draws.

    Parameters
    ----------
    lam
        Threshold λ in [0, 1]: 1 unlearns nothing, 0 uses the plain likelihood.
    draws
        Size S of the bank.
    iterations, batch_size, optimizer
        For flows: number of steps, draws taken from the bank in each, and any optax gradient transformation.
    """

    lam: float = 0.0
    draws: int = 10_000
    iterations: int = 3000
    batch_size: int = 500
    optimizer: optax.GradientTransformation = eqx.field(default=ADAM, repr=False)

    def check(self, posterior, model, memory):
        """Refuse a posterior that is neither Gaussian nor a flow."""
        require_variational(self, posterior)

    @property
    def summary_settings(self) -> tuple:
        """The size of the bank."""
        return (self.draws,)

    def summarise(self, posterior, model, erased, weights, *, memory, key):
        """Log p(D_e|θ_s) at the draws, split into deviations and mean."""
        thetas, _ = _bank(posterior, key, self.draws)
        return log_likelihood_at(model, thetas, erased, weights)

    def solve_each(self, posterior, model, statistics, lams, *, key, progress=None) -> list[Solution]:
        """Solve for every λ from the same statistics."""
        deviations, mean = statistics.value
        thetas, log_full = _bank(posterior, key, self.draws)
        mode_key, fit_key = jr.split(jr.fold_in(key, 1))
        log_max = posterior.max_log_prob(mode_key)
        diagnoses = [
            diagnose_weights(removal_log_weights(deviations, mean, log_full, log_max, lam)) for lam in lams
        ]
        log_weights = jnp.asarray(np.stack([each.log_weights for each in diagnoses]), thetas.dtype)
        if isinstance(posterior, AbstractGaussian):
            found = [(_weighted_moments(posterior, thetas, each), np.empty(0)) for each in log_weights]
        else:
            found = self._fit_each(posterior, thetas, log_weights, fit_key, progress)
        return [
            Solution(posterior if lam == 1 else candidate, trace, _measured(posterior, diagnosis))
            for lam, diagnosis, (candidate, trace) in zip(lams, diagnoses, found, strict=True)
        ]

    def _fit_each(self, posterior, thetas, log_weights, key, progress):
        """Weighted maximum likelihood, by gradients, for every row of weights at once."""
        objective = _Resampled(thetas, jnp.cumsum(jnp.exp(log_weights), axis=1), self.batch_size)
        return minimise_each(
            objective,
            eqx.tree_at(
                lambda o: (o.thetas, o.cumulative_weights),
                objective,
                (None, 0),
                is_leaf=lambda leaf: leaf is None,
            ),
            posterior,
            optimizer=self.optimizer,
            iterations=self.iterations,
            key=key,
            progress=progress,
            description="fitting the weighted draws",
        )


def _measured(full: AbstractPosterior, diagnosis: WeightDiagnosis) -> dict[str, float | None]:
    """What the weights tell, and the sampling error of their moments."""
    # Equal weights would give the moments of q(θ|D) without error, so only their unevenness counts.
    unevenness = 1 / diagnosis.effective_sample_size - 1 / diagnosis.log_weights.size
    is_gaussian = isinstance(full, AbstractGaussian)
    return {
        "effective_sample_size": diagnosis.effective_sample_size,
        "khat": diagnosis.khat,
        "sampling_error": full.dim * (full.dim + 3) / 4 * unevenness if is_gaussian else None,
    }


class _Resampled(eqx.Module):
    """Cross-entropy on draws taken from the bank in proportion to their weights."""

    thetas: Float[Array, "s d"]
    cumulative_weights: Float[Array, " s"]
    batch_size: int = eqx.field(static=True)

    def __call__(self, candidate: AbstractPosterior, key: PRNGKeyArray):
        heights = self.cumulative_weights[-1] * jr.uniform(key, (self.batch_size,), self.thetas.dtype)
        rows = jnp.searchsorted(self.cumulative_weights, heights)
        uniform = jnp.full(self.batch_size, -jnp.log(self.batch_size), self.thetas.dtype)
        return cross_entropy(candidate, self.thetas[rows], uniform)


@eqx.filter_jit
def _bank(posterior: AbstractPosterior, key: PRNGKeyArray, draws: int):
    """Draws and their log-density; those of a Gaussian have its very mean and covariance."""
    if not isinstance(posterior, AbstractGaussian):
        return posterior.sample_and_log_prob(key, (draws,))
    thetas = jax.vmap(posterior.colour)(random_nodes(key, posterior.dim, posterior.dtype, draws).points)
    return thetas, posterior.log_prob(thetas)


@eqx.filter_jit
def _weighted_moments(
    posterior: AbstractGaussian, thetas: Float[Array, "s d"], log_weights: Float[Array, " s"]
) -> AbstractGaussian:
    """The Gaussian closest in reverse KL to the weighted draws.

    Few effective draws do not span θ. As an inverse-Wishart prior would, d + 1 further draws are supposed to
    have confirmed the trained covariance: negligible beside many, never an indefinite matrix beside few.
    """
    weights = jnp.exp(log_weights)
    noise = jax.vmap(posterior.whiten)(thetas)
    shift = weights @ noise
    effective = 1 / (weights @ weights)
    confirmed = posterior.dim + 1

    def shrink(moment, trained):
        return (effective * moment + confirmed * trained) / (effective + confirmed)

    centred = noise - shift
    if isinstance(posterior, DiagonalGaussian):
        return posterior.push(DiagonalGaussian(shift, jnp.sqrt(shrink(weights @ centred**2, 1.0))))
    identity = jnp.eye(posterior.dim, dtype=posterior.dtype)
    return posterior.push(
        FullGaussian.from_covariance(shift, shrink((centred.T * weights) @ centred, identity))
    )
