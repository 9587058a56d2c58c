"""Variational distributions of GPyTorch as Gaussian posteriors, and back."""

# pyright: reportMissingImports=false

from typing import Any

import numpy as np
from gpytorch.variational import (
    CholeskyVariationalDistribution,
    DeltaVariationalDistribution,
    MeanFieldVariationalDistribution,
    NaturalVariationalDistribution,
    TrilNaturalVariationalDistribution,
)
from jaxtyping import Float

from unbayes.adapters._torch import assign, to_double
from unbayes.posteriors import AbstractGaussian, DiagonalGaussian, FullGaussian

KINDS = (
    CholeskyVariationalDistribution,
    MeanFieldVariationalDistribution,
    NaturalVariationalDistribution,
    TrilNaturalVariationalDistribution,
)


def require_belief(distribution: Any) -> None:
    """Refuse a variational distribution that is no Gaussian over the values at the inducing points."""
    if type(distribution) is DeltaVariationalDistribution:
        raise TypeError(
            "the variational distribution of gp must be a Gaussian, got a DeltaVariationalDistribution: a "
            "point does not tell how sure the training data made it, so nothing can be taken back out"
        )
    if type(distribution) not in KINDS:
        names = ", ".join(kind.__name__ for kind in KINDS)
        raise TypeError(
            f"the variational distribution of gp must be one of {names}, got {type(distribution).__name__}"
        )


def read_belief(distribution: Any, shift: Float[np.ndarray, " m"]) -> AbstractGaussian:
    """The belief over θ = u − shift, from a distribution in double precision."""
    own = distribution()
    mean = to_double(own.mean) - shift
    if type(distribution) is MeanFieldVariationalDistribution:
        return DiagonalGaussian(mean, to_double(distribution.variational_stddev))
    if type(distribution) is CholeskyVariationalDistribution:
        return FullGaussian(mean, np.tril(to_double(distribution.chol_variational_covar)))
    return FullGaussian(mean, np.linalg.cholesky(to_double(own.covariance_matrix)))


def written(distribution: Any, posterior: Any, shift: Float[np.ndarray, " m"]) -> dict[str, np.ndarray]:
    """Parameters of the distribution, by name, with which it is the belief about u = θ + shift."""
    mean = np.asarray(posterior.mean) + shift
    kind = type(distribution)
    if kind is MeanFieldVariationalDistribution:
        return {"variational_mean": mean, "_variational_stddev": np.asarray(posterior.scale)}
    root = np.asarray(posterior.scale_tril)
    if kind is CholeskyVariationalDistribution:
        return {"variational_mean": mean, "chol_variational_covar": root}
    inverse = np.linalg.inv(root)
    precision = inverse.T @ inverse
    if kind is NaturalVariationalDistribution:
        return {"natural_vec": precision @ mean, "natural_mat": -0.5 * precision}
    return {"natural_vec": precision @ mean, "natural_tril_mat": np.tril(inverse)}


def write_belief(distribution: Any, parameters: dict[str, np.ndarray]) -> None:
    """Give the distribution these parameters."""
    for name, values in parameters.items():
        assign(getattr(distribution, name), values)
