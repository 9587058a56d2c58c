"""Predictive distributions ∫ p(y|x, θ) q(θ) dθ, one per input."""

import abc
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln, logsumexp
from jax.scipy.stats import norm
from jaxtyping import Array, Float, Int

from unbayes.quadrature import gauss_hermite
from unbayes.records import accumulate

# Inputs × counts whose probabilities are computed at once: tens of megabytes with a thousand components.
COUNTS_AT_ONCE = 1 << 13

# Counts that are summed one by one; larger ones in cells of this width on the scale of √y.
SMALL_COUNTS = 256
CELL = 0.5 / (SMALL_COUNTS - 0.5) ** 0.5


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


class AbstractCountPredictive(AbstractPredictive):
    """A distribution over counts."""

    @abc.abstractmethod
    def _log_prob(self, counts: Float[Array, "n m"]) -> Float[Array, "n m"]: ...

    @abc.abstractmethod
    def _largest_rate(self) -> Float[Array, ""]:
        """Rate above which next to no probability is left, over all inputs."""

    def log_prob(self, y):
        """Log-probability of the given counts, y of shape (n,), or (n, m) for m counts per input."""
        return self._log_prob(y) if y.ndim == 2 else self._log_prob(y[:, None])[:, 0]

    def kl(self, other):
        """Sum over all counts that either side gives noticeable probability."""
        rate = max(float(self._largest_rate()), float(other._largest_rate()))
        cells = int((rate + 12 * rate**0.5 + 20) ** 0.5 / CELL)
        # A power of two, so that not every pair of posteriors compiles anew.
        return _kl_over_counts(self, other, 1 << cells.bit_length())


@eqx.filter_jit
def _kl_over_counts(p: AbstractCountPredictive, q: AbstractCountPredictive, cells: int):
    """Sum over small counts one by one, and over the others in cells.

    On the scale of √y a Poisson distribution is half a unit wide whatever its rate, and mixtures of Poisson
    distributions are no rougher: cells of constant width in √y lose nothing.
    """
    means = p.decision()
    roots = (SMALL_COUNTS - 0.5) ** 0.5 + CELL * (jnp.arange(cells, dtype=means.dtype) + 0.5)
    counts = jnp.concatenate([jnp.arange(SMALL_COUNTS, dtype=means.dtype), roots**2 + CELL**2 / 12])
    widths = jnp.concatenate([jnp.ones(SMALL_COUNTS, means.dtype), 2 * CELL * roots])

    def part(cells):
        counts, widths = cells
        grid = jnp.broadcast_to(counts, (means.shape[0], counts.shape[0]))
        own = p._log_prob(grid)
        return jnp.where(jnp.exp(own) > 0, jnp.exp(own) * (own - q._log_prob(grid)), 0) @ widths

    return accumulate(part, (counts, widths), max(COUNTS_AT_ONCE // means.shape[0], 1))


class CountPredictive(AbstractCountPredictive):
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

    def _log_prob(self, counts):
        rates = self.log_rates[:, None, :]
        each = counts[:, :, None] * rates - jnp.exp(rates) - gammaln(counts + 1)[:, :, None]
        return logsumexp(each + self.log_weights, axis=2)

    def decision(self):
        """The mean."""
        return jnp.exp(self.log_rates) @ jnp.exp(self.log_weights)

    def _largest_rate(self):
        return jnp.exp(self.log_rates.max())


class LogNormalCountPredictive(AbstractCountPredictive):
    """Poisson counts whose log-rate is Gaussian.

    Attributes
    ----------
    mean, variance
        Of the log-rate, shape (n,).
    """

    mean: Float[Array, " n"]
    variance: Float[Array, " n"]

    def _log_prob(self, counts):
        """Log ∫ Poisson(y|exp f) N(f) df, by Gauss–Hermite nodes around the peak of the integrand.

        Nodes fixed for all counts would lie further apart than a Poisson distribution of large rate is wide.
        """
        mean, scale = self.mean[:, None], jnp.sqrt(self.variance)[:, None]

        def climb(_, u):
            rate = jnp.exp(mean + scale * u)
            return u + (scale * (counts - rate) - u) / (scale**2 * rate + 1)

        log_count = jnp.log(jnp.maximum(counts, 0.5))
        start = scale * counts * (log_count - mean) / (scale**2 * counts + 1)
        peak = jax.lax.fori_loop(0, 20, climb, start)
        width = 1 / jnp.sqrt(scale**2 * jnp.exp(mean + scale * peak) + 1)
        nodes = gauss_hermite(mean.dtype)
        z = nodes.points[:, 0]
        u = peak[..., None] + width[..., None] * z
        f = mean[..., None] + scale[..., None] * u
        terms = counts[..., None] * f - jnp.exp(f) + 0.5 * (z**2 - u**2) + jnp.log(nodes.weights)
        return logsumexp(terms, axis=-1) + jnp.log(width) - gammaln(counts + 1)

    def decision(self):
        """The mean."""
        return jnp.exp(self.mean + 0.5 * self.variance)

    def _largest_rate(self):
        return jnp.exp((self.mean + 7 * jnp.sqrt(self.variance)).max())
