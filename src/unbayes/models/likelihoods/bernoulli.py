"""Bernoulli likelihood: two classes, f is their log-odds."""

from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.nn import sigmoid
from jax.scipy.special import logsumexp, ndtr
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from unbayes._numerics.quadrature import gauss_hermite, gauss_laguerre, safe_sqrt, trapezoid
from unbayes.models.likelihoods.base import AbstractLikelihood, Integrals
from unbayes.models.likelihoods.targets import require_labels
from unbayes.models.predictive import ClassPredictive

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


class BernoulliLikelihood(AbstractLikelihood):
    """y ∈ {0, 1} with log-odds f."""

    is_log_concave: ClassVar[bool] = True

    outputs: Literal[1] = eqx.field(static=True, default=1)

    def encode_targets(self, y, name, dtype):
        """Return labels 0 and 1 as floats; raise ValueError for anything else."""
        return require_labels(y, 2, name, dtype)

    def largest_log_probs(self, y):
        """Zeros: a class can be certain."""
        return jnp.zeros(y.shape, jnp.result_type(float))

    def log_prob(self, f, y):
        """Log σ(f) for y = 1, log σ(−f) for y = 0."""
        return log_sigmoid((2 * y - 1) * f)

    def scalar_nodes(self, dtype):
        """Equidistant nodes: log σ bends within a few units of f, however wide f is."""
        return trapezoid(dtype)

    def log_expected_prob(self, mean, variance, y):
        """Log E[σ(±f)]: σ rises within a few units of f."""
        nodes = self.scalar_nodes(mean.dtype)
        f = (2 * y - 1) * mean + safe_sqrt(variance) * nodes.points[:, 0]
        return logsumexp(log_sigmoid(f) + jnp.log(nodes.weights))

    def expected_log_prob(self, mean, variance, y):
        """E[log p(y|f)] by Gauss–Hermite quadrature where f is narrow, else from two parts.

        They are log σ(f) = min(f, 0) − log(1 + e^{−|f|}). The first has a closed form. The second is a bump
        of width one, which Gauss–Hermite nodes of a wide f would step over.
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
        """`expected_log_prob` of every record; the part for wide f is computed only where some are."""
        _, is_wide = _wide_scale(variance)
        expected = [jax.vmap(each) for each in (self.expected_log_prob, self._expected_if_narrow)]
        return jax.lax.cond(is_wide.any(), *expected, mean, variance, y)

    def _expected_if_narrow(self, mean, variance, y):
        nodes = gauss_hermite(mean.dtype, 32)
        return nodes.weights @ self.log_prob(mean + safe_sqrt(variance) * nodes.points[:, 0], y)

    def integrals(self, mean, variance, y):
        """E[log p(y|f)], ±E[σ(∓f)] and E[σ(f) σ(−f)], from the same exponentials, as `expected_log_prob`."""
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

    def third_derivatives(self, mean, variance, y):
        """E[σ(f) σ(−f) tanh(f/2)], the same for both labels, on the nodes of `integrals`.

        The function is odd, so the wide form needs N(x) − N(−x) on the half-line. Written as a product, that
        difference keeps its digits near zero.
        """
        nodes = gauss_hermite(mean.dtype, 32)
        f = mean[:, None] + safe_sqrt(variance)[:, None] * nodes.points[:, 0]
        narrow = _third_derivative(f) @ nodes.weights
        scale, is_wide = _wide_scale(variance)

        def with_wide():
            half_line = gauss_laguerre(mean.dtype)
            x, side = half_line.points[:, 0], _side(mean)
            distance = (side * mean)[:, None]
            nearer = norm.pdf(x, distance, scale[:, None])
            difference = -nearer * jnp.expm1(-2 * x * distance / scale[:, None] ** 2)
            wide = side * (difference @ (half_line.weights * _third_derivative(x)))
            return jnp.where(is_wide, wide, narrow)

        return jax.lax.cond(is_wide.any(), with_wide, lambda: narrow)

    def gaussian_predictive(self, mean, variance):
        """Class probabilities by the quadrature of `expected_log_prob`.

        The unlikelier class comes first; the other has what is left.
        """
        nodes = gauss_hermite(mean.dtype)
        narrow = self.predictive(mean + safe_sqrt(variance) * nodes.points, jnp.log(nodes.weights))
        scale, is_wide = _wide_scale(variance)

        def with_wide():
            half_line = gauss_laguerre(mean.dtype)
            x, distance = half_line.points, jnp.abs(mean)
            one_side = norm.pdf(x, distance, scale) - norm.pdf(-x, distance, scale)
            unlikelier = ndtr(-distance / scale) + half_line.weights @ (sigmoid(-x) * one_side)
            sides = jnp.stack([jnp.log(unlikelier), jnp.log1p(-unlikelier)], axis=1)
            wide = jnp.where((mean > 0)[:, None], sides, sides[:, ::-1])
            # Far out, only sums of logarithms keep a probability from becoming zero.
            use_wide = is_wide & (unlikelier > 1e-30)
            return jnp.where(use_wide[:, None], wide, narrow.log_probabilities)

        return ClassPredictive(jax.lax.cond(is_wide.any(), with_wide, lambda: narrow.log_probabilities))

    def predictive(self, f, log_weights):
        """Probabilities of both classes, each from its own terms, or from their logarithms where f is far."""
        weights = log_weights[:, None]

        def by_terms():
            small = jnp.exp(-jnp.abs(f))
            sides = [jnp.where(is_nearer, 1, small) / (1 + small) for is_nearer in (f < 0, f >= 0)]
            return jnp.log(jnp.stack([jnp.exp(log_weights) @ side for side in sides], axis=1))

        def by_logarithms():
            sides = [logsumexp(log_sigmoid(side * f) + weights, axis=0) for side in (-1, 1)]
            return jnp.stack(sides, axis=1)

        # Terms that would become zero.
        is_far = jnp.abs(f).max() > -0.5 * jnp.log(jnp.finfo(f.dtype).tiny)
        return ClassPredictive(jax.lax.cond(is_far, by_logarithms, by_terms))


def _wide_scale(variance):
    """Standard deviation of f, and whether it is wide; where it is not, a number that does no harm."""
    is_wide = variance > WIDE**2
    return jnp.sqrt(jnp.where(is_wide, variance, WIDE**2)), is_wide


def _third_derivative(f):
    """Third derivative σ(f) σ(−f) tanh(f/2) of log σ(f)."""
    side = _side(f)
    small = jnp.exp(-side * f)
    return side * small * (1 - small) / (1 + small) ** 3


def _side(f):
    """The sign of f, which at zero is one: odd functions in terms of it have their slope there, too."""
    return jnp.where(f >= 0, jnp.ones_like(f), -jnp.ones_like(f))
