"""Where a density without a closed-form maximum is largest."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.optimize import minimize
from jaxtyping import Array, Float, PRNGKeyArray

from unbayes.posteriors.base import AbstractPosterior
from unbayes.posteriors.gaussian import AbstractGaussian


@eqx.filter_jit
def find_mode(
    posterior: AbstractPosterior, frame: AbstractGaussian, key: PRNGKeyArray, starts: int
) -> Float[Array, " d"]:
    """Mode by BFGS from the likeliest `starts` of a thousand draws.

    Coordinates are those of `frame`, a Gaussian near the posterior, so that curvature is of order one.
    """
    draws, log_prob = posterior.sample_and_log_prob(key, (1000,))
    best = draws[jnp.argsort(-log_prob)[:starts]]

    def descend(theta):
        start = frame.whiten(theta)
        found = minimize(lambda z: -posterior._log_prob(frame.colour(z)), start, method="BFGS")
        better = jnp.isfinite(found.fun) & (found.fun < -posterior._log_prob(theta))
        return frame.colour(jnp.where(better, found.x, start))

    tops = jax.vmap(descend)(best)
    return tops[jnp.argmax(posterior.log_prob(tops))]
