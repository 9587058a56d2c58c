"""Records that count more or less than once."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unbayes._numerics.records import to_float_array
from unbayes.models.likelihoods.base import AbstractLikelihood, Integrals


class WeightedLikelihood(AbstractLikelihood):
    """p(y|f)^w: every record counts w times. Targets are pairs (y, w), shape (n, 2); predictions are of y.

    Evidence holds triples (y, v, w) where targets of a record that counts once are pairs (y, v).

    Parameters
    ----------
    likelihood
        p(y|f) of a record that counts once.
    """

    likelihood: AbstractLikelihood

    def __init__(self, likelihood: AbstractLikelihood):
        self.likelihood = likelihood

    @property
    def outputs(self) -> int:
        """Number of entries of f."""
        return self.likelihood.outputs

    @property
    def is_log_concave(self) -> bool:
        """As of a record that counts once: no weight is negative."""
        return self.likelihood.is_log_concave

    @property
    def is_conjugate(self) -> bool:
        """As of a record that counts once: a multiple of what is quadratic is quadratic."""
        return self.likelihood.is_conjugate

    @property
    def integral_dim(self) -> int:
        """Number of directions of f that log p(y|f) depends on."""
        return self.likelihood.integral_dim

    def rotation(self, dtype):
        """Orthonormal coordinates of f, one per row."""
        return self.likelihood.rotation(dtype)

    def encode_targets(self, y, name, dtype) -> Float[Array, "n 2"]:
        """Return valid targets beside their weights; raise ValueError where one is negative."""
        pairs = np.asarray(to_float_array(y, name, dtype, (None, 2)))
        if (pairs[:, 1] < 0).any():
            row = int(np.argmax(pairs[:, 1] < 0))
            raise ValueError(f"{name} must have weights of at least 0, got {pairs[row, 1]:g} in row {row}")
        targets = self.likelihood.encode_targets(pairs[:, 0], name, dtype)
        return jax.device_put(np.column_stack([np.asarray(targets, dtype), pairs[:, 1]]))

    def outcomes(self, targets):
        """Targets without their weights."""
        return targets[:, 0]

    def absorb(self, targets, variance):
        """Targets that carry what those of a record that counts once carry, before their weights."""
        plain, left = self.likelihood.absorb(_plain(targets), variance)
        return jnp.column_stack([plain, targets[:, -1]]), left

    def open_variance(self, targets):
        """As of a record that counts once."""
        return self.likelihood.open_variance(_plain(targets))

    def largest_log_probs(self, y):
        """Weight times the most that log p(y|f) could be, were f free."""
        most = self.likelihood.largest_log_probs(_plain(y))
        return None if most is None else y[:, -1] * most

    def log_prob(self, f, y):
        """Weight times log p(y|f)."""
        return y[-1] * self.likelihood.log_prob(f, _plain(y))

    def expected_log_prob(self, mean, variance, y):
        """Weight times E[log p(y|f)]."""
        return y[-1] * self.likelihood.expected_log_prob(mean, variance, _plain(y))

    def expected_log_probs(self, mean, variance, y):
        """`expected_log_prob` of every record."""
        return y[:, -1] * self.likelihood.expected_log_probs(mean, variance, _plain(y))

    def integrals(self, mean, variance, y):
        """Integrals of every record, times its weight."""
        return Integrals(*(y[:, -1] * each for each in self.likelihood.integrals(mean, variance, _plain(y))))

    def integrals_at(self, f, y, weights):
        """Integrals of one record with several outputs, times its weight."""
        return Integrals(*(y[-1] * each for each in self.likelihood.integrals_at(f, _plain(y), weights)))

    def third_derivatives(self, mean, variance, y):
        """E[∂³ log p(y|f)/∂f³] of every record, times its weight."""
        return y[:, -1] * self.likelihood.third_derivatives(mean, variance, _plain(y))

    def predictive(self, f, log_weights):
        """Predictive distributions of y."""
        return self.likelihood.predictive(f, log_weights)

    def gaussian_predictive(self, mean, variance):
        """Predictive distributions of y."""
        return self.likelihood.gaussian_predictive(mean, variance)


def _plain(targets: Array) -> Array:
    """Targets of records that count once: a number each, or what stands before the weight."""
    return targets[..., 0] if targets.shape[-1] == 2 else targets[..., :-1]
