"""Probit likelihood: two classes, and f is compared with standard normal noise."""

from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import log_ndtr, logsumexp, ndtr
from jax.scipy.stats import norm

from unbayes._numerics.quadrature import safe_sqrt, trapezoid
from unbayes.models.likelihoods.base import AbstractLikelihood, Integrals
from unbayes.models.likelihoods.targets import require_labels
from unbayes.models.predictive import ClassPredictive

# Standard deviation of f beyond which third derivatives come from the curvature, by Stein's lemma.
WIDE = 1.0


class ProbitLikelihood(AbstractLikelihood):
    """y ∈ {0, 1}, y = 1 with probability Φ(f): whether f plus standard normal noise is positive."""

    is_log_concave: ClassVar[bool] = True

    outputs: Literal[1] = eqx.field(static=True, default=1)

    def encode_targets(self, y, name, dtype):
        """Return labels 0 and 1 as floats; raise ValueError for anything else."""
        return require_labels(y, 2, name, dtype)

    def largest_log_probs(self, y):
        """Zeros: a class can be certain."""
        return jnp.zeros(y.shape, jnp.result_type(float))

    def log_prob(self, f, y):
        """Log Φ(f) for y = 1, log Φ(−f) for y = 0."""
        return log_ndtr((2 * y - 1) * f)

    def scalar_nodes(self, dtype):
        """Equidistant nodes: log Φ bends within a unit of f, however wide f is."""
        return trapezoid(dtype)

    def log_expected_prob(self, mean, variance, y):
        """Log E[Φ(±f)] in closed form: the noise and f add up to one normal variable."""
        return log_ndtr((2 * y - 1) * mean / jnp.sqrt(1 + variance))

    def integrals(self, mean, variance, y):
        """E[log Φ(±f)], ±E[h(±f)] and E[h(±f) (h(±f) ± f)], with the hazard h = φ/Φ."""
        nodes, side = trapezoid(mean.dtype), 2 * y - 1
        f = (side * mean)[:, None] + safe_sqrt(variance)[:, None] * nodes.points[:, 0]
        hazard, excess = _hazard(f)
        value, slope, curvature = (each @ nodes.weights for each in (log_ndtr(f), hazard, hazard * excess))
        return Integrals(value, side * slope, curvature)

    def third_derivatives(self, mean, variance, y):
        """E[∂³ log Φ(±f)/∂f³] on the nodes of `integrals`.

        The curvature is a step, and its derivative a bump that nodes far apart would step over. For wide f
        the step is integrated instead, by Stein's lemma E[g′(f)] = E[g(f) z] / scale.
        """
        nodes, side, scale = trapezoid(mean.dtype), 2 * y - 1, safe_sqrt(variance)
        z = nodes.points[:, 0]
        f = (side * mean)[:, None] + scale[:, None] * z
        curvature, bump = jax.jvp(lambda f: jnp.multiply(*_hazard(f)), (f,), (jnp.ones_like(f),))
        is_wide = scale > WIDE
        wide = curvature @ (nodes.weights * z) / jnp.where(is_wide, scale, 1)
        return -side * jnp.where(is_wide, wide, bump @ nodes.weights)

    def gaussian_predictive(self, mean, variance):
        """Class probabilities in closed form: the noise and f add up to one normal variable."""
        standardised = mean / jnp.sqrt(1 + variance)
        return ClassPredictive(jnp.stack([log_ndtr(-standardised), log_ndtr(standardised)], axis=1))

    def predictive(self, f, log_weights):
        """Probabilities of both classes, each from its own logarithms."""
        weights = log_weights[:, None]
        sides = [logsumexp(log_ndtr(side * f) + weights, axis=0) for side in (-1, 1)]
        return ClassPredictive(jnp.stack(sides, axis=1))


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
