"""Common models, each one line of features × likelihood × prior."""

import jax.numpy as jnp

from unbayes.models.blocks import BlockProcess
from unbayes.models.features import InducingInputs, RawFeatures
from unbayes.models.kernels import AbstractKernel
from unbayes.models.likelihoods import (
    AbstractLikelihood,
    BernoulliLikelihood,
    CategoricalLikelihood,
    GaussianLikelihood,
    IntegratedLikelihood,
    PoissonLikelihood,
)
from unbayes.models.linear import LinearModel
from unbayes.posteriors import DiagonalGaussian, FullGaussian


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
    """Sparse Gaussian process whose θ are its values at the inducing inputs; see `InducingInputs`.

    The deterministic training conditional (DTC), or the variational bound of SVGP with
    `conditional_variance`. Of a likelihood with several outputs, each is a process of its own.
    """
    features = InducingInputs(
        inducing_inputs, kernel, conditional_variance=conditional_variance, jitter=jitter
    )
    prior = features.prior
    if likelihood.outputs > 1:
        factor = jnp.kron(jnp.eye(likelihood.outputs, dtype=prior.dtype), prior.scale_tril)
        prior = FullGaussian(jnp.zeros(len(factor), prior.dtype), factor)
    return LinearModel(features, likelihood, prior)


def fitc_gp(
    inducing_inputs, kernel: AbstractKernel, likelihood: AbstractLikelihood, *, jitter: float = 0.0
) -> LinearModel:
    """The same in the fully independent training conditional (FITC); see `IntegratedLikelihood`."""
    return sparse_gp(
        inducing_inputs, kernel, IntegratedLikelihood(likelihood), conditional_variance=True, jitter=jitter
    )


def pitc_gp(
    inducing_inputs, kernel: AbstractKernel, *, noise_scale: float, jitter: float = 0.0
) -> BlockProcess:
    """The same, exact within blocks of records (PITC, and PIC by its `local`); see `BlockProcess`."""
    features = InducingInputs(inducing_inputs, kernel, conditional_variance=True, jitter=jitter)
    return BlockProcess(features, IntegratedLikelihood(GaussianLikelihood(noise_scale)), features.prior)


def _regression(likelihood: AbstractLikelihood, features: int, prior_scale: float, bias: bool) -> LinearModel:
    if not prior_scale > 0:
        raise ValueError(f"prior_scale must be positive, got {prior_scale}")
    raw = RawFeatures(features, bias)
    size = raw.size * likelihood.outputs
    return LinearModel(raw, likelihood, DiagonalGaussian(jnp.zeros(size), jnp.full(size, prior_scale)))
