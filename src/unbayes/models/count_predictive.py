"""Predictive distributions of counts, one per input."""

import abc
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, logsumexp
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from unbayes._numerics.quadrature import gauss_hermite
from unbayes._numerics.records import accumulate
from unbayes.models.predictive import AbstractPredictive, NormalPredictive, Surprise

# Inputs × counts whose probabilities are computed at once: tens of megabytes with a thousand components.
COUNTS_AT_ONCE = 1 << 13

# Counts that are summed one by one; larger ones in cells of this width on the scale of √y.
SMALL_COUNTS = 256
CELL = 0.5 / (SMALL_COUNTS - 0.5) ** 0.5
# Rate up to which mixtures are summed over counts, in at most 2¹⁴ cells. Beyond it, the components of a
# thousand draws lie further apart than a Poisson distribution is wide.
LARGEST_SUMMED_RATE = 1e5

# Standard deviations, of the log-rate and of the counts given the rate, beyond which no mass is left.
LOG_RATE_REACH = 7.0
COUNT_REACH = 9.0
# Nodes of the integral over larger counts: at least two per standard deviation, plenty for what is smooth.
COUNT_NODES = 128
# Counts from which Stirling's series for log y! is exact to ten digits.
STIRLING_FROM = 32
# Steps of Newton's method for Lambert's function, which is convex; six reach the last digit.
LAMBERT_STEPS = 8


class AbstractCountPredictive(AbstractPredictive):
    """A distribution over counts."""

    @abc.abstractmethod
    def _log_prob(self, counts: Float[Array, "n m"]) -> Float[Array, "n m"]: ...

    @abc.abstractmethod
    def _largest_log_rate(self) -> Float[Array, " n"]:
        """Log-rate above which next to no probability is left, at each input."""

    @abc.abstractmethod
    def _log_normal(self) -> "LogNormalCountPredictive":
        """The log-normal rate whose logarithm has the same mean and variance."""

    def log_prob(self, y):
        """Log-probability of the given counts, y of shape (n,), or (n, m) for m counts per input."""
        return self._log_prob(y) if y.ndim == 2 else self._log_prob(y[:, None])[:, 0]

    def surprise(self, y):
        """Log-ratio of probabilities, of the likeliest count or one close to it and the given one.

        Mean and variance are those of large counts, which are normal; small ones surprise no more.
        """
        middle = jnp.floor(jnp.exp(self._log_normal().mean))
        tried = self._log_prob(jnp.stack([jnp.zeros_like(middle), middle, y], 1))
        half = jnp.full_like(middle, 0.5)
        return Surprise(tried.max(1) - tried[:, 2], half, half)

    def kl(self, other):
        """KL[self‖other], shape (n,), as a sum over all counts with noticeable probability.

        Where a rate exceeds `LARGEST_SUMMED_RATE`, both sides are first replaced by log-normal rates of the
        same mean and variance on the log scale. Far apart, the components of a mixture are an accident of
        its draws, and so would be their KL.
        """
        log_rate = jnp.maximum(self._largest_log_rate(), other._largest_log_rate())
        is_summed = log_rate <= math.log(LARGEST_SUMMED_RATE)
        if not bool(is_summed.any()):
            return _kl_of_log_normals(self._log_normal(), other._log_normal())
        rate = math.exp(float(log_rate[is_summed].max()))
        cells = int((rate + 12 * rate**0.5 + 20) ** 0.5 / CELL)
        # A power of two, so that not every pair of posteriors compiles anew.
        summed = _kl_over_counts(self, other, 1 << cells.bit_length())
        if bool(is_summed.all()):
            return summed
        return jnp.where(is_summed, summed, _kl_of_log_normals(self._log_normal(), other._log_normal()))


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
        return _divergence(p._log_prob(grid), q._log_prob(grid)) @ widths

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
        counts = jnp.asarray(counts, self.log_rates.dtype)
        each = _poisson_log_prob(counts[:, :, None], self.log_rates[:, None, :])
        return logsumexp(each + self.log_weights, axis=2)

    def decision(self):
        """The mean count at each input."""
        return jnp.exp(self.log_rates) @ jnp.exp(self.log_weights)

    def _largest_log_rate(self):
        return self.log_rates.max(1)

    def _log_normal(self):
        weights = jnp.exp(self.log_weights)
        mean = self.log_rates @ weights
        return LogNormalCountPredictive(mean, (self.log_rates - mean[:, None]) ** 2 @ weights)


class LogNormalCountPredictive(AbstractCountPredictive):
    """Poisson counts whose log-rate is Gaussian.

    Attributes
    ----------
    mean, variance
        Of the log-rate, shape (n,).
    """

    mean: Float[Array, " n"]
    variance: Float[Array, " n"]

    def kl(self, other):
        """KL[self‖other], shape (n,), by a bounded number of nodes however large the rates.

        Small counts are summed one by one. The sum over the others becomes an integral over log y, on nodes
        that follow the distribution. Where all counts are so large that log y is normal, it is the KL between
        two normal distributions.
        """
        if not isinstance(other, LogNormalCountPredictive):
            return super().kl(other)
        return _kl_of_log_normals(self, other)

    def _log_prob(self, counts):
        counts = jnp.asarray(counts, self.mean.dtype)
        log_counts = jnp.log(jnp.maximum(counts, 1))
        is_smooth = counts > _first_smooth_count(counts.dtype)
        return jnp.where(is_smooth, self._smooth_density(log_counts) - log_counts, self._integral(counts))

    def _log_density(self, log_counts):
        """Log-density of log y, as if counts were real numbers: log p(y) + log y."""
        first = _first_smooth_count(log_counts.dtype)
        exact = self._integral(jnp.minimum(jnp.exp(log_counts), first)) + log_counts
        return jnp.where(log_counts > math.log(first), self._smooth_density(log_counts), exact)

    def _smooth_density(self, log_counts):
        """Log-density of log y for large y, to which Poisson noise adds the variance 1/y."""
        variance = self.variance[:, None] + jnp.exp(-log_counts)
        tiny = jnp.finfo(log_counts.dtype).tiny
        return norm.logpdf(log_counts, self.mean[:, None], jnp.sqrt(jnp.maximum(variance, tiny)))

    def _integral(self, counts):
        """Log ∫ Poisson(y|exp f) N(f) df, by Gauss–Hermite nodes around the peak of the integrand.

        Nodes fixed for all counts would lie further apart than a Poisson distribution of large rate is wide.
        """
        mean, variance = self.mean[:, None], self.variance[:, None]
        scale = jnp.sqrt(variance)
        peak, log_rate = _peak(counts, mean, variance)
        width = 1 / jnp.sqrt(variance * jnp.exp(log_rate) + 1)
        nodes = gauss_hermite(mean.dtype)
        z = nodes.points[:, 0]
        u = peak[..., None] + width[..., None] * z
        terms = _poisson_log_prob(counts[..., None], mean[..., None] + scale[..., None] * u)
        return logsumexp(terms + 0.5 * (z**2 - u**2) + jnp.log(nodes.weights), axis=-1) + jnp.log(width)

    def decision(self):
        """The mean count at each input."""
        return jnp.exp(self.mean + 0.5 * self.variance)

    def _largest_log_rate(self):
        return self.mean + LOG_RATE_REACH * jnp.sqrt(self.variance)

    def _log_normal(self):
        return self


@eqx.filter_jit
def _kl_of_log_normals(p: LogNormalCountPredictive, q: LogNormalCountPredictive):
    """Sum over small counts, plus an integral over l = log y for the others.

    Given the rate, and over rates too, log y has a standard deviation of about √(s² + 1/y). The integral runs
    over t = (2/s) asinh(s √y), in which that is one everywhere: Gauss–Legendre nodes in t need no more than a
    fixed number of standard deviations.
    """
    dtype, size = p.mean.dtype, max(COUNTS_AT_ONCE // p.mean.shape[0], 1)
    # A smaller scale makes no difference to counts that are not smooth.
    scale = jnp.sqrt(jnp.maximum(p.variance, jnp.finfo(dtype).eps))
    edge = math.log(SMALL_COUNTS - 0.5)

    def coordinate(log_counts):
        # asinh(x) is log 2x for large x, whose exponential would overflow.
        log_root = jnp.log(scale) + 0.5 * log_counts
        return (
            2
            / scale
            * jnp.where(
                log_root > 10, log_root + math.log(2), jnp.arcsinh(jnp.exp(jnp.minimum(log_root, 10)))
            )
        )

    reach = LOG_RATE_REACH * scale
    start = jnp.maximum(coordinate(p.mean - reach) - COUNT_REACH, coordinate(jnp.full_like(p.mean, edge)))
    stop = jnp.maximum(coordinate(p.mean + reach) + COUNT_REACH, start)

    def small(cells):
        counts, widths = cells
        grid = jnp.broadcast_to(counts, (p.mean.shape[0], counts.shape[0]))
        return _divergence(p._log_prob(grid), q._log_prob(grid)) @ widths

    def large(nodes):
        points, weights = nodes
        t = start[:, None] + (stop - start)[:, None] * points
        half = 0.5 * scale[:, None] * t
        # log y = 2 log(sinh(s t / 2) / s)
        log_counts = 2 * (half + jnp.log(-0.5 * jnp.expm1(-2 * half)) - jnp.log(scale)[:, None])
        slope = jnp.sqrt(scale[:, None] ** 2 + jnp.exp(-log_counts))
        terms = _divergence(p._log_density(log_counts), q._log_density(log_counts))
        return (stop - start) * ((terms * slope) @ weights)

    # A sum over y ≥ a + ½ is the integral from a on, plus a 24th of the slope at a (Euler and Maclaurin).
    widths = np.ones(SMALL_COUNTS + 1)
    widths[-2:] = 23 / 24, 1 / 24
    points, weights = np.polynomial.legendre.leggauss(COUNT_NODES)
    counts = jnp.arange(SMALL_COUNTS + 1, dtype=dtype), jnp.asarray(widths, dtype)
    nodes = jnp.asarray(0.5 * (points + 1), dtype), jnp.asarray(0.5 * weights, dtype)
    integrated = accumulate(small, counts, size) + accumulate(large, nodes, size)
    noise = jnp.maximum(jnp.exp(-p.mean), jnp.finfo(dtype).tiny)
    normal = NormalPredictive(p.mean, p.variance + noise).kl(NormalPredictive(q.mean, q.variance + noise))
    is_smooth = p.mean - reach > math.log(_first_smooth_count(dtype))
    return jnp.where(is_smooth, normal, integrated)


def _divergence(own, other):
    """Terms p (log p − log q) of a divergence, zero where p is."""
    return jnp.where(jnp.exp(own) > 0, jnp.exp(own) * (own - other), 0)


def _first_smooth_count(dtype) -> float:
    """Count from which the normal limit of Poisson noise, off by 1/√y, beats rounding, off by √y."""
    return 0.1 / float(jnp.finfo(dtype).eps)


def _poisson_log_prob(counts, log_rates):
    """Log Poisson(y|eᶠ), with y (d + 1 − eᵈ), d = f − log y, for large y.

    The large terms of y f − eᶠ − log y! cancel, and with them the digits.
    """
    is_large = counts > STIRLING_FROM
    y = jnp.where(is_large, counts, STIRLING_FROM)
    difference = log_rates - jnp.log(y)
    series = 0.5 * jnp.log(2 * math.pi * y) + 1 / (12 * y) - 1 / (360 * y**3)
    large = y * (difference - jnp.expm1(difference)) - series
    return jnp.where(is_large, large, counts * log_rates - jnp.exp(log_rates) - gammaln(counts + 1))


def _peak(counts, mean, variance):
    """Peak of y f − eᶠ − (f − mean)² / (2 variance): its (f − mean) / scale, and its f.

    There, w = variance · eᶠ solves w + log w = log variance + mean + variance · y: it is a value of Lambert's
    function. Newton's method for log w converges from above.
    """
    variance = jnp.maximum(variance, 1e-30)
    added = variance * counts
    total = jnp.log(variance) + mean + added

    def newton_step(_, log_w):
        return log_w - (log_w + jnp.exp(log_w) - total) / (1 + jnp.exp(log_w))

    start = jnp.where(total > 1, jnp.log(jnp.maximum(total, 1)), total)
    log_w = jax.lax.fori_loop(0, LAMBERT_STEPS, newton_step, start)
    # Both forms are exact; each keeps its digits on its own side.
    log_rate = jnp.where(added < 1, mean + added - jnp.exp(log_w), log_w - jnp.log(variance))
    scale = jnp.sqrt(variance)
    return jnp.where(added < 1, scale * (counts - jnp.exp(log_rate)), (log_rate - mean) / scale), log_rate
