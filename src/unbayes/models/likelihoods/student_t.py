"""Student-t likelihood: a number with heavy-tailed noise of known scale."""

import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, logsumexp
from jaxtyping import Array, Float

from unbayes._numerics.quadrature import safe_sqrt, trapezoid
from unbayes._numerics.records import to_float_array
from unbayes.models.likelihoods.base import AbstractLikelihood
from unbayes.models.predictive import AbstractPredictive

# Integrals over y run over t, y = centre + width · sinh(t), in which tails of every power fall off
# exponentially: the density beyond this t is below rounding for two degrees of freedom and more.
TAIL_REACH = 15.0
# Nodes of these integrals: a tenth of a width apart at the centre.
TAIL_NODES = 301


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

    def expected_log_prob(self, mean, variance, y):
        """E[log p(y|f)] on equidistant nodes: log p bends within a few scales, however wide f is."""
        nodes = trapezoid(mean.dtype)
        return nodes.weights @ self.log_prob(mean + safe_sqrt(variance) * nodes.points[:, 0], y)

    def predictive(self, f, log_weights):
        """Mixtures of Student's t-distributions, one component per value of f."""
        return StudentTPredictive(f.T, log_weights, self.noise_scale, self.freedom)

    def gaussian_predictive(self, mean, variance):
        """Mixtures on the nodes of `expected_log_prob`."""
        nodes = trapezoid(mean.dtype)
        return self.predictive(mean + jnp.sqrt(variance) * nodes.points, jnp.log(nodes.weights))


class StudentTPredictive(AbstractPredictive):
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

    def log_prob(self, y):
        """Log-density of y, shape (n,)."""
        return self._log_prob(jnp.asarray(y)[:, None])[:, 0]

    def _log_prob(self, y: Float[Array, "n m"]) -> Float[Array, "n m"]:
        each = _log_density(y[:, :, None] - self.locations[:, None, :], self.scale, self.freedom)
        return logsumexp(each + self.log_weights, axis=2)

    def kl(self, other):
        """KL[self‖other], shape (n,), integrated over y."""
        t = jnp.asarray(np.linspace(-TAIL_REACH, TAIL_REACH, TAIL_NODES), self.locations.dtype)
        mean = self.decision()
        spread = (self.locations - mean[:, None]) ** 2 @ jnp.exp(self.log_weights)
        width = jnp.sqrt(self.scale**2 + spread)[:, None]
        y = mean[:, None] + width * jnp.sinh(t)
        own, others = self._log_prob(y), other._log_prob(y)
        return (jnp.exp(own) * (own - others) * width * jnp.cosh(t)).sum(1) * (t[1] - t[0])

    def decision(self):
        """The mean at each input."""
        return self.locations @ jnp.exp(self.log_weights)


def _log_density(distance, scale, freedom):
    """Student's t-density, as a logarithm, at so far from its centre."""
    constant = gammaln(0.5 * (freedom + 1)) - gammaln(0.5 * freedom) - 0.5 * jnp.log(math.pi * freedom)
    bend = jnp.log1p((distance / scale) ** 2 / freedom)
    return constant - jnp.log(scale) - 0.5 * (freedom + 1) * bend
