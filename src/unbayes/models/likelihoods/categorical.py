"""Categorical likelihood: several classes, f holds a logit for each."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import log_softmax, one_hot
from jax.scipy.special import logsumexp

from unbayes._numerics.linalg import mean_outer
from unbayes.models.likelihoods.base import AbstractLikelihood, Integrals
from unbayes.models.likelihoods.targets import require_labels
from unbayes.models.predictive import ClassPredictive


class CategoricalLikelihood(AbstractLikelihood):
    """y ∈ {0, …, classes − 1} with probabilities softmax(f)."""

    is_log_concave: ClassVar[bool] = True

    outputs: int = eqx.field(static=True)

    def __init__(self, classes: int):
        if classes < 2:
            raise ValueError(f"classes must be at least 2, got {classes}")
        self.outputs = classes

    def require_valid(self) -> None:
        """Refuse fewer classes than two."""
        if self.outputs < 2:
            raise ValueError(f"outputs must be at least 2, got {self.outputs}")

    @property
    def integral_dim(self) -> int:
        """One less than the number of classes: adding a constant to f changes nothing."""
        return self.outputs - 1

    def rotation(self, dtype):
        """Orthonormal coordinates of f: differences between classes, and in the last row the constant."""
        # Imported here: scipy.linalg takes a third of the time that JAX does.
        from scipy.linalg import helmert

        return jnp.asarray(np.roll(helmert(self.outputs, full=True), -1, axis=0), dtype)

    def encode_targets(self, y, name, dtype):
        """Return class numbers as integers; raise ValueError for anything else."""
        return require_labels(y, self.outputs, name, dtype).astype(jnp.int32)

    def largest_log_probs(self, y):
        """Zeros: a class can be certain."""
        return jnp.zeros(y.shape, jnp.result_type(float))

    def log_prob(self, f, y):
        """Log-softmax of f at class y."""
        # A product with zeros and a one costs less than an index per node.
        return log_softmax(f) @ self._one_hot(y, f.dtype)

    def integrals_at(self, f, y, weights):
        """Weighted sums of log p_y, e_y − p and diag(p) − p pᵀ, from the same exponentials."""
        label = self._one_hot(y, f.dtype)
        largest = jax.lax.stop_gradient(f.max(0))
        odds = jnp.exp(f - largest)
        total = odds.sum(0)
        probabilities = odds / total
        mean = probabilities @ weights
        outer = mean_outer(probabilities, weights)
        value = ((label[:, None] * f).sum(0) - largest - jnp.log(total)) @ weights
        return Integrals(value, label - mean, jnp.diag(mean) - outer)

    def _one_hot(self, y, dtype):
        # Beside a weight, a class number is a float.
        return one_hot(y.astype(jnp.int32), self.outputs, dtype=dtype)

    def predictive(self, f, log_weights):
        """Class probabilities, averaged over the weighted values of f."""
        return ClassPredictive(logsumexp(log_softmax(f) + log_weights[:, None, None], axis=0))
