"""Predictive distributions ∫ p(y|x, θ) q(θ) dθ, one per input."""

import abc
from typing import NamedTuple, Self

import equinox as eqx
import jax.numpy as jnp
from jax.scipy.stats import norm
from jaxtyping import Array, Float, Int


class Surprise(NamedTuple):
    """Nats by which outcomes fall short of the likeliest ones, and what was to be expected of that.

    Attributes
    ----------
    value
        Log-probability of the likeliest outcome less that of the given one, shape (n,).
    mean, variance
        Of the same under the predictive distribution, shape (n,).
    """

    value: Float[Array, " n"]
    mean: Float[Array, " n"]
    variance: Float[Array, " n"]


class AbstractPredictive(eqx.Module):
    """A distribution of y for each of n inputs."""

    @abc.abstractmethod
    def log_prob(self, y: Float[Array, " n"]) -> Float[Array, " n"]:
        """Log-probability (or density) of one outcome per input."""

    def surprise(self, y: Float[Array, " n"]) -> Surprise | None:
        """How improbable each outcome is; None where that is not known."""
        return None

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
        """Normal log-density of y, shape (n,)."""
        return norm.logpdf(y, self.mean, jnp.sqrt(self.variance))

    def surprise(self, y):
        """Half the squared distance from the mean, in standard deviations, of mean and variance ½."""
        half = jnp.full_like(self.mean, 0.5)
        return Surprise(0.5 * (y - self.mean) ** 2 / self.variance, half, half)

    def kl(self, other):
        """KL[self‖other] of two normal distributions, shape (n,), in closed form."""
        ratio = self.variance / other.variance
        return 0.5 * (ratio - 1 - jnp.log(ratio) + (self.mean - other.mean) ** 2 / other.variance)

    def decision(self):
        """The mean at each input."""
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
        """Probability of each class, shape (n, classes)."""
        return jnp.exp(self.log_probabilities)

    def log_prob(self, y):
        """Log-probability of the given class numbers, shape (n,)."""
        labels = jnp.asarray(y, jnp.int32)
        return jnp.take_along_axis(self.log_probabilities, labels[:, None], axis=1)[:, 0]

    def surprise(self, y):
        """Log-odds of the likeliest class against the given one."""
        most = self.log_probabilities.max(1)
        short = jnp.where(self.probabilities > 0, most[:, None] - self.log_probabilities, 0)
        mean = (self.probabilities * short).sum(1)
        variance = (self.probabilities * (short - mean[:, None]) ** 2).sum(1)
        return Surprise(most - self.log_prob(y), mean, variance)

    def kl(self, other):
        """KL[self‖other], shape (n,), as a sum over the classes."""
        ratio = self.log_probabilities - other.log_probabilities
        return jnp.where(self.probabilities > 0, self.probabilities * ratio, 0).sum(1)

    def decision(self):
        """The likeliest class at each input."""
        return jnp.argmax(self.log_probabilities, axis=1)
