"""Predictive distributions of a linear model, in one compiled call each."""

from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp

from unbayes._numerics.quadrature import Nodes
from unbayes.models.evidence import LinearEvidence
from unbayes.posteriors import AbstractGaussian

if TYPE_CHECKING:
    from unbayes.models.linear import LinearModel


@eqx.filter_jit
def by_quadrature(model: "LinearModel", gaussian: AbstractGaussian, inputs: LinearEvidence):
    """For a single output, by the likelihood's own quadrature."""
    mean = model.predictor(gaussian.mean, inputs.design, inputs.offset)
    spread = gaussian.output_covariance(inputs.design, 1)[:, 0, 0]
    return model.likelihood.gaussian_predictive(
        mean, spread if inputs.variance is None else spread + inputs.variance
    )


@eqx.filter_jit
def on_nodes(model: "LinearModel", gaussian: AbstractGaussian, inputs: LinearEvidence, nodes: Nodes):
    """For several outputs, on common nodes."""
    mean, root = model._predictor_moments(gaussian, inputs, nodes)
    f = jax.vmap(model._values, (0, 0, None))(mean, root, nodes)
    return model.likelihood.predictive(f.transpose(2, 0, 1), jnp.log(nodes.weights))


@eqx.filter_jit
def from_draws(model: "LinearModel", posterior, inputs: LinearEvidence, key, draws: int):
    """For any posterior, from draws of θ."""
    theta_key, f_key = jax.random.split(key)
    thetas = posterior.sample(theta_key, (draws,))
    f = jax.vmap(model.predictor, (0, None, None))(thetas, inputs.design, inputs.offset)
    if inputs.variance is not None:
        f = f + jnp.sqrt(inputs.variance) * jax.random.normal(f_key, f.shape, f.dtype)
    return model.likelihood.predictive(f, jnp.full(draws, -jnp.log(draws), f.dtype))
