"""A sparse Gaussian process of GPyTorch, whatever its kernel and mean, as features of a linear model."""

# pyright: reportMissingImports=false

import copy
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
import torch
from gpytorch.models import ApproximateGP
from gpytorch.variational import UnwhitenedVariationalStrategy
from jaxtyping import Float
from linear_operator.utils.cholesky import psd_safe_cholesky
from linear_operator.utils.errors import NotPSDError

from unbayes.adapters._torch import to_double
from unbayes.models import AbstractFeatures

# Difference between what a module predicts and what was read of it, relative to the standard deviation or
# variance of the prior, that is more than rounding in double precision.
LARGEST_ROUNDING = 1e-3
# Records that the module looks at together: their joint covariance with the inducing points may be dense.
RECORDS_AT_ONCE = 1024


class GivenFeatures(AbstractFeatures):
    """Features, variances and known parts of f that were computed elsewhere and are handed in as columns.

    Parameters
    ----------
    inputs
        Number m + 2 of columns: features, variance left open, and known part of f.
    """

    inputs: int = eqx.field(static=True)

    @property
    def size(self) -> int:
        """Number m of features."""
        return self.inputs - 2

    @property
    def leaves_variance_open(self) -> bool:
        """Whether θ leaves part of f open, as it does in a sparse process."""
        return True

    def __call__(self, x):
        """The first m columns."""
        return x[:, : self.size]

    def variance(self, x):
        """The last column but one."""
        return x[:, -2]

    def offset(self, x):
        """The last column."""
        return x[:, -1]


class Prior(NamedTuple):
    """The process at the inducing points and at n inputs.

    Attributes
    ----------
    cross
        Covariances of f with the inducing values, shape (m, n).
    variance, mean
        Of f, shape (n,).
    """

    cross: torch.Tensor
    variance: torch.Tensor
    mean: torch.Tensor


class Process:
    """A copy of a module in double precision, which evaluates its own kernel and mean.

    Parameters
    ----------
    gp
        With a whitened or unwhitened strategy, in any mode and type.
    """

    def __init__(self, gp: ApproximateGP):
        strategy = gp.variational_strategy
        # What GPyTorch has cached belongs to graphs of training, and cannot be copied.
        strategy._clear_cache()
        self.module = copy.deepcopy(gp).double().eval().requires_grad_(False)
        self.strategy = self.module.variational_strategy
        # Unless given, it depends on the type.
        self.strategy.jitter_val = strategy.jitter_val
        self.includes_mean = type(strategy) is UnwhitenedVariationalStrategy
        points = self.strategy.inducing_points
        prior = _called(self.module.forward, points, "gp.forward must take its inducing points")
        if prior.mean.shape != points.shape[:1]:
            raise ValueError(
                f"gp.forward must return one mean for each of {len(points)} inputs, got means of shape "
                f"{tuple(prior.mean.shape)}"
            )
        jitter = self.strategy.jitter_val * torch.eye(len(points), dtype=torch.float64, device=points.device)
        self.inducing_mean = to_double(prior.mean)
        try:
            self.root = psd_safe_cholesky(prior.covariance_matrix + jitter)
        except NotPSDError as error:
            raise ValueError(
                "the kernel matrix of the inducing points of gp is not positive definite; move them apart"
            ) from error

    @property
    def size(self) -> int:
        """Number m of inducing points."""
        return len(self.root)

    @property
    def shift(self) -> Float[np.ndarray, " m"]:
        """What the variational mean holds besides θ: the mean of the process, where it is not whitened."""
        return self.inducing_mean * self.includes_mean

    def columns(self, x: np.ndarray, mean, covariance, name: str) -> Float[np.ndarray, "n c"]:
        """Records' inputs as `GivenFeatures` takes them, checked against what the module itself predicts.

        Parameters
        ----------
        x
            Inputs as the module takes them, n along the leading axis.
        mean, covariance
            Of the belief about θ.
        name
            What the caller calls the inputs.
        """
        tensor = torch.from_numpy(np.array(x, np.float64)).to(self.root.device)
        # Its half is an input that a module takes wherever it takes the row itself.
        alone = self._handed_over(torch.stack([tensor[0], tensor[0] / 2]), name)[0][0]
        parts = []
        for start in range(0, len(tensor), RECORDS_AT_ONCE):
            part = tensor[start : start + RECORDS_AT_ONCE]
            inputs, own = self._handed_over(part, name)
            if start == 0 and not torch.allclose(inputs[0], alone):
                raise ValueError(
                    "gp must see every input by itself, always the same way; it made something else of the "
                    f"first row of {name} when it was called again, with another row beside it"
                )
            prior = self._prior(inputs)
            columns = self._columns(prior)
            if not np.isfinite(columns).all():
                raise ValueError(f"{name} must give finite means and covariances, got NaN or infinity")
            _require_prediction(columns, own, mean, covariance, float(prior.variance.max()))
            parts.append(columns)
        return np.concatenate(parts)

    def _handed_over(self, x: torch.Tensor, name: str) -> tuple[torch.Tensor, Any]:
        """Inputs as they reach the strategy, past all that the module does to them first, and q(f) there."""
        seen = []
        own = type(self.strategy).forward

        def forward(inputs, points, **settings):
            seen.append(inputs)
            if not torch.isfinite(inputs).all():
                raise ValueError("NaN or infinity as what it makes of them")
            if not torch.equal(inputs, points):
                return own(self.strategy, inputs, points, **settings)
            # For exactly its inducing points a strategy may take a short cut past its kernel: a row more.
            return own(self.strategy, torch.cat([inputs, inputs[-1:]]), points, **settings)[:-1]

        self.strategy.forward = forward
        try:
            found = _called(self.module, x, f"gp must take {name} of shape {tuple(x.shape)}")
        finally:
            del self.strategy.forward
        width = self.strategy.inducing_points.shape[1]
        if len(seen) != 1 or seen[0].shape != (len(x), width):
            raise ValueError(
                f"gp must hand each row of {name} to its variational strategy once, as {width} numbers, got "
                f"{[tuple(each.shape) for each in seen]} for {len(x)} rows"
            )
        return seen[0], found

    def _prior(self, x: torch.Tensor) -> Prior:
        """The process at inputs of the strategy."""
        both = torch.cat([self.strategy.inducing_points, x])
        prior = _called(self.module.forward, both, "gp.forward must take its inputs")
        covariance = prior.lazy_covariance_matrix
        cross = covariance[: self.size, self.size :].to_dense()
        variance = covariance[self.size :, self.size :].diagonal(dim1=-1, dim2=-2)
        # A whitened strategy adds the jitter to the variance of f, too.
        jitter = 0.0 if self.includes_mean else self.strategy.jitter_val
        return Prior(cross, variance + jitter, prior.mean[self.size :])

    def _columns(self, prior: Prior) -> Float[np.ndarray, "n c"]:
        """Features L⁻¹k, or K⁻¹k where u is not whitened, k(x, x) − kᵀK⁻¹k, and the mean."""
        whitened = torch.linalg.solve_triangular(self.root, prior.cross, upper=False)
        design = whitened
        if self.includes_mean:
            design = torch.linalg.solve_triangular(self.root.T, whitened, upper=True)
        left = (prior.variance - (whitened**2).sum(0)).clamp_min(0)
        return to_double(torch.cat([design, left[None], prior.mean[None]]).T)


def _called(function: Any, x: torch.Tensor, expected: str) -> Any:
    """What the module makes of inputs; its own errors as a sentence."""
    with torch.no_grad():
        try:
            return function(x)
        except (RuntimeError, ValueError, TypeError) as error:
            raise ValueError(f"{expected} in double precision, got {error}") from error


def _require_prediction(columns, own: Any, mean, covariance, prior_variance: float) -> None:
    """Refuse a module whose predictions are not those of what was read."""
    design, left, offset = columns[:, :-2], columns[:, -2], columns[:, -1]
    found_mean = to_double(own.mean)
    found_variance = to_double(own.lazy_covariance_matrix.diagonal(dim1=-1, dim2=-2))
    expected_mean = offset + design @ mean
    expected_variance = left + np.einsum("np,pq,nq->n", design, covariance, design)
    off_mean = np.abs(found_mean - expected_mean)
    off_variance = np.abs(found_variance - expected_variance)
    limits = (
        LARGEST_ROUNDING * (prior_variance**0.5 + np.abs(expected_mean)),
        LARGEST_ROUNDING * prior_variance,
    )
    if not ((off_mean <= limits[0]).all() and (off_variance <= limits[1]).all()):
        raise ValueError(
            "gp must predict what its mean, kernel and variational distribution say; at the given inputs its "
            f"mean is off by {off_mean.max():.2g} and its variance by {off_variance.max():.2g}"
        )
