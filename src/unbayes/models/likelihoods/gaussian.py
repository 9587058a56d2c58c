"""Gaussian likelihood: a number with noise of known scale."""

from typing import ClassVar, Literal

import equinox as eqx
import jax.numpy as jnp
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from unbayes._numerics.records import to_float_array
from unbayes._validation import require_positive
from unbayes.models.likelihoods.base import AbstractLikelihood
from unbayes.models.predictive import NormalPredictive
from unbayes.posteriors.gaussian import LOG_2PI


class GaussianLikelihood(AbstractLikelihood):
    """y = f + noise, with known standard deviation `noise_scale`."""

    is_log_concave: ClassVar[bool] = True
    is_conjugate: ClassVar[bool] = True

    noise_scale: Float[Array, ""]
    outputs: Literal[1] = eqx.field(static=True, default=1)

    def __init__(self, noise_scale):
        self.noise_scale = jnp.asarray(noise_scale, jnp.result_type(float))
        self.outputs = 1

    def require_valid(self) -> None:
        """Refuse a standard deviation that is not positive."""
        require_positive("noise_scale", self.noise_scale)

    def encode_targets(self, y, name, dtype):
        """Return y as floats; any real number is valid."""
        return to_float_array(y, name, dtype, (None,))

    def log_prob(self, f, y):
        """Normal log-density of y around f."""
        return norm.logpdf(y, f, self.noise_scale)

    def largest_log_probs(self, y):
        """Log-density at f = y."""
        return jnp.full_like(y, -0.5 * LOG_2PI) - jnp.log(self.noise_scale)

    def expected_log_prob(self, mean, variance, y):
        """E[log p(y|f)] in closed form: the variance of f adds to the squared distance."""
        noise = self.noise_scale**2
        return -0.5 * (LOG_2PI + jnp.log(noise) + ((y - mean) ** 2 + variance) / noise)

    def log_expected_prob(self, mean, variance, y):
        """Log E[p(y|f)] in closed form: the variances of f and of the noise add up."""
        return norm.logpdf(y, mean, jnp.sqrt(variance + self.noise_scale**2))

    def third_derivatives(self, mean, variance, y):
        """Zeros: log p(y|f) is quadratic in f."""
        return jnp.zeros_like(mean)

    def predictive(self, f, log_weights):
        """Normal distributions with the mean and variance of the mixture."""
        weights = jnp.exp(log_weights)
        mean = weights @ f
        return NormalPredictive(mean, weights @ (f - mean) ** 2 + self.noise_scale**2)

    def gaussian_predictive(self, mean, variance):
        """Normal distributions in closed form: the variances of f and of the noise add up."""
        return NormalPredictive(mean, variance + self.noise_scale**2)
