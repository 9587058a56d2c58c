"""The Gaussian that stands for a belief of another family."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from unbayes.posteriors.base import AbstractPosterior
from unbayes.posteriors.gaussian import FullGaussian


@eqx.filter_jit
def matched_gaussian(posterior: AbstractPosterior, key: PRNGKeyArray, draws: int = 10_000) -> FullGaussian:
    """Gaussian with the mean and covariance of draws that the key fixes."""
    thetas = posterior.sample(key, (draws,))
    mean = thetas.mean(0)
    centred = thetas - mean
    return FullGaussian.from_covariance(mean, jnp.atleast_2d(centred.T @ centred / (draws - 1)))
