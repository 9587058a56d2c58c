"""Models given as a pair of log-densities, and the Gamma distribution of unknown shape."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

from unbayes._numerics.records import require_records, to_arrays, to_float_array
from unbayes._validation import require_positive
from unbayes.models.base import AbstractModel
from unbayes.models.differentiation import influence, second_order, site_and_derivatives, site_changes
from unbayes.posteriors import AbstractGaussian


class AbstractDifferentiated(AbstractModel):
    """A model that is known by its log-likelihood alone; a pass over it gives all that is wanted at once."""

    def expected_log_likelihood_and_site(self, gaussian, evidence, nodes, weights=None):
        """Both at once."""
        found = second_order(self.log_likelihood, gaussian, evidence, nodes, weights)
        return found.value, found.site(gaussian)

    def site_and_derivatives(self, gaussian, directions, evidence, nodes, weights=None, order=4):
        """Both at once."""
        return site_and_derivatives(
            self.log_likelihood, gaussian, directions, evidence, nodes, weights, order
        )

    def site_changes(self, before, after, evidence, nodes):
        """KL, in nats to second order, by which the change of each record's site moves the belief `after`."""
        return site_changes(self.log_likelihood, before, after, evidence, nodes)

    def influence(self, gaussian, evidence, nodes):
        """Share of the belief's precision that each record gave, summed over directions: tr(Σ s_i)."""
        return influence(self.log_likelihood, gaussian, evidence, nodes)


class DensityModel(AbstractDifferentiated):
    """Any model that can be written down in JAX.

    Parameters
    ----------
    prior_log_density
        θ ↦ log p(θ), up to a constant.
    record_log_density
        (θ, record) ↦ log p(record|θ), for one record: a pytree of arrays without the leading axis.
    dim
        Length d of θ.
    dtype
        Floating-point type, JAX's default unless given.
    """

    prior_log_density: Callable[[Float[Array, " d"]], Float[Array, ""]]
    record_log_density: Callable[[Float[Array, " d"], Any], Float[Array, ""]]
    size: int = eqx.field(static=True)
    float_type: str = eqx.field(static=True)

    def __init__(self, prior_log_density, record_log_density, dim: int, dtype: jnp.dtype | None = None):
        self.prior_log_density = prior_log_density
        self.record_log_density = record_log_density
        self.size = dim
        self.float_type = jnp.dtype(jnp.result_type(float) if dtype is None else dtype).name

    def require_valid(self) -> None:
        """Refuse a length or a type that no θ has."""
        require_positive("size", self.size)
        if self.float_type not in ("float32", "float64"):
            raise ValueError(f"float_type must be float32 or float64, got {self.float_type!r}")

    @property
    def dim(self) -> int:
        """Length d of θ."""
        return self.size

    @property
    def dtype(self) -> jnp.dtype:
        """Floating-point type."""
        return jnp.dtype(self.float_type)

    @property
    def holds_functions(self) -> bool:
        """Whether the model holds functions of a user's, which it always does."""
        return True

    def encode(self, records, name: str = "records"):
        """Finite arrays that share their leading axis; floats get the model's type, integers stay."""
        return to_arrays(records, name, self.dtype)

    def log_prior(self, theta):
        """Log p(θ)."""
        return self.prior_log_density(theta)

    def log_likelihood(self, theta, evidence):
        """Log p(record|θ) of each record."""
        return jax.vmap(self.record_log_density, (None, 0))(theta, evidence)


class GammaShape(AbstractDifferentiated):
    """y ~ Gamma(shape, rate) with known rate and unknown shape; θ = log shape, so that d = 1.

    Parameters
    ----------
    rate
        Rate of the Gamma distribution.
    prior
        Gaussian over the log-shape.
    """

    rate: Float[Array, ""]
    prior: AbstractGaussian

    def __init__(self, rate, prior: AbstractGaussian):
        _require_scalar(prior)
        self.rate = jnp.asarray(rate, prior.dtype)
        self.prior = prior

    def require_valid(self) -> None:
        """Refuse a rate that is not positive, and a prior over anything but one number."""
        require_positive("rate", self.rate)
        _require_scalar(self.prior)

    @property
    def dim(self) -> int:
        """Length of θ, which is one."""
        return 1

    @property
    def dtype(self) -> jnp.dtype:
        """Floating-point type of the prior."""
        return self.prior.dtype

    @property
    def gaussian_prior(self) -> AbstractGaussian:
        """The Gaussian prior over the log-shape."""
        return self.prior

    def encode(self, records, name: str = "records"):
        """Positive numbers, shape (n,)."""
        y = to_float_array(records, name, self.dtype, (None,))
        require_records(len(y), name)
        if (wrong := np.asarray(y) <= 0).any():
            row = int(np.argmax(wrong))
            raise ValueError(f"{name} must be positive, got {y[row]:g} in row {row}")
        return y

    def log_prior(self, theta):
        """Log p(θ)."""
        return self.prior.log_prob(theta)

    def log_likelihood(self, theta, evidence):
        """Log-density of the Gamma distribution."""
        shape = jnp.exp(theta[0])
        log_y = jnp.log(evidence)
        return shape * jnp.log(self.rate) - gammaln(shape) + (shape - 1) * log_y - self.rate * evidence


def _require_scalar(prior: AbstractGaussian) -> None:
    if prior.dim != 1:
        raise ValueError(f"prior must have length 1, got {prior.dim}")
