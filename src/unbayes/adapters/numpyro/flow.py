"""The normalizing flow of an `AutoIAFNormal` as a belief."""

from typing import Any, Self

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray
from numpyro import handlers
from numpyro.infer.autoguide import AutoIAFNormal

from unbayes.posteriors import AbstractVariational, FullGaussian
from unbayes.posteriors.mode import find_mode


class GuideFlow(AbstractVariational):
    """Distribution that an `AutoIAFNormal` gives to its latent vector.

    Parameters
    ----------
    params
        The weights of its networks, by the names that the guide gives them.
    guide
        Knows how to put them together.
    """

    params: dict[str, Any]
    guide: AutoIAFNormal = eqx.field(static=True)

    @classmethod
    def standard(cls, dim: int, dtype: jnp.dtype | None = None, *, key: PRNGKeyArray) -> Self:
        """Not without a guide: SVI is what trains these."""
        raise TypeError("a GuideFlow is made from a trained guide, not from a number of parameters")

    @property
    def dim(self) -> int:
        """Length d of θ."""
        return self.guide.latent_dim

    @property
    def dtype(self) -> jnp.dtype:
        """NumPyro's flows compute in JAX's default type."""
        return jnp.dtype(jnp.result_type(float))

    def _sample(self, key):
        return self._distribution().sample(key)

    def _sample_and_log_prob(self, key):
        distribution = self._distribution()
        theta, intermediates = distribution.sample_with_intermediates(key)
        return theta, distribution.log_prob(theta, intermediates)

    def _log_prob(self, theta):
        return self._distribution().log_prob(theta)

    def mode(self, key: PRNGKeyArray | None = None, *, starts: int = 8) -> Float[Array, " d"]:
        """Where the density is largest, by BFGS from the likeliest of a thousand draws."""
        if key is None:
            raise ValueError("key must be given: the mode of a flow is searched from random starts")
        draws = self.sample(key, (1000,))
        frame = FullGaussian.from_covariance(draws.mean(0), jnp.cov(draws.T))
        return find_mode(self, frame, key, starts)

    def _distribution(self) -> Any:
        return handlers.substitute(self.guide._get_posterior, data=self.params)()
