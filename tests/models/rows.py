"""One row per kind of linear model; θ has two or three entries, so that a grid over θ is possible."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from unbayes._numerics.quadrature import Nodes, gauss_hermite
from unbayes.models import (
    BernoulliLikelihood,
    HeteroscedasticLikelihood,
    InducingInputs,
    LinearModel,
    ProbitLikelihood,
    RawFeatures,
    SquaredExponential,
    WhitenedInducingInputs,
    fitc_gp,
    linear_regression,
    logistic_regression,
    poisson_regression,
    softmax_regression,
    sparse_gp,
)
from unbayes.posteriors import DiagonalGaussian, FullGaussian

INPUTS = np.array([[0.5], [-1.0], [2.0], [0.1], [-0.4]])
LABELS = np.array([1, 0, 1, 1, 0])
PROCESS = {
    "inducing_inputs": [[-1.0], [1.0]],
    "kernel": SquaredExponential(2.0, [1.2]),
    "likelihood": BernoulliLikelihood(),
}
WHITENED = WhitenedInducingInputs(
    InducingInputs([[-1.0], [1.0]], SquaredExponential(2.0, [1.2]), conditional_variance=True)
)

MODELS = {
    "linear": (linear_regression(1, noise_scale=0.5), LABELS - 0.3),
    "logistic": (logistic_regression(1), LABELS),
    "poisson": (poisson_regression(1), LABELS * 3),
    "softmax": (softmax_regression(1, 3, bias=False), LABELS + 1),
    "dtc": (sparse_gp(**PROCESS), LABELS),
    "svgp": (sparse_gp(**PROCESS, conditional_variance=True), LABELS),
    "fitc": (fitc_gp(**PROCESS), LABELS),
    "noise": (
        LinearModel(
            RawFeatures(1, bias=False),
            HeteroscedasticLikelihood(0.7),
            DiagonalGaussian([0, 0], [1, 0.4]),
        ),
        LABELS - 0.3,
    ),
    "probit": (LinearModel(WHITENED, ProbitLikelihood(), WHITENED.prior, offset=0.4), LABELS),
}
over_models = pytest.mark.parametrize(("model", "targets"), MODELS.values(), ids=MODELS)


def gaussians(dim):
    """A diagonal and a full Gaussian."""
    rng = np.random.default_rng(dim)
    root = 0.4 * np.tril(rng.normal(size=(dim, dim)), -1) + np.diag(rng.uniform(0.3, 0.8, dim))
    mean = rng.normal(size=dim)
    return DiagonalGaussian(mean, np.diag(root)), FullGaussian(mean, root)


def predictor_moments(model, gaussian):
    """Mean and standard deviation of f at `INPUTS`, by matrix algebra."""
    design, open_variance = model.encode_inputs(INPUTS)
    variance = np.einsum("np,pq,nq->n", *map(np.asarray, (design, gaussian.covariance, design)))
    if open_variance is not None:
        variance = variance + np.asarray(open_variance)
    return np.asarray(design) @ np.asarray(gaussian.mean) + float(model.offset or 0), np.sqrt(variance)


def grid(dim: int, count: int = 20) -> Nodes:
    """Gauss–Hermite nodes in several dimensions."""
    one = gauss_hermite(jnp.float64, count)
    points = np.array(list(itertools.product(np.asarray(one.points[:, 0]), repeat=dim)))
    weights = np.array(list(itertools.product(np.asarray(one.weights), repeat=dim))).prod(1)
    return Nodes(jnp.asarray(points), jnp.asarray(weights))
