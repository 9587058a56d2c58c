"""Predictive distributions of a linear model, in one compiled call each."""

from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from unbayes._numerics.quadrature import Nodes
from unbayes.models.evidence import LinearEvidence
from unbayes.models.predictive import AbstractPredictive
from unbayes.posteriors import AbstractGaussian, AbstractPosterior

if TYPE_CHECKING:
    from unbayes.models.linear import LinearModel


def of(
    model: "LinearModel",
    posterior: AbstractPosterior,
    inputs: LinearEvidence,
    key: PRNGKeyArray | None,
    draws: int,
) -> AbstractPredictive:
    """By quadrature where the posterior is Gaussian, else from draws, which take a key."""
    if isinstance(posterior, AbstractGaussian) and model.likelihood.outputs == 1:
        return _by_quadrature(model, posterior, inputs)
    if isinstance(posterior, AbstractGaussian):
        return _on_nodes(model, posterior, inputs, model.nodes(draws))
    if key is None:
        raise ValueError("key must be given: this predictive distribution is sampled")
    return _from_draws(model, posterior, inputs, key, draws)


@eqx.filter_jit
def _by_quadrature(model: "LinearModel", gaussian: AbstractGaussian, inputs: LinearEvidence):
    """For a single output, by the likelihood's own quadrature."""
    mean = model.predictor(gaussian.mean, inputs.design, inputs.offset)
    spread = gaussian.output_covariance(inputs.design, 1)[:, 0, 0]
    return model.likelihood.gaussian_predictive(
        mean, spread if inputs.variance is None else spread + inputs.variance
    )


@eqx.filter_jit
def _on_nodes(model: "LinearModel", gaussian: AbstractGaussian, inputs: LinearEvidence, nodes: Nodes):
    """For several outputs, on common nodes."""
    return model.likelihood.joint_predictive(*model._predictor_moments(gaussian, inputs, nodes), nodes)


@eqx.filter_jit
def _from_draws(model: "LinearModel", posterior, inputs: LinearEvidence, key, draws: int):
    """For any posterior, from draws of θ."""
    theta_key, f_key = jax.random.split(key)
    thetas = posterior.sample(theta_key, (draws,))
    f = jax.vmap(model.predictor, (0, None, None))(thetas, inputs.design, inputs.offset)
    if inputs.variance is not None:
        f = f + jnp.sqrt(inputs.variance) * jax.random.normal(f_key, f.shape, f.dtype)
    return model.likelihood.predictive(f, jnp.full(draws, -jnp.log(draws), f.dtype))
