"""Records with a variance of their own: f is known up to it, and integrated out."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unbayes._numerics.records import to_float_array
from unbayes.models.likelihoods.base import AbstractLikelihood


class IntegratedLikelihood(AbstractLikelihood):
    """p(y|g) = ∫ p(y|f) N(f|g, v) df with a variance v that comes with the record; targets are pairs (y, v).

    Where features leave a part of f open, as those of a sparse Gaussian process with `conditional_variance`
    do, v is its variance and this is the fully independent training conditional (FITC): log ∫ p(y|f) p(f|θ)
    df, where other likelihoods take the bound ∫ p(f|θ) log p(y|f) df. Variances in the targets add to it, as
    that of the noise of each measurement does for a Gaussian likelihood: y may be given alone, shape (n,), or
    beside v, shape (n, 2). Predictions are of a record that has no such variance of its own.

    Parameters
    ----------
    likelihood
        p(y|f), of a single output: Gaussian, Bernoulli or probit, whose integral is known.
    """

    likelihood: AbstractLikelihood

    def __init__(self, likelihood: AbstractLikelihood):
        self.likelihood = likelihood
        self.require_valid()

    def require_valid(self) -> None:
        """Refuse a likelihood whose integral is not known."""
        if not self.likelihood.has_expected_prob:
            raise ValueError(
                "likelihood must be Gaussian, Bernoulli or probit, or another that has log_expected_prob, "
                f"got {type(self.likelihood).__name__}"
            )

    @property
    def outputs(self) -> int:
        """A single one."""
        return 1

    @property
    def is_log_concave(self) -> bool:
        """As p(y|f) is: marginals of what is log-concave are log-concave."""
        return self.likelihood.is_log_concave

    @property
    def is_conjugate(self) -> bool:
        """As p(y|f) is."""
        return self.likelihood.is_conjugate

    def encode_targets(self, y, name, dtype) -> Float[Array, "n 2"]:
        """Return valid targets beside variances, zero unless given; raise ValueError for negative ones."""
        if np.ndim(y) != 2:
            targets = np.asarray(self.likelihood.encode_targets(y, name, dtype), dtype)
            return jax.device_put(np.stack([targets, np.zeros_like(targets)], axis=1))
        pairs = np.asarray(to_float_array(y, name, dtype, (None, 2)))
        if (pairs[:, 1] < 0).any():
            row = int(np.argmax(pairs[:, 1] < 0))
            raise ValueError(f"{name} must have variances of at least 0, got {pairs[row, 1]:g} in row {row}")
        targets = np.asarray(self.likelihood.encode_targets(pairs[:, 0], name, dtype), dtype)
        return jax.device_put(np.stack([targets, pairs[:, 1]], axis=1))

    def outcomes(self, targets):
        """Targets without their variances."""
        return targets[:, 0]

    def absorb(self, targets, variance):
        """Targets whose variances hold that of the features, of which nothing is left."""
        return targets if variance is None else targets.at[:, 1].add(variance), None

    def open_variance(self, targets):
        """Variances of the targets."""
        return targets[:, 1]

    def scalar_nodes(self, dtype):
        """As p(y|f) needs them."""
        return self.likelihood.scalar_nodes(dtype)

    def log_prob(self, f, y):
        """Log ∫ p(y|f') N(f'|f, v) df'."""
        return self.likelihood.log_expected_prob(f, y[1], y[0])

    def largest_log_probs(self, y):
        """At the top of the parabola, for a Gaussian likelihood; else the bound of p(y|f)."""
        if not self.is_conjugate:
            return self.likelihood.largest_log_probs(y[:, 0])
        nothing = jnp.zeros_like(y[:, 0])
        value, slope, curvature = self.integrals(nothing, nothing, y)
        return value + 0.5 * slope**2 / curvature

    def expected_log_prob(self, mean, variance, y):
        """E[log p(y|g)] in closed form for a Gaussian likelihood, else by quadrature."""
        if not self.is_conjugate:
            return super().expected_log_prob(mean, variance, y)
        second = jax.grad(jax.grad(self.log_prob))(mean, y)
        return self.log_prob(mean, y) + 0.5 * variance * second

    def third_derivatives(self, mean, variance, y):
        """Zeros for a Gaussian likelihood."""
        return jnp.zeros_like(mean) if self.is_conjugate else super().third_derivatives(mean, variance, y)

    def predictive(self, f, log_weights):
        """Predictive distributions of y."""
        return self.likelihood.predictive(f, log_weights)

    def gaussian_predictive(self, mean, variance):
        """Predictive distributions of y."""
        return self.likelihood.gaussian_predictive(mean, variance)
