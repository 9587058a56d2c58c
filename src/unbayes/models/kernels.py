"""Stationary kernels with a length scale per input dimension (ARD)."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from unbayes._numerics.quadrature import safe_sqrt
from unbayes._storable import Storable
from unbayes._validation import require_positive


class AbstractKernel(Storable):
    """k(x, x') = variance · correlation(‖(x − x') / lengthscales‖)."""

    variance: eqx.AbstractVar[Float[Array, ""]]
    lengthscales: eqx.AbstractVar[Float[Array, " k"]]

    def require_valid(self) -> None:
        """Refuse a variance or a length scale that is not positive."""
        require_positive("variance", self.variance)
        require_positive("lengthscales", self.lengthscales)

    @abc.abstractmethod
    def correlation(self, squared_distance: Float[Array, "n m"]) -> Float[Array, "n m"]:
        """Correlation at distances in units of the lengthscales, squared."""

    def __call__(self, left: Float[Array, "n k"], right: Float[Array, "m k"]) -> Float[Array, "n m"]:
        """Covariance of every row of `left` with every row of `right`."""
        difference = left[:, None, :] / self.lengthscales - right[None, :, :] / self.lengthscales
        return self.variance * self.correlation((difference**2).sum(-1))


class SquaredExponential(AbstractKernel):
    """Infinitely smooth: exp(−r²/2)."""

    variance: Float[Array, ""]
    lengthscales: Float[Array, " k"]

    def __init__(self, variance, lengthscales):
        self.lengthscales = jnp.atleast_1d(jnp.asarray(lengthscales, jnp.result_type(float)))
        self.variance = jnp.asarray(variance, self.lengthscales.dtype)

    def correlation(self, squared_distance):
        """Correlation exp(−r²/2) at squared distance r²."""
        return jnp.exp(-0.5 * squared_distance)


class Matern(AbstractKernel):
    """As rough as `smoothness` ∈ {0.5, 1.5, 2.5} says."""

    variance: Float[Array, ""]
    lengthscales: Float[Array, " k"]
    smoothness: float = eqx.field(static=True)

    def __init__(self, variance, lengthscales, smoothness: float = 2.5):
        _require_smoothness(smoothness)
        self.lengthscales = jnp.atleast_1d(jnp.asarray(lengthscales, jnp.result_type(float)))
        self.variance = jnp.asarray(variance, self.lengthscales.dtype)
        self.smoothness = smoothness

    def require_valid(self) -> None:
        """Refuse another smoothness too."""
        super().require_valid()
        _require_smoothness(self.smoothness)

    def correlation(self, squared_distance):
        """Correlation at squared distance r²: a polynomial times an exponential."""
        root = safe_sqrt(2 * self.smoothness * squared_distance)
        decay = jnp.exp(-root)
        if self.smoothness == 0.5:
            return decay
        if self.smoothness == 1.5:
            return (1 + root) * decay
        return (1 + root + root**2 / 3) * decay


def _require_smoothness(smoothness: float) -> None:
    if smoothness not in (0.5, 1.5, 2.5):
        raise ValueError(f"smoothness must be 0.5, 1.5 or 2.5, got {smoothness}")
