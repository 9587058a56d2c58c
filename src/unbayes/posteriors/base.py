"""What every belief over the parameters can do."""

import abc
from typing import Any, Self

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from unbayes._storable import Storable


class AbstractPosterior(Storable):
    """A belief over the parameter vector θ, as an immutable pytree.

    Subclasses write the unbatched mathematics (`_sample`, `_log_prob` and, where the joint is cheaper than
    its parts, `_sample_and_log_prob`); the public methods add leading axes and check shapes.
    """

    @property
    @abc.abstractmethod
    def dim(self) -> int:
        """Length d of θ."""

    @property
    @abc.abstractmethod
    def dtype(self) -> jnp.dtype:
        """Floating-point type of θ and of its log-density."""

    @abc.abstractmethod
    def _sample(self, key: PRNGKeyArray) -> Float[Array, " d"]: ...

    @abc.abstractmethod
    def _log_prob(self, theta: Float[Array, " d"]) -> Float[Array, ""]: ...

    def _sample_and_log_prob(self, key: PRNGKeyArray) -> tuple[Float[Array, " d"], Float[Array, ""]]:
        theta = self._sample(key)
        return theta, self._log_prob(theta)

    @abc.abstractmethod
    def mode(self, key: PRNGKeyArray | None = None) -> Float[Array, " d"]:
        """Where the density is largest; `key` is needed only where that takes a search."""

    def max_log_prob(self, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        """Maximum of the log-density, the reference of the adjusted likelihood, equation (6)."""
        return self._log_prob(self.mode(key))

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Float[Array, "*shape d"]:
        """Draw θ, with leading axes `shape`."""
        return _over_keys(self._sample, key, shape)

    def sample_and_log_prob(
        self, key: PRNGKeyArray, shape: tuple[int, ...] = ()
    ) -> tuple[Float[Array, "*shape d"], Float[Array, "*shape"]]:
        """Draw θ together with its log-density, cheaper than in two calls for a flow."""
        return _over_keys(self._sample_and_log_prob, key, shape)

    def log_prob(self, theta: Float[Array, "*shape d"]) -> Float[Array, "*shape"]:
        """Log-density at θ; any leading axes of `theta` are kept."""
        theta = jnp.asarray(theta, self.dtype)
        if theta.ndim == 0 or theta.shape[-1] != self.dim:
            raise ValueError(f"theta must have a last axis of length {self.dim}, got shape {theta.shape}")
        flat = jax.vmap(self._log_prob)(theta.reshape(-1, self.dim))
        return flat.reshape(theta.shape[:-1])


class AbstractVariational(AbstractPosterior):
    """A family that variational inference can fit by following gradients."""

    @classmethod
    @abc.abstractmethod
    def standard(cls, dim: int, dtype: jnp.dtype | None = None, *, key: PRNGKeyArray) -> Self:
        """A member at or near N(0, I), where gradient-based training starts."""


class AbstractFlow(AbstractVariational):
    """A family without natural parameters that can be pushed through an affine map."""

    @abc.abstractmethod
    def moved(self, before: Any, after: Any) -> Self:
        """The belief pushed through the affine map that takes the Gaussian `before` to `after`."""


class AbstractExponentialFamily(AbstractPosterior):
    """A belief in an exponential family, in which evidence adds to the natural parameters.

    Removing records is then one subtraction, equation (2), whatever the family.
    """

    @property
    @abc.abstractmethod
    def natural(self) -> PyTree[Float[Array, "..."]]:
        """Natural parameters, up to a constant of the family."""

    @abc.abstractmethod
    def with_natural(self, natural: PyTree[Float[Array, "..."]]) -> Self:
        """Member of the same family with other natural parameters."""

    @abc.abstractmethod
    def evidence_left(self, natural: Any, prior: Any) -> Float[Array, ""]:
        """Least share of this belief's evidence that `natural` still holds beyond `prior`.

        The minimum over counts, or over directions of θ. Below zero, more evidence was taken away than this
        belief can ever have received.
        """

    @abc.abstractmethod
    def entropy(self) -> Float[Array, ""]:
        """Entropy in nats."""


def float_array(values: Any) -> Float[Array, "..."]:
    """Array in the floating-point type it came in, else in JAX's default type."""
    array = jnp.asarray(values)
    return array if jnp.issubdtype(array.dtype, jnp.floating) else array.astype(jnp.result_type(float))


def _over_keys(draw, key: PRNGKeyArray, shape: tuple[int, ...]):
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        raise TypeError(f"key must be a typed key from jax.random.key, got an array of dtype {key.dtype}")
    for _ in shape:
        draw = jax.vmap(draw)
    return draw(jr.split(key, shape) if shape else key)
