"""Heteroscedastic likelihood: a number whose noise has a scale that is learnt along with its mean."""

from typing import Literal

import equinox as eqx
import jax.numpy as jnp
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from unbayes._numerics.quadrature import gauss_hermite, safe_sqrt
from unbayes._numerics.records import to_float_array
from unbayes._validation import require_positive
from unbayes.models.likelihoods.base import AbstractLikelihood, Integrals
from unbayes.models.mixture_predictive import NormalMixturePredictive
from unbayes.posteriors.gaussian import LOG_2PI


class HeteroscedasticLikelihood(AbstractLikelihood):
    """y = f₀ + noise of standard deviation noise_scale · exp(f₁), f = (f₀, f₁); it is not log-concave.

    Parameters
    ----------
    noise_scale
        Standard deviation of the noise where f₁ is zero, as it is before any data.
    """

    noise_scale: Float[Array, ""]
    outputs: Literal[2] = eqx.field(static=True, default=2)

    def __init__(self, noise_scale):
        self.noise_scale = jnp.asarray(noise_scale, jnp.result_type(float))
        self.outputs = 2

    def require_valid(self) -> None:
        """Refuse a standard deviation that is not positive."""
        require_positive("noise_scale", self.noise_scale)

    def encode_targets(self, y, name, dtype):
        """Return y as floats; any real number is valid."""
        return to_float_array(y, name, dtype, (None,))

    def log_prob(self, f, y):
        """Normal log-density of y around f₀."""
        return norm.logpdf(y, f[0], self.noise_scale * jnp.exp(f[1]))

    def integrals_at(self, f, y, weights):
        """Weighted sums of log p, (r w, r² w − 1) and ((w, 2 r w), (2 r w, 2 r² w)).

        Here r = y − f₀, and w is the precision of the noise.
        """
        residual, precision = y - f[0], jnp.exp(-2 * f[1]) / self.noise_scale**2
        pull, square = residual * precision, residual**2 * precision
        value = -0.5 * (LOG_2PI + square) - f[1] - jnp.log(self.noise_scale)
        slope = jnp.stack([pull, square - 1])
        curvature = jnp.stack([jnp.stack([precision, 2 * pull]), jnp.stack([2 * pull, 2 * square])])
        return Integrals(value @ weights, slope @ weights, curvature @ weights)

    def joint_predictive(self, mean, root, nodes):
        """Mixtures over f₁ alone, by Gauss–Hermite: given f₁, the variance of f₀ adds to the noise's."""
        one = gauss_hermite(mean.dtype)
        (_, across), (_, spread) = jnp.moveaxis(root @ root.mT, 0, 2)
        scale = safe_sqrt(spread)[:, None]
        slope = across[:, None] / jnp.where(scale == 0, 1, scale)
        own = (root[:, 0] ** 2).sum(1)[:, None] - slope**2
        z = one.points[:, 0]
        noise = self.noise_scale * jnp.exp(mean[:, 1, None] + scale * z)
        scales = jnp.sqrt(jnp.maximum(own, 0) + noise**2)
        return NormalMixturePredictive(mean[:, 0, None] + slope * z, scales, jnp.log(one.weights))

    def predictive(self, f, log_weights):
        """Mixtures of normal distributions, one component per value of f."""
        scales = self.noise_scale * jnp.exp(f[:, :, 1].T)
        return NormalMixturePredictive(f[:, :, 0].T, scales, log_weights)
