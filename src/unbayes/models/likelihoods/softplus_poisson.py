"""Poisson likelihood whose rate is softplus(f) = log(1 + eᶠ), as GPyTorch's is."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jax.nn import softplus
from jax.scipy.special import gammaln

from unbayes._numerics.quadrature import safe_sqrt, trapezoid
from unbayes.models.count_predictive import CountPredictive
from unbayes.models.likelihoods.base import AbstractLikelihood
from unbayes.models.likelihoods.targets import require_counts

# Below this f, log softplus(f) is a series in eᶠ, exact to rounding; above it, softplus(f) has digits enough
# for two derivatives of its logarithm.
SERIES_BELOW = -7.0


class SoftplusPoissonLikelihood(AbstractLikelihood):
    """Counts y with rate softplus(f), which grows no faster than f."""

    is_log_concave: ClassVar[bool] = True

    outputs: int = eqx.field(static=True, default=1)

    def encode_targets(self, y, name, dtype):
        """Return non-negative integers as floats; raise ValueError for anything else."""
        return require_counts(y, name, dtype)

    def log_prob(self, f, y):
        """Poisson log-probability y log s − s − log y!, with s = softplus(f)."""
        return y * log_softplus(f) - softplus(f) - gammaln(y + 1)

    def expected_log_prob(self, mean, variance, y):
        """E[log p(y|f)] on equidistant nodes: softplus bends within a unit of f, however wide f is."""
        nodes = trapezoid(mean.dtype)
        return nodes.weights @ self.log_prob(mean + safe_sqrt(variance) * nodes.points[:, 0], y)

    def predictive(self, f, log_weights):
        """Mixtures of Poisson distributions, one component per value of f."""
        return CountPredictive(log_softplus(f).T, log_weights)


def log_softplus(f):
    """Log softplus(f), whose derivatives keep their digits where softplus(f) is next to zero."""
    is_low = f < SERIES_BELOW
    t = jnp.exp(jnp.minimum(f, SERIES_BELOW))
    # log(1 + t) / t − 1
    rest = t * (-1 / 2 + t * (1 / 3 + t * (-1 / 4 + t / 5)))
    return jnp.where(is_low, f + jnp.log1p(rest), jnp.log(softplus(jnp.where(is_low, SERIES_BELOW, f))))
