"""Predictive distributions that are mixtures of bell-shaped densities."""

import abc

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from unbayes.models.predictive import AbstractPredictive

# Nodes of integrals over t, y = centre + width · sinh(t): they are dense at the centre of y and
# reach far, and tails of every power fall off exponentially.
TAIL_NODES = 301
# Standard deviations of a normal component beyond which its density is below rounding.
NORMAL_REACH = 9.0


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
    def component_scale(self) -> Float[Array, "*n"]:
        """Scale of the components, as a geometric mean: the large ones are resolved with the small ones."""

    @abc.abstractmethod
    def reach(self, width: Float[Array, "n 1"]) -> Float[Array, "*n"]:
        """Largest t that integrals need, of that width: beyond, the density is below rounding."""

    def log_prob(self, y):
        """Log-density of y, shape (n,)."""
        return self._log_prob(jnp.asarray(y)[:, None])[:, 0]

    def _log_prob(self, y: Float[Array, "n m"]) -> Float[Array, "n m"]:
        return logsumexp(self.component_log_prob(y[:, :, None]) + self.log_weights, axis=2)

    def kl(self, other):
        """KL[self‖other], shape (n,), integrated over y."""
        mean = self.decision()
        spread = (self.locations - mean[:, None]) ** 2 @ jnp.exp(self.log_weights)
        width = jnp.sqrt(self.component_scale() ** 2 + spread)[:, None]
        reach = self.reach(width)
        t = reach * jnp.asarray(np.linspace(-1, 1, TAIL_NODES), mean.dtype)
        y = mean[:, None] + width * jnp.sinh(t)
        own, others = self._log_prob(y), other._log_prob(y)
        density = jnp.exp(own)
        terms = jnp.where(density > 0, density * (own - others), 0)
        return (terms * width * jnp.cosh(t) * reach).sum(1) * (2 / (TAIL_NODES - 1))

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
        return self.scales**2 @ jnp.exp(self.log_weights) + spread

    def component_log_prob(self, y):
        """Normal log-densities."""
        return norm.logpdf(y, self.locations[:, None, :], self.scales[:, None, :])

    def component_scale(self):
        """Standard deviation of the components, as a geometric mean."""
        return jnp.exp(jnp.log(self.scales) @ jnp.exp(self.log_weights))

    def reach(self, width):
        """To where the widest and the farthest component end."""
        farthest = jnp.abs(self.locations - self.mean[:, None]).max(1) + NORMAL_REACH * self.scales.max(1)
        return jnp.arcsinh(farthest[:, None] / width)
