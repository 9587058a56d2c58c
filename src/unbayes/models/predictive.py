"""Predictive distributions ∫ p(y|x, θ) q(θ) dθ, one per input."""

import abc
from typing import Self

import equinox as eqx
import jax.numpy as jnp
from jax.scipy.special import gammaln, logsumexp, xlogy
from jax.scipy.stats import norm
from jaxtyping import Array, Float, Int


class AbstractPredictive(eqx.Module):
    """A distribution of y for each of n inputs."""

    @abc.abstractmethod
    def log_prob(self, y: Float[Array, " n"]) -> Float[Array, " n"]:
        """Log-probability (or density) of one outcome per input."""

    @abc.abstractmethod
    def kl(self, other: Self) -> Float[Array, " n"]:
        """KL[self‖other] at each input."""

    @abc.abstractmethod
    def decision(self) -> Float[Array, " n"] | Int[Array, " n"]:
        """Best guess: the likeliest class, or the mean."""


class NormalPredictive(AbstractPredictive):
    """Gaussian in y: exact for a Gaussian posterior, matched in mean and variance for any other.

    Attributes
    ----------
    mean, variance
        Shape (n,), noise included.
    """

    mean: Float[Array, " n"]
    variance: Float[Array, " n"]

    def log_prob(self, y):
        """Log-density."""
        return norm.logpdf(y, self.mean, jnp.sqrt(self.variance))

    def kl(self, other):
        """Closed form."""
        ratio = self.variance / other.variance
        return 0.5 * (ratio - 1 - jnp.log(ratio) + (self.mean - other.mean) ** 2 / other.variance)

    def decision(self):
        """The mean."""
        return self.mean


class ClassPredictive(AbstractPredictive):
    """Class probabilities.

    Attributes
    ----------
    log_probabilities
        Shape (n, classes).
    """

    log_probabilities: Float[Array, "n c"]

    @property
    def probabilities(self) -> Float[Array, "n c"]:
        """Probability of each class."""
        return jnp.exp(self.log_probabilities)

    def log_prob(self, y):
        """Log-probability of the given classes."""
        labels = jnp.asarray(y, jnp.int32)
        return jnp.take_along_axis(self.log_probabilities, labels[:, None], axis=1)[:, 0]

    def kl(self, other):
        """Sum over the classes."""
        ratio = self.log_probabilities - other.log_probabilities
        return jnp.where(self.probabilities > 0, self.probabilities * ratio, 0).sum(1)

    def decision(self):
        """The likeliest class."""
        return jnp.argmax(self.log_probabilities, axis=1)


class CountPredictive(AbstractPredictive):
    """Mixture of Poisson distributions.

    Attributes
    ----------
    log_rates
        Shape (n, k), one column per component.
    log_weights
        Shape (k,).
    """

    log_rates: Float[Array, "n k"]
    log_weights: Float[Array, " k"]

    def log_prob(self, y):
        """Log-probability of the given counts, y of shape (n,), or (n, m) for m counts per input."""
        counts = y if y.ndim == 2 else y[:, None]
        rates = self.log_rates[:, None, :]
        each = counts[:, :, None] * rates - jnp.exp(rates) - gammaln(counts + 1)[:, :, None]
        result = logsumexp(each + self.log_weights, axis=2)
        return result if y.ndim == 2 else result[:, 0]

    def kl(self, other):
        """Sum over all counts that either side gives noticeable probability."""
        top = max(self._largest_count(), other._largest_count())
        counts = jnp.arange(top + 1, dtype=self.log_rates.dtype)
        grid = jnp.broadcast_to(counts, (self.log_rates.shape[0], top + 1))
        own = self.log_prob(grid)
        probabilities = jnp.exp(own)
        return (xlogy(probabilities, probabilities) - probabilities * other.log_prob(grid)).sum(1)

    def decision(self):
        """The mean."""
        return jnp.exp(self.log_rates) @ jnp.exp(self.log_weights)

    def _largest_count(self) -> int:
        # Components of negligible weight reach into rates that would make the table enormous.
        rates = jnp.where(self.log_weights > -30, jnp.exp(self.log_rates), 0)
        rate = float(rates.max())
        return int(rate + 12 * rate**0.5 + 20)
