"""Likelihoods p(y|f) of a predictor f, written for one record."""

import abc
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import log_softmax, one_hot, sigmoid
from jax.scipy.special import gammaln, log_ndtr, logsumexp, ndtr
from jax.scipy.stats import norm
from jaxtyping import Array, Float
from scipy.linalg import helmert

from unbayes.models.predictive import (
    AbstractPredictive,
    ClassPredictive,
    CountPredictive,
    LogNormalCountPredictive,
    NormalPredictive,
)
from unbayes.posteriors.gaussian import LOG_2PI
from unbayes.posteriors.gram import mean_outer
from unbayes.quadrature import gauss_hermite, gauss_laguerre, safe_sqrt, trapezoid
from unbayes.records import to_float_array

# Standard deviation of f, in log-odds, from which quadrature over the log-odds beats that over the noise.
WIDE = 1.8


@jax.custom_jvp
def log_sigmoid(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Log σ(x); its derivative σ(−x) comes from the same exponential."""
    return _log_sigmoid_and_slope(x)[0]


@log_sigmoid.defjvp
def _log_sigmoid_jvp(primals, tangents):
    value, slope = _log_sigmoid_and_slope(*primals)
    return value, slope * tangents[0]


def _log_sigmoid_and_slope(x):
    is_positive = x >= 0
    small = jnp.exp(jnp.where(is_positive, -x, x))
    return jnp.minimum(x, 0) - jnp.log1p(small), jnp.where(is_positive, small, 1) / (1 + small)


class Integrals(NamedTuple):
    """E[log p(y|f)], E[∇ log p(y|f)] and −E[∇² log p(y|f)] of a Gaussian f."""

    value: Float[Array, "..."]
    slope: Float[Array, "..."]
    curvature: Float[Array, "..."]


class AbstractLikelihood(eqx.Module):
    """p(y|f) for a predictor f with `outputs` entries; a scalar where that is one."""

    outputs: eqx.AbstractVar[int]

    @property
    def integral_dim(self) -> int:
        """Directions of f that log p(y|f) depends on: the first so many rows of `rotation`."""
        return self.outputs

    def rotation(self, dtype: jnp.dtype) -> Float[Array, "o o"]:
        """Orthonormal coordinates of f."""
        return jnp.eye(self.outputs, dtype=dtype)

    @abc.abstractmethod
    def encode_targets(self, y, name: str, dtype: jnp.dtype) -> Array:
        """Check y and give it the type that `log_prob` wants."""

    @abc.abstractmethod
    def log_prob(self, f: Float[Array, "..."], y: Array) -> Float[Array, ""]:
        """Log p(y|f) of one record; f has shape () or (outputs,)."""

    @abc.abstractmethod
    def predictive(self, f: Float[Array, "k n ..."], log_weights: Float[Array, " k"]) -> AbstractPredictive:
        """Predictive distributions from weighted values of f, k of them for each of n inputs."""

    def integrals_at(self, f: Float[Array, "o k"], y: Array, weights: Float[Array, " k"]) -> Integrals:
        """Integrals of one record with several outputs, as weighted sums over k values of f."""
        derivatives = self.log_prob, jax.grad(self.log_prob), jax.hessian(self.log_prob)
        value, slope, bend = (
            jnp.tensordot(weights, jax.vmap(each, (1, None))(f, y), 1) for each in derivatives
        )
        return Integrals(value, slope, -bend)

    def expected_log_prob(
        self, mean: Float[Array, ""], variance: Float[Array, ""], y: Array
    ) -> Float[Array, ""]:
        """E[log p(y|f)] for scalar f ~ N(mean, variance), by Gauss–Hermite quadrature."""
        nodes = gauss_hermite(mean.dtype)
        f = mean + safe_sqrt(variance) * nodes.points[:, 0]
        return nodes.weights @ jax.vmap(self.log_prob, (0, None))(f, y)

    def expected_log_probs(
        self, mean: Float[Array, " n"], variance: Float[Array, " n"], y: Array
    ) -> Float[Array, " n"]:
        """`expected_log_prob` of every record."""
        return jax.vmap(self.expected_log_prob)(mean, variance, y)

    def integrals(self, mean: Float[Array, " n"], variance: Float[Array, " n"], y: Array) -> Integrals:
        """Integrals for scalar f ~ N(mean, variance), record by record."""
        slope = jax.grad(self.expected_log_prob)
        arguments = (mean, variance, y)
        return Integrals(
            self.expected_log_probs(*arguments),
            jax.vmap(slope)(*arguments),
            -jax.vmap(jax.grad(slope))(*arguments),
        )

    def gaussian_predictive(
        self, mean: Float[Array, " n"], variance: Float[Array, " n"]
    ) -> AbstractPredictive:
        """Predictive distributions for scalar f ~ N(mean, variance), by Gauss–Hermite quadrature."""
        nodes = gauss_hermite(mean.dtype)
        return self.predictive(mean + jnp.sqrt(variance) * nodes.points, jnp.log(nodes.weights))


class GaussianLikelihood(AbstractLikelihood):
    """y = f + noise, with known standard deviation `noise_scale`."""

    noise_scale: Float[Array, ""]
    outputs: int = eqx.field(static=True, default=1)

    def __init__(self, noise_scale):
        self.noise_scale = jnp.asarray(noise_scale, jnp.result_type(float))
        self.outputs = 1

    def encode_targets(self, y, name, dtype):
        """Any real number."""
        return to_float_array(y, name, dtype, (None,))

    def log_prob(self, f, y):
        """Normal log-density."""
        return norm.logpdf(y, f, self.noise_scale)

    def expected_log_prob(self, mean, variance, y):
        """Closed form."""
        noise = self.noise_scale**2
        return -0.5 * (LOG_2PI + jnp.log(noise) + ((y - mean) ** 2 + variance) / noise)

    def predictive(self, f, log_weights):
        """Normal with the mean and variance of the mixture."""
        weights = jnp.exp(log_weights)
        mean = weights @ f
        return NormalPredictive(mean, weights @ (f - mean) ** 2 + self.noise_scale**2)

    def gaussian_predictive(self, mean, variance):
        """Closed form."""
        return NormalPredictive(mean, variance + self.noise_scale**2)


class BernoulliLikelihood(AbstractLikelihood):
    """y ∈ {0, 1} with log-odds f."""

    outputs: int = eqx.field(static=True, default=1)

    def encode_targets(self, y, name, dtype):
        """Labels 0 and 1, as floats."""
        labels = to_float_array(y, name, dtype, (None,))
        return _require_labels(labels, 2, name)

    def log_prob(self, f, y):
        """Log σ(±f)."""
        return log_sigmoid((2 * y - 1) * f)

    def expected_log_prob(self, mean, variance, y):
        """Gauss–Hermite where f is narrow, else by log σ(f) = min(f, 0) − log(1 + e^{−|f|}), term by term.

        The first term has a closed form. The second is a bump of width one, which Gauss–Hermite nodes of a
        wide f would step over.
        """
        narrow = self._expected_if_narrow(mean, variance, y)
        mean = (2 * y - 1) * mean
        scale, is_wide = _wide_scale(variance)
        ramp = mean * ndtr(-mean / scale) - scale * norm.pdf(mean / scale)
        half_line = gauss_laguerre(mean.dtype)
        x = half_line.points[:, 0]
        both_sides = norm.pdf(x, mean, scale) + norm.pdf(-x, mean, scale)
        bump = half_line.weights @ (jnp.log1p(jnp.exp(-x)) * both_sides)
        return jnp.where(is_wide, ramp - bump, narrow)

    def expected_log_probs(self, mean, variance, y):
        """The part for wide f only where some are."""
        _, is_wide = _wide_scale(variance)
        expected = [jax.vmap(each) for each in (self.expected_log_prob, self._expected_if_narrow)]
        return jax.lax.cond(is_wide.any(), *expected, mean, variance, y)

    def _expected_if_narrow(self, mean, variance, y):
        nodes = gauss_hermite(mean.dtype, 32)
        return nodes.weights @ self.log_prob(mean + safe_sqrt(variance) * nodes.points[:, 0], y)

    def integrals(self, mean, variance, y):
        """As `expected_log_prob`, with ±E[σ(∓f)] and E[σ(f)(1 − σ(f))] from the same exponentials."""
        side = 2 * y - 1
        mean = side * mean
        nodes = gauss_hermite(mean.dtype, 32)
        f = mean[:, None] + safe_sqrt(variance)[:, None] * nodes.points[:, 0]
        value, wrong = _log_sigmoid_and_slope(f)
        narrow = [each @ nodes.weights for each in (value, wrong, wrong * (1 - wrong))]
        scale, is_wide = _wide_scale(variance)

        def with_wide():
            half_line = gauss_laguerre(mean.dtype)
            x, tail = half_line.points[:, 0], sigmoid(-half_line.points[:, 0])
            right = norm.pdf(x, mean[:, None], scale[:, None])
            left = norm.pdf(-x, mean[:, None], scale[:, None])
            below = ndtr(-mean / scale)
            ramp = mean * below - scale * norm.pdf(mean / scale)
            value = ramp - (left + right) @ (half_line.weights * jnp.log1p(jnp.exp(-x)))
            chance = below + (right - left) @ (half_line.weights * tail)
            spread = (left + right) @ (half_line.weights * tail * (1 - tail))
            wide = value, chance, spread
            return [jnp.where(is_wide, *each) for each in zip(wide, narrow, strict=True)]

        value, chance, spread = jax.lax.cond(is_wide.any(), with_wide, lambda: narrow)
        return Integrals(value, side * chance, spread)

    def gaussian_predictive(self, mean, variance):
        """As `expected_log_prob`: first the unlikelier class, then what is left for the other."""
        nodes = gauss_hermite(mean.dtype)
        narrow = self.predictive(mean + safe_sqrt(variance) * nodes.points, jnp.log(nodes.weights))
        scale, is_wide = _wide_scale(variance)
        half_line = gauss_laguerre(mean.dtype)
        x, distance = half_line.points, jnp.abs(mean)
        one_side = norm.pdf(x, distance, scale) - norm.pdf(-x, distance, scale)
        unlikelier = ndtr(-distance / scale) + half_line.weights @ (sigmoid(-x) * one_side)
        sides = jnp.stack([jnp.log(unlikelier), jnp.log1p(-unlikelier)], axis=1)
        wide = jnp.where((mean > 0)[:, None], sides, sides[:, ::-1])
        # Far out, only sums of logarithms keep a probability from becoming zero.
        use_wide = is_wide & (unlikelier > 1e-30)
        return ClassPredictive(jnp.where(use_wide[:, None], wide, narrow.log_probabilities))

    def predictive(self, f, log_weights):
        """Probabilities of both classes, each from its own logarithms."""
        weights = log_weights[:, None]
        sides = [logsumexp(log_sigmoid(side * f) + weights, axis=0) for side in (-1, 1)]
        return ClassPredictive(jnp.stack(sides, axis=1))


class ProbitLikelihood(AbstractLikelihood):
    """y ∈ {0, 1}, y = 1 with probability Φ(f): whether f plus standard normal noise is positive."""

    outputs: int = eqx.field(static=True, default=1)

    def encode_targets(self, y, name, dtype):
        """Labels 0 and 1, as floats."""
        labels = to_float_array(y, name, dtype, (None,))
        return _require_labels(labels, 2, name)

    def log_prob(self, f, y):
        """Log Φ(±f)."""
        return log_ndtr((2 * y - 1) * f)

    def expected_log_prob(self, mean, variance, y):
        """On equidistant nodes: log Φ bends within a unit of f, however wide f is."""
        nodes = trapezoid(mean.dtype)
        f = (2 * y - 1) * mean + safe_sqrt(variance) * nodes.points[:, 0]
        return nodes.weights @ log_ndtr(f)

    def integrals(self, mean, variance, y):
        """E[log Φ(±f)], ±E[h(±f)] and E[h(±f) (h(±f) ± f)], with the hazard h = φ/Φ."""
        nodes, side = trapezoid(mean.dtype), 2 * y - 1
        f = (side * mean)[:, None] + safe_sqrt(variance)[:, None] * nodes.points[:, 0]
        hazard, excess = _hazard(f)
        value, slope, curvature = (each @ nodes.weights for each in (log_ndtr(f), hazard, hazard * excess))
        return Integrals(value, side * slope, curvature)

    def gaussian_predictive(self, mean, variance):
        """Closed form: the noise and f add up to one normal variable."""
        standardised = mean / jnp.sqrt(1 + variance)
        return ClassPredictive(jnp.stack([log_ndtr(-standardised), log_ndtr(standardised)], axis=1))

    def predictive(self, f, log_weights):
        """Probabilities of both classes, each from its own logarithms."""
        weights = log_weights[:, None]
        sides = [logsumexp(log_ndtr(side * f) + weights, axis=0) for side in (-1, 1)]
        return ClassPredictive(jnp.stack(sides, axis=1))


class CategoricalLikelihood(AbstractLikelihood):
    """y ∈ {0, …, classes − 1} with probabilities softmax(f)."""

    outputs: int = eqx.field(static=True)

    def __init__(self, classes: int):
        if classes < 2:
            raise ValueError(f"classes must be at least 2, got {classes}")
        self.outputs = classes

    @property
    def integral_dim(self) -> int:
        """One less than the classes: adding a constant to f changes nothing."""
        return self.outputs - 1

    def rotation(self, dtype):
        """Differences of classes, and last the constant."""
        return jnp.asarray(np.roll(helmert(self.outputs, full=True), -1, axis=0), dtype)

    def encode_targets(self, y, name, dtype):
        """Class numbers, as integers."""
        labels = to_float_array(y, name, dtype, (None,))
        return _require_labels(labels, self.outputs, name).astype(jnp.int32)

    def log_prob(self, f, y):
        """Log-softmax at the class; a product with zeros and a one costs less than an index per node."""
        return log_softmax(f) @ one_hot(y, self.outputs, dtype=f.dtype)

    def integrals_at(self, f, y, weights):
        """Closed form: log p_y, e_y − p and diag(p) − p pᵀ, from the same exponentials."""
        label = one_hot(y, self.outputs, dtype=f.dtype)
        largest = jax.lax.stop_gradient(f.max(0))
        odds = jnp.exp(f - largest)
        total = odds.sum(0)
        probabilities = odds / total
        mean = probabilities @ weights
        outer = mean_outer(probabilities, weights)
        value = ((label[:, None] * f).sum(0) - largest - jnp.log(total)) @ weights
        return Integrals(value, label - mean, jnp.diag(mean) - outer)

    def predictive(self, f, log_weights):
        """Mixture of the class probabilities."""
        return ClassPredictive(logsumexp(log_softmax(f) + log_weights[:, None, None], axis=0))


class PoissonLikelihood(AbstractLikelihood):
    """Counts y with log-rate f."""

    outputs: int = eqx.field(static=True, default=1)

    def encode_targets(self, y, name, dtype):
        """Non-negative integers, as floats."""
        counts = to_float_array(y, name, dtype, (None,))
        return require_counts(counts, name)

    def log_prob(self, f, y):
        """Poisson log-probability."""
        return y * f - jnp.exp(f) - gammaln(y + 1)

    def expected_log_prob(self, mean, variance, y):
        """Closed form: the rate is log-normal."""
        return y * mean - jnp.exp(mean + 0.5 * variance) - gammaln(y + 1)

    def predictive(self, f, log_weights):
        """Mixture of Poisson distributions."""
        return CountPredictive(f.T, log_weights)

    def gaussian_predictive(self, mean, variance):
        """Poisson counts of log-normal rate."""
        return LogNormalCountPredictive(mean, variance)


def _hazard(f):
    """Slope h = φ(f)/Φ(f) of log Φ, and h + f; their product is the negative curvature.

    Far below zero h comes close to −f, and only Laplace's continued fraction keeps digits of the difference.
    """
    is_far = f < -5
    near = jnp.where(is_far, 0, f)
    hazard = norm.pdf(near) / ndtr(near)
    distance = jnp.where(is_far, -f, 5)
    excess = jnp.zeros_like(f)
    for level in range(16, 0, -1):
        excess = level / (distance + excess)
    return jnp.where(is_far, distance + excess, hazard), jnp.where(is_far, excess, hazard + near)


def _wide_scale(variance):
    """Standard deviation of f, and whether it is wide; where it is not, a number that does no harm."""
    is_wide = variance > WIDE**2
    return jnp.sqrt(jnp.where(is_wide, variance, WIDE**2)), is_wide


def require_counts(y: Array, name: str) -> Array:
    """Refuse anything but non-negative integers."""
    values = np.asarray(y)
    wrong = (values < 0) | (values != np.floor(values))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(f"{name} must hold non-negative integers, got {values[row]} in row {row}")
    return y


def _require_labels(labels: Array, classes: int, name: str) -> Array:
    values = np.asarray(labels)
    wrong = (values < 0) | (values >= classes) | (values != np.floor(values))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(f"{name} must hold labels 0 to {classes - 1}, got {values[row]:g} in row {row}")
    return labels
