"""Poisson likelihood: counts, f is the logarithm of their rate."""

from typing import ClassVar, Literal

import equinox as eqx
import jax.numpy as jnp
from jax.scipy.special import gammaln, xlogy

from unbayes.models.count_predictive import CountPredictive, LogNormalCountPredictive
from unbayes.models.likelihoods.base import AbstractLikelihood
from unbayes.models.likelihoods.targets import require_counts


class PoissonLikelihood(AbstractLikelihood):
    """Counts y with log-rate f."""

    is_log_concave: ClassVar[bool] = True

    outputs: Literal[1] = eqx.field(static=True, default=1)

    def encode_targets(self, y, name, dtype):
        """Return non-negative integers as floats; raise ValueError for anything else."""
        return require_counts(y, name, dtype)

    def log_prob(self, f, y):
        """Poisson log-probability y f − eᶠ − log y!."""
        return y * f - jnp.exp(f) - gammaln(y + 1)

    def largest_log_probs(self, y):
        """Log-probability of y at the rate y."""
        return xlogy(y, y) - y - gammaln(y + 1)

    def expected_log_prob(self, mean, variance, y):
        """E[log p(y|f)] in closed form: the rate is log-normal with mean exp(mean + variance/2)."""
        return y * mean - jnp.exp(mean + 0.5 * variance) - gammaln(y + 1)

    def third_derivatives(self, mean, variance, y):
        """−exp(mean + variance/2), the negative mean rate: all derivatives of eᶠ are eᶠ."""
        return -jnp.exp(mean + 0.5 * variance)

    def predictive(self, f, log_weights):
        """Mixtures of Poisson distributions, one component per value of f."""
        return CountPredictive(f.T, log_weights)

    def gaussian_predictive(self, mean, variance):
        """Poisson counts of log-normal rate."""
        return LogNormalCountPredictive(mean, variance)
