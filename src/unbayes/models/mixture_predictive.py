"""Predictive distributions that are mixtures of bell-shaped densities."""

import abc

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from unbayes.models.predictive import AbstractPredictive

# Integrals over y run over t, y = centre + width · sinh(t), in which tails of every power fall off
# exponentially: the density beyond this t is below rounding for two degrees of freedom and more.
TAIL_REACH = 15.0
# Nodes of these integrals: a tenth of a width apart at the centre.
TAIL_NODES = 301


class AbstractMixturePredictive(AbstractPredictive):
    """A mixture at each of n inputs.

    Attributes
    ----------
    locations
        Shape (n, k), one column per component.
    log_weights
        Shape (k,).
    """

    locations: eqx.AbstractVar[Float[Array, "n k"]]
    log_weights: eqx.AbstractVar[Float[Array, " k"]]

    @abc.abstractmethod
    def component_log_prob(self, y: Float[Array, "n m 1"]) -> Float[Array, "n m k"]:
        """Log-density of each component at m values of y for each input."""

    @abc.abstractmethod
    def component_variance(self) -> Float[Array, " n"]:
        """Squared scale of the components, on average."""

    def log_prob(self, y):
        """Log-density of y, shape (n,)."""
        return self._log_prob(jnp.asarray(y)[:, None])[:, 0]

    def _log_prob(self, y: Float[Array, "n m"]) -> Float[Array, "n m"]:
        return logsumexp(self.component_log_prob(y[:, :, None]) + self.log_weights, axis=2)

    def kl(self, other):
        """KL[self‖other], shape (n,), integrated over y."""
        t = jnp.asarray(np.linspace(-TAIL_REACH, TAIL_REACH, TAIL_NODES), self.locations.dtype)
        mean = self.decision()
        spread = (self.locations - mean[:, None]) ** 2 @ jnp.exp(self.log_weights)
        width = jnp.sqrt(self.component_variance() + spread)[:, None]
        y = mean[:, None] + width * jnp.sinh(t)
        own, others = self._log_prob(y), other._log_prob(y)
        density = jnp.exp(own)
        terms = jnp.where(density > 0, density * (own - others), 0)
        return (terms * width * jnp.cosh(t)).sum(1) * (t[1] - t[0])

    def decision(self):
        """The mean at each input."""
        return self.locations @ jnp.exp(self.log_weights)


class NormalMixturePredictive(AbstractMixturePredictive):
    """Mixture of normal distributions.

    Attributes
    ----------
    locations, scales
        Means and standard deviations, shape (n, k), one column per component.
    log_weights
        Shape (k,).
    """

    locations: Float[Array, "n k"]
    scales: Float[Array, "n k"]
    log_weights: Float[Array, " k"]

    @property
    def mean(self) -> Float[Array, " n"]:
        """Mean at each input."""
        return self.decision()

    @property
    def variance(self) -> Float[Array, " n"]:
        """Variance at each input."""
        spread = (self.locations - self.mean[:, None]) ** 2 @ jnp.exp(self.log_weights)
        return self.component_variance() + spread

    def component_log_prob(self, y):
        """Normal log-densities."""
        return norm.logpdf(y, self.locations[:, None, :], self.scales[:, None, :])

    def component_variance(self):
        """Variance of the components, on average."""
        return self.scales**2 @ jnp.exp(self.log_weights)
