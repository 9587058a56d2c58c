"""Common models, each one line of features × likelihood × prior."""

import jax.numpy as jnp

from unbayes.models.features import InducingInputs, RawFeatures
from unbayes.models.kernels import AbstractKernel
from unbayes.models.likelihoods import (
    AbstractLikelihood,
    BernoulliLikelihood,
    CategoricalLikelihood,
    GaussianLikelihood,
    PoissonLikelihood,
)
from unbayes.models.linear import LinearModel
from unbayes.posteriors import DiagonalGaussian


def linear_regression(features: int, *, noise_scale: float, prior_scale: float = 1.0, bias: bool = True):
    """Y = bias + wᵀx + noise of known scale; weights N(0, prior_scale²)."""
    if not noise_scale > 0:
        raise ValueError(f"noise_scale must be positive, got {noise_scale}")
    return _regression(GaussianLikelihood(noise_scale), features, prior_scale, bias)


def logistic_regression(features: int, *, prior_scale: float = 1.0, bias: bool = True) -> LinearModel:
    """Y ∈ {0, 1} with log-odds bias + wᵀx; weights N(0, prior_scale²)."""
    return _regression(BernoulliLikelihood(), features, prior_scale, bias)


def softmax_regression(features: int, classes: int, *, prior_scale: float = 1.0, bias: bool = True):
    """Y among `classes` with logits W x; weights N(0, prior_scale²)."""
    return _regression(CategoricalLikelihood(classes), features, prior_scale, bias)


def poisson_regression(features: int, *, prior_scale: float = 1.0, bias: bool = True) -> LinearModel:
    """Counts y with log-rate bias + wᵀx; weights N(0, prior_scale²)."""
    return _regression(PoissonLikelihood(), features, prior_scale, bias)


def sparse_gp(
    inducing_inputs,
    kernel: AbstractKernel,
    likelihood: AbstractLikelihood,
    *,
    conditional_variance: bool = False,
    jitter: float = 0.0,
) -> LinearModel:
    """Sparse Gaussian process whose θ are its values at the inducing inputs; see `InducingInputs`."""
    features = InducingInputs(
        inducing_inputs, kernel, conditional_variance=conditional_variance, jitter=jitter
    )
    return LinearModel(features, likelihood, features.prior)


def _regression(likelihood: AbstractLikelihood, features: int, prior_scale: float, bias: bool) -> LinearModel:
    if not prior_scale > 0:
        raise ValueError(f"prior_scale must be positive, got {prior_scale}")
    raw = RawFeatures(features, bias)
    size = raw.size * likelihood.outputs
    return LinearModel(raw, likelihood, DiagonalGaussian(jnp.zeros(size), jnp.full(size, prior_scale)))
