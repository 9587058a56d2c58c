"""Exact beliefs: conjugate families beside the Gaussian, and a table over finitely many θ.

Each stores its parameters so that a record adds a constant to them, which is all that exact unlearning,
equation (2), asks for.
"""

from typing import ClassVar, Self

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.special import betaln, digamma, gammaln, logsumexp
from jax.scipy.stats import beta, dirichlet, gamma
from jaxtyping import Array, Float, PRNGKeyArray

from unbayes._storable import Storable
from unbayes._validation import require_positive
from unbayes.posteriors.base import AbstractExponentialFamily, float_array
from unbayes.posteriors.gaussian import LOG_2PI, FullGaussian
from unbayes.posteriors.natural import GaussianNatural
from unbayes.posteriors.precision import DensePrecision


class Beta(AbstractExponentialFamily):
    """Beta(a, b) over a probability; θ has length one.

    Parameters
    ----------
    successes, failures
        a and b, prior pseudo-counts included.
    """

    positive_fields: ClassVar[tuple[str, ...]] = ("successes", "failures")

    successes: Float[Array, ""]
    failures: Float[Array, ""]

    def __init__(self, successes, failures):
        self.successes = float_array(successes)
        self.failures = jnp.asarray(failures, self.dtype)

    @property
    def dim(self) -> int:
        """Length of θ, which is one."""
        return 1

    @property
    def dtype(self) -> jnp.dtype:
        """Floating-point type."""
        return self.successes.dtype

    @property
    def natural(self):
        """The pseudo-counts of successes and of failures."""
        return self.successes, self.failures

    def with_natural(self, natural) -> Self:
        """Beta with other pseudo-counts."""
        return type(self)(*natural)

    def evidence_left(self, natural, prior: Self):
        """Least share of a count that is left."""
        return _least_share_left(self.natural, natural, prior.natural)

    def _sample(self, key):
        return jr.beta(key, self.successes, self.failures, (1,), self.dtype)

    def _log_prob(self, theta):
        return beta.logpdf(theta[0], self.successes, self.failures)

    def mode(self, key: PRNGKeyArray | None = None) -> Float[Array, "1"]:
        """Inner mode where a, b > 1, else the nearer end of the interval."""
        a, b = self.successes, self.failures
        inner = (a - 1) / (a + b - 2)
        edge = jnp.where(a >= b, 1.0, 0.0)
        return jnp.where((a > 1) & (b > 1), inner, edge)[None]

    def entropy(self):
        """Entropy in nats."""
        a, b = self.natural
        rest = (a - 1) * digamma(a) + (b - 1) * digamma(b) - (a + b - 2) * digamma(a + b)
        return betaln(a, b) - rest


class Dirichlet(AbstractExponentialFamily):
    """Dirichlet over k class probabilities.

    Parameters
    ----------
    counts
        Pseudo-counts α, shape (k,).
    """

    positive_fields: ClassVar[tuple[str, ...]] = ("counts",)

    counts: Float[Array, " k"]

    def __init__(self, counts):
        self.counts = float_array(counts)

    @property
    def dim(self) -> int:
        """Number of classes."""
        return self.counts.shape[-1]

    @property
    def dtype(self) -> jnp.dtype:
        """Floating-point type."""
        return self.counts.dtype

    @property
    def natural(self):
        """The pseudo-counts."""
        return self.counts

    def with_natural(self, natural) -> Self:
        """Dirichlet with other pseudo-counts."""
        return type(self)(natural)

    def evidence_left(self, natural, prior: Self):
        """Least share of a count that is left."""
        return _least_share_left(self.natural, natural, prior.natural)

    def _sample(self, key):
        return jr.dirichlet(key, self.counts, dtype=self.dtype)

    def _log_prob(self, theta):
        return dirichlet.logpdf(theta, self.counts)

    def mode(self, key: PRNGKeyArray | None = None) -> Float[Array, " k"]:
        """Mode of the density; classes with a pseudo-count below one get probability zero."""
        excess = jnp.maximum(self.counts - 1, 0)
        return jnp.where(excess.sum() > 0, excess / excess.sum(), 1 / self.dim)

    def entropy(self):
        """Entropy in nats."""
        total = self.counts.sum()
        log_norm = gammaln(self.counts).sum() - gammaln(total)
        rest = ((self.counts - 1) * digamma(self.counts)).sum()
        return log_norm + (total - self.dim) * digamma(total) - rest


class Gamma(AbstractExponentialFamily):
    """Gamma(shape, rate) over a positive rate; θ has length one.

    Parameters
    ----------
    shape, rate
        Positive numbers, prior included.
    """

    positive_fields: ClassVar[tuple[str, ...]] = ("shape", "rate")

    shape: Float[Array, ""]
    rate: Float[Array, ""]

    def __init__(self, shape, rate):
        self.shape = float_array(shape)
        self.rate = jnp.asarray(rate, self.dtype)

    @property
    def dim(self) -> int:
        """Length of θ, which is one."""
        return 1

    @property
    def dtype(self) -> jnp.dtype:
        """Floating-point type."""
        return self.shape.dtype

    @property
    def natural(self):
        """Shape and rate."""
        return self.shape, self.rate

    def with_natural(self, natural) -> Self:
        """Gamma with other shape and rate."""
        return type(self)(*natural)

    def evidence_left(self, natural, prior: Self):
        """Least share left of the sum of counts, or of the number of records."""
        return _least_share_left(self.natural, natural, prior.natural)

    def _sample(self, key):
        return jr.gamma(key, self.shape, (1,), self.dtype) / self.rate

    def _log_prob(self, theta):
        return gamma.logpdf(theta[0] * self.rate, self.shape) + jnp.log(self.rate)

    def mode(self, key: PRNGKeyArray | None = None) -> Float[Array, "1"]:
        """Mode of the density, zero where the shape is below one."""
        return (jnp.maximum(self.shape - 1, 0) / self.rate)[None]

    def entropy(self):
        """Entropy in nats."""
        return self.shape - jnp.log(self.rate) + gammaln(self.shape) + (1 - self.shape) * digamma(self.shape)


class RegressionNatural(Storable):
    """Natural parameters of a normal–inverse-gamma belief: what records of a regression add to."""

    gaussian: GaussianNatural
    shape: Float[Array, ""]
    energy: Float[Array, ""]


class NormalInverseGamma(AbstractExponentialFamily):
    """Weights w | σ² ~ N(m, σ²Λ⁻¹) and noise variance σ² ~ InverseGamma(a, b); θ = (w, σ²), d = p + 1.

    Parameters
    ----------
    linear, precision
        Λm, shape (p,), and Λ, shape (p, p).
    shape
        a.
    energy
        b + ½ mᵀΛm, the form of b to which records add.
    """

    linear: Float[Array, " p"]
    precision: Float[Array, "p p"]
    shape: Float[Array, ""]
    energy: Float[Array, ""]

    def __init__(self, linear, precision, shape, energy):
        self.linear = float_array(linear)
        self.precision = jnp.asarray(precision, self.dtype)
        self.shape = jnp.asarray(shape, self.dtype)
        self.energy = jnp.asarray(energy, self.dtype)

    @property
    def dim(self) -> int:
        """Number of weights, plus one for σ²."""
        return self.linear.shape[-1] + 1

    @property
    def dtype(self) -> jnp.dtype:
        """Floating-point type."""
        return self.linear.dtype

    def require_valid(self) -> None:
        """Refuse a precision that is not positive definite, and noise that is not positive."""
        require_positive("shape", self.shape)
        try:
            factor = np.linalg.cholesky(np.asarray(self.precision, np.float64))
        except np.linalg.LinAlgError:
            raise ValueError("precision must be positive definite, and is not") from None
        explained = np.linalg.solve(factor, np.asarray(self.linear, np.float64))
        if not 2 * float(self.energy) > explained @ explained:
            raise ValueError("energy must exceed ½ mᵀΛm, and does not")

    @property
    def unit_noise(self) -> FullGaussian:
        """Belief over the weights were σ² = 1."""
        return FullGaussian.from_natural(self.natural.gaussian)

    @property
    def scale(self) -> Float[Array, ""]:
        """B of the inverse gamma."""
        return self.energy - 0.5 * self.linear @ self.unit_noise.mean

    @property
    def natural(self) -> RegressionNatural:
        """Natural parameters."""
        gaussian = GaussianNatural(self.linear, DensePrecision(self.precision))
        return RegressionNatural(gaussian, self.shape, self.energy)

    def with_natural(self, natural: RegressionNatural) -> Self:
        """Member with other natural parameters."""
        linear, precision = natural.gaussian.linear, natural.gaussian.precision.matrix
        return type(self)(linear, precision, natural.shape, natural.energy)

    def evidence_left(self, natural: RegressionNatural, prior: Self):
        """Least share left of the precision, of the number of records and of their noise."""
        direction = self.unit_noise.evidence_left(natural.gaussian, prior.unit_noise)
        after = self.with_natural(natural)
        noise = _least_share_left((self.shape, self.scale), (after.shape, after.scale), (prior.shape, 0.0))
        # Without a positive definite precision there is no noise to speak of: NaN, which fmin passes over.
        return jnp.fmin(direction, noise)

    def _sample(self, key):
        variance_key, weight_key = jr.split(key)
        variance = self.scale / jr.gamma(variance_key, self.shape, dtype=self.dtype)
        centred = self.unit_noise.colour(jr.normal(weight_key, self.linear.shape, self.dtype))
        mean = self.unit_noise.mean
        return jnp.append(mean + jnp.sqrt(variance) * (centred - mean), variance)

    def _log_prob(self, theta):
        weights, inside = theta[:-1], theta[-1] > 0
        variance = jnp.where(inside, theta[-1], 1)
        belief = self.unit_noise
        size = self.linear.shape[-1]
        squares = (belief.whiten(weights) ** 2).sum() / variance
        log_weights = -0.5 * (squares + size * (LOG_2PI + jnp.log(variance))) - belief.log_det_scale
        log_variance = (
            self.shape * jnp.log(self.scale)
            - gammaln(self.shape)
            - (self.shape + 1) * jnp.log(variance)
            - self.scale / variance
        )
        return jnp.where(inside, log_weights + log_variance, -jnp.inf)

    def mode(self, key: PRNGKeyArray | None = None) -> Float[Array, " d"]:
        """Joint mode of weights and noise variance."""
        return jnp.append(self.unit_noise.mean, self.scale / (self.shape + 0.5 * self.linear.shape[-1] + 1))

    def entropy(self):
        """Entropy in nats."""
        expected_log_variance = jnp.log(self.scale) - digamma(self.shape)
        size = self.linear.shape[-1]
        weights = self.unit_noise.entropy() + 0.5 * size * expected_log_variance
        variance = (
            self.shape + jnp.log(self.scale) + gammaln(self.shape) - (1 + self.shape) * digamma(self.shape)
        )
        return weights + variance


class Table(AbstractExponentialFamily):
    """Belief over finitely many values of θ, conjugate to every likelihood.

    Parameters
    ----------
    values
        The k possible θ, shape (k, d).
    log_prob
        Their log-probabilities, shape (k,); normalised on the way in.
    """

    # A value of θ may have probability zero.
    infinite_fields: ClassVar[tuple[str, ...]] = ("natural_log_prob",)

    values: Float[Array, "k d"]
    natural_log_prob: Float[Array, " k"]

    def __init__(self, values, log_prob):
        self.values = float_array(values)
        log_prob = jnp.asarray(log_prob, self.values.dtype)
        self.natural_log_prob = log_prob - logsumexp(log_prob)

    @property
    def dim(self) -> int:
        """Length d of θ."""
        return self.values.shape[-1]

    @property
    def dtype(self) -> jnp.dtype:
        """Floating-point type."""
        return self.values.dtype

    @property
    def probabilities(self) -> Float[Array, " k"]:
        """Probability of each value."""
        return jnp.exp(self.natural_log_prob)

    def require_valid(self) -> None:
        """Refuse a table in which no value is possible."""
        if not np.isfinite(np.asarray(self.natural_log_prob).max(initial=-np.inf)):
            raise ValueError("natural_log_prob must have a finite maximum, and has none")

    @property
    def natural(self):
        """Log-probabilities: to these, records add their log-likelihood at each value."""
        return self.natural_log_prob

    def with_natural(self, natural) -> Self:
        """Table over the same values."""
        return type(self)(self.values, natural)

    def evidence_left(self, natural, prior):
        """Any change of a table can have come from data: the whole share."""
        return jnp.ones((), self.dtype)

    def _sample(self, key):
        return self.values[jr.categorical(key, self.natural_log_prob)]

    def _log_prob(self, theta):
        here = (self.values == theta).all(-1)
        return logsumexp(jnp.where(here, self.natural_log_prob, -jnp.inf))

    def mode(self, key: PRNGKeyArray | None = None) -> Float[Array, " d"]:
        """The likeliest value."""
        return self.values[jnp.argmax(self.natural_log_prob)]

    def entropy(self):
        """Entropy in nats."""
        return -jnp.sum(self.probabilities * jnp.where(self.probabilities > 0, self.natural_log_prob, 0))


def _least_share_left(before, after, prior) -> Float[Array, ""]:
    """Smallest (after − prior) / before over all entries."""
    shares = [
        jnp.min((jnp.asarray(a) - p) / b)
        for b, a, p in zip(_leaves(before), _leaves(after), _leaves(prior), strict=True)
    ]
    return jnp.min(jnp.stack(shares))


def _leaves(natural):
    return natural if isinstance(natural, tuple) else (natural,)
