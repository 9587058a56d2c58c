"""Student-t likelihood: a number with heavy-tailed noise of known scale."""

import math

import equinox as eqx
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

from unbayes._numerics.quadrature import trapezoid
from unbayes._numerics.records import to_float_array
from unbayes.models.likelihoods.base import AbstractLikelihood
from unbayes.models.mixture_predictive import AbstractMixturePredictive

# Where integrals over sinh(t) end: the density beyond is below rounding for two degrees of freedom and more.
TAIL_REACH = 15.0


class StudentTLikelihood(AbstractLikelihood):
    """y = f + noise, Student's t with known scale and degrees of freedom; it is not log-concave.

    Parameters
    ----------
    noise_scale
        Scale of the noise.
    freedom
        Degrees of freedom.
    """

    noise_scale: Float[Array, ""]
    freedom: Float[Array, ""]
    outputs: int = eqx.field(static=True, default=1)

    def __init__(self, noise_scale, freedom):
        self.noise_scale = jnp.asarray(noise_scale, jnp.result_type(float))
        self.freedom = jnp.asarray(freedom, jnp.result_type(float))
        self.outputs = 1

    def encode_targets(self, y, name, dtype):
        """Return y as floats; any real number is valid."""
        return to_float_array(y, name, dtype, (None,))

    def log_prob(self, f, y):
        """Log-density of y around f."""
        return _log_density(y - f, self.noise_scale, self.freedom)

    def scalar_nodes(self, dtype):
        """Equidistant nodes: log p bends within a few scales, however wide f is."""
        return trapezoid(dtype)

    def predictive(self, f, log_weights):
        """Mixtures of Student's t-distributions, one component per value of f."""
        return StudentTPredictive(f.T, log_weights, self.noise_scale, self.freedom)


class StudentTPredictive(AbstractMixturePredictive):
    """Mixture of Student's t-distributions.

    Attributes
    ----------
    locations
        Shape (n, k), one column per component.
    log_weights
        Shape (k,).
    scale, freedom
        Of all components.
    """

    locations: Float[Array, "n k"]
    log_weights: Float[Array, " k"]
    scale: Float[Array, ""]
    freedom: Float[Array, ""]

    def component_log_prob(self, y):
        """Student's t-densities, as logarithms."""
        return _log_density(y - self.locations[:, None, :], self.scale, self.freedom)

    def component_scale(self):
        """Scale of every component."""
        return self.scale

    def reach(self, width):
        """The same for all."""
        return jnp.full_like(width, TAIL_REACH)


def _log_density(distance, scale, freedom):
    """Student's t-density, as a logarithm, at so far from its centre."""
    constant = gammaln(0.5 * (freedom + 1)) - gammaln(0.5 * freedom) - 0.5 * jnp.log(math.pi * freedom)
    bend = jnp.log1p((distance / scale) ** 2 / freedom)
    return constant - jnp.log(scale) - 0.5 * (freedom + 1) * bend
