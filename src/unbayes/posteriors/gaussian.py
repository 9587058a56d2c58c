"""Gaussian beliefs in moment form, with natural parameters on request."""

import abc
import math
from typing import Self

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unbayes._numerics.linalg import dense_gram, inverse_triangular, quadratic_forms, squared_lengths
from unbayes._validation import require_lower_triangular
from unbayes.posteriors.base import AbstractExponentialFamily, AbstractVariational, float_array
from unbayes.posteriors.natural import GaussianNatural
from unbayes.posteriors.precision import AbstractPrecision, DensePrecision, DiagonalPrecision

LOG_2PI = math.log(2 * math.pi)


class AbstractGaussian(AbstractVariational, AbstractExponentialFamily):
    """N(m, Σ) with closed-form entropy, KL and maximum."""

    mean: eqx.AbstractVar[Float[Array, " d"]]

    @classmethod
    @abc.abstractmethod
    def from_natural(cls, natural: GaussianNatural) -> Self:
        """Gaussian with the given natural parameters; NaN where the precision is not positive definite."""

    @property
    @abc.abstractmethod
    def natural(self) -> GaussianNatural:
        """Natural parameters (Λm, Λ)."""

    @abc.abstractmethod
    def site(self, gradient: Float[Array, " d"], curvature: AbstractPrecision) -> GaussianNatural:
        """Natural gradient of E_q[log g(θ)] by the theorems of Bonnet and Price.

        Parameters
        ----------
        gradient
            E_q[∇ log g], shape (d,).
        curvature
            −E_q[∇² log g], of which as much is kept as this belief's own precision can hold.
        """

    @abc.abstractmethod
    def shares(self, precision: AbstractPrecision) -> Float[Array, " d"]:
        """Shares of this belief's own precision that `precision` amounts to, in d directions.

        Where all are below one, `precision` can be taken away and leaves a proper belief.
        """

    def evidence_left(self, natural: GaussianNatural, prior: "AbstractGaussian") -> Float[Array, ""]:
        """Least share of precision that `natural` holds beyond `prior`."""
        return self.evidence_left_without(self.natural - natural, prior)

    def evidence_left_without(self, site: GaussianNatural, prior: "AbstractGaussian") -> Float[Array, ""]:
        """Least share of precision that is left beyond `prior` once `site` is taken away."""
        taken, given = (
            self.site(self.mean, each).precision for each in (site.precision, prior.natural.precision)
        )
        return 1 - self.shares(taken + given).max()

    @abc.abstractmethod
    def toward(self, target: GaussianNatural, step: Float[Array, ""] | float) -> Self:
        """Member of the same family that lies a share `step` of the way to natural parameters `target`."""

    def expected_quadratic(
        self, precision: AbstractPrecision, centre: Float[Array, " d"] | float = 0.0
    ) -> Float[Array, ""]:
        """E_q[(θ − centre)ᵀΛ(θ − centre)] for a precision Λ."""
        away = self.mean - centre
        return precision.trace_with(self) + away @ (precision @ away)

    @property
    @abc.abstractmethod
    def variance(self) -> Float[Array, " d"]:
        """Marginal variances, the diagonal of Σ."""

    @property
    @abc.abstractmethod
    def covariance(self) -> Float[Array, "d d"]:
        """Σ as a dense matrix."""

    @property
    @abc.abstractmethod
    def log_det_scale(self) -> Float[Array, ""]:
        """½ log det Σ."""

    @abc.abstractmethod
    def colour(self, noise: Float[Array, " d"]) -> Float[Array, " d"]:
        """Map standard-normal noise to a draw."""

    @abc.abstractmethod
    def whiten(self, theta: Float[Array, " d"]) -> Float[Array, " d"]:
        """Inverse of `colour`."""

    @abc.abstractmethod
    def push(self, inner: Self) -> Self:
        """Distribution of `colour(z)` for z drawn from `inner`, a belief in whitened coordinates."""

    @abc.abstractmethod
    def output_covariance(self, design: Float[Array, "n p"], outputs: int) -> Float[Array, "n o o"]:
        """Covariance of f = W a.

        Parameters
        ----------
        design
            Feature vectors a, one row per record, shape (n, p).
        outputs
            Number o of rows of W; θ is W flattened row by row, d = o p.
        """

    @abc.abstractmethod
    def gram(self, design: Float[Array, "n p"], weights: Float[Array, "n o o"]) -> AbstractPrecision:
        """Σ_n weights_n ⊗ a_n a_nᵀ, as much of it as `site` keeps, for symmetric weights."""

    @property
    def dim(self) -> int:
        """Length d of θ."""
        return self.mean.shape[-1]

    @property
    def dtype(self) -> jnp.dtype:
        """Floating-point type."""
        return self.mean.dtype

    def _sample(self, key):
        return self.colour(jr.normal(key, (self.dim,), self.dtype))

    def _log_prob(self, theta):
        return _standard_log_prob(self.whiten(theta)) - self.log_det_scale

    def _sample_and_log_prob(self, key):
        noise = jr.normal(key, (self.dim,), self.dtype)
        return self.colour(noise), _standard_log_prob(noise) - self.log_det_scale

    def mode(self, key: PRNGKeyArray | None = None) -> Float[Array, " d"]:
        """Where the density is largest: the mean."""
        return self.mean

    @abc.abstractmethod
    def to_full(self) -> "FullGaussian":
        """The same Gaussian with its covariance as a dense matrix."""

    def with_natural(self, natural: GaussianNatural) -> Self:
        """Member of the same family with other natural parameters."""
        return type(self).from_natural(natural)

    def entropy(self) -> Float[Array, ""]:
        """Differential entropy in nats."""
        return 0.5 * self.dim * (1 + LOG_2PI) + self.log_det_scale


class DiagonalGaussian(AbstractGaussian):
    """Independent Gaussians, N(m, diag(s²)).

    Parameters
    ----------
    mean
        m, shape (d,).
    scale
        Standard deviations s > 0, shape (d,).
    """

    mean: Float[Array, " d"]
    log_scale: Float[Array, " d"]

    def __init__(self, mean, scale):
        self.mean = float_array(mean)
        self.log_scale = jnp.log(jnp.asarray(scale, self.mean.dtype))
        _require_shape("mean", self.mean, (_length(self.mean),))
        _require_shape("scale", self.log_scale, (_length(self.mean),))

    @classmethod
    def standard(cls, dim: int, dtype: jnp.dtype | None = None, *, key: PRNGKeyArray | None = None) -> Self:
        """N(0, I)."""
        return cls(jnp.zeros(dim, dtype), jnp.ones(dim, dtype))

    @classmethod
    def from_natural(cls, natural: GaussianNatural) -> Self:
        """Gaussian with the given natural parameters; of dense ones, the diagonal Gaussian nearest to them.

        Nearest in KL[diagonal‖dense]: it has the same mean and the diagonal of the precision.
        """
        precision = natural.precision
        return cls(precision.solve(natural.linear), precision.diagonal**-0.5)

    @property
    def natural(self) -> GaussianNatural:
        """Natural parameters, with a diagonal precision."""
        precision = DiagonalPrecision(jnp.exp(-2 * self.log_scale))
        return GaussianNatural(precision @ self.mean, precision)

    def site(self, gradient, curvature):
        """Natural gradient, with the diagonal of the curvature."""
        curvature = DiagonalPrecision(curvature.diagonal)
        return GaussianNatural(gradient + curvature @ self.mean, curvature)

    def toward(self, target, step):
        """Interpolate natural parameters; with a dense target, the precision and, as Newton, the mean."""
        if isinstance(target.precision, DiagonalPrecision):
            return self.from_natural(_interpolate(self.natural, target, step))
        gradient, diagonal = target.gradient_at(self.mean), target.precision.diagonal
        direction = target.precision.solve(gradient)
        # Where the dense precision is indefinite, each coordinate for itself.
        direction = jnp.where(jnp.isfinite(direction).all(), direction, gradient / diagonal)
        precision = (1 - step) * jnp.exp(-2 * self.log_scale) + step * diagonal
        return DiagonalGaussian(self.mean + step * direction, precision**-0.5)

    def shares(self, precision):
        """Shares of each coordinate's precision that the diagonal of `precision` amounts to."""
        return precision.diagonal * self.variance

    def require_valid(self) -> None:
        """Refuse scales that overflow."""
        with np.errstate(over="ignore", under="ignore"):
            scale = np.exp(np.asarray(self.log_scale))
        if not (np.isfinite(scale) & (scale > 0)).all():
            raise ValueError(f"log_scale must be the logarithm of a {scale.dtype}, got one beyond its range")

    @property
    def scale(self) -> Float[Array, " d"]:
        """Standard deviations."""
        return jnp.exp(self.log_scale)

    @property
    def variance(self) -> Float[Array, " d"]:
        """Marginal variances."""
        return jnp.exp(2 * self.log_scale)

    @property
    def covariance(self) -> Float[Array, "d d"]:
        """Σ as a dense matrix."""
        return jnp.diag(self.variance)

    @property
    def log_det_scale(self) -> Float[Array, ""]:
        """½ log det Σ."""
        return self.log_scale.sum()

    def colour(self, noise):
        """θ = m + s ⊙ noise."""
        return self.mean + self.scale * noise

    def whiten(self, theta):
        """Inverse of `colour`."""
        return (theta - self.mean) / self.scale

    def push(self, inner):
        """Distribution of `colour(z)` for z from `inner`, whose scales multiply with these."""
        return DiagonalGaussian(self.colour(inner.mean), self.scale * inner.scale)

    def output_covariance(self, design, outputs):
        """Covariance of f = W a, zero between different outputs."""
        variance = self.variance.reshape(outputs, -1)
        return (design**2 @ variance.T)[:, :, None] * jnp.eye(outputs, dtype=self.dtype)

    def gram(self, design, weights):
        """The diagonal of Σ_n weights_n ⊗ a_n a_nᵀ."""
        return DiagonalPrecision(jnp.einsum("noo,np->op", weights, design**2).reshape(-1))

    def to_full(self) -> "FullGaussian":
        """The same Gaussian with a dense factor."""
        return FullGaussian(self.mean, jnp.diag(self.scale))


class FullGaussian(AbstractGaussian):
    """Gaussian with full covariance, N(m, L Lᵀ).

    Parameters
    ----------
    mean
        m, shape (d,).
    scale_tril
        Lower-triangular L, shape (d, d); what stands above the diagonal is ignored. The sign of a column
        is free, so that L can be optimised without a constraint.
    """

    mean: Float[Array, " d"]
    raw_scale_tril: Float[Array, "d d"]

    def __init__(self, mean, scale_tril):
        self.mean = float_array(mean)
        scale_tril = jnp.asarray(scale_tril, self.mean.dtype)
        _require_shape("mean", self.mean, (_length(self.mean),))
        _require_shape("scale_tril", scale_tril, (_length(self.mean), _length(self.mean)))
        self.raw_scale_tril = jnp.tril(scale_tril)

    @classmethod
    def standard(cls, dim: int, dtype: jnp.dtype | None = None, *, key: PRNGKeyArray | None = None) -> Self:
        """N(0, I)."""
        dtype = jnp.result_type(float) if dtype is None else dtype
        return cls(np.zeros(dim, dtype), np.eye(dim, dtype=dtype))

    @classmethod
    def from_covariance(cls, mean, covariance) -> Self:
        """Gaussian with the given moments."""
        return cls(mean, jnp.linalg.cholesky(jnp.asarray(covariance)))

    @classmethod
    def from_natural(cls, natural: GaussianNatural) -> Self:
        """Gaussian with the given natural parameters."""
        scale_tril = natural.precision.inverse_factor()
        return cls(scale_tril @ (scale_tril.T @ natural.linear), scale_tril)

    @property
    def natural(self) -> GaussianNatural:
        """Natural parameters, with a dense precision."""
        inverse = inverse_triangular(self.scale_tril)
        precision = DensePrecision(inverse.T @ inverse)
        return GaussianNatural(inverse.T @ (inverse @ self.mean), precision)

    def site(self, gradient, curvature):
        """Natural gradient, with all of the curvature."""
        curvature = DensePrecision(curvature.matrix)
        return GaussianNatural(gradient + curvature @ self.mean, curvature)

    def toward(self, target, step):
        """Gaussian whose natural parameters lie a share `step` of the way to `target`."""
        return self.from_natural(_interpolate(self.natural, target, step))

    def shares(self, precision):
        """Shares in ascending order, the first and last of them the extremes over all directions."""
        return precision.shares(self.scale_tril)

    def require_valid(self) -> None:
        """Refuse a factor that is not triangular, or singular; its signs are free."""
        require_lower_triangular("raw_scale_tril", self.raw_scale_tril)

    @property
    def scale_tril(self) -> Float[Array, "d d"]:
        """Lower-triangular L with Σ = L Lᵀ."""
        return jnp.tril(self.raw_scale_tril)

    @property
    def variance(self) -> Float[Array, " d"]:
        """Marginal variances."""
        return (self.scale_tril**2).sum(-1)

    @property
    def covariance(self) -> Float[Array, "d d"]:
        """Σ as a dense matrix."""
        return self.scale_tril @ self.scale_tril.T

    @property
    def log_det_scale(self) -> Float[Array, ""]:
        """½ log det Σ."""
        return jnp.log(jnp.abs(jnp.diagonal(self.raw_scale_tril))).sum()

    def colour(self, noise):
        """θ = m + L noise."""
        return self.mean + self.scale_tril @ noise

    def whiten(self, theta):
        """Inverse of `colour`, as a product: for many θ at once, of many beliefs, solving is slower."""
        return inverse_triangular(self.scale_tril) @ (theta - self.mean)

    def push(self, inner):
        """Distribution of `colour(z)` for z from `inner`, whose factor this one multiplies."""
        return FullGaussian(self.colour(inner.mean), self.scale_tril @ inner.scale_tril)

    def output_covariance(self, design, outputs):
        """Quadratic forms in a; of a single output, as squares, which cannot become negative."""
        if outputs == 1:
            return squared_lengths(design, self.scale_tril)[:, None, None]
        return quadratic_forms(design, self.covariance, outputs)

    def gram(self, design, weights):
        """Σ_n weights_n ⊗ a_n a_nᵀ with all its entries."""
        return DensePrecision(dense_gram(design, weights))

    def to_full(self) -> "FullGaussian":
        """The Gaussian as it is: its covariance is dense already."""
        return self


def _interpolate(start: GaussianNatural, end: GaussianNatural, step) -> GaussianNatural:
    return GaussianNatural(
        (1 - step) * start.linear + step * end.linear, start.precision * (1 - step) + end.precision * step
    )


def _length(mean) -> int:
    return mean.shape[-1] if mean.ndim else 1


def _require_shape(name: str, array, shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}")


def _standard_log_prob(noise):
    return -0.5 * (noise**2).sum() - 0.5 * noise.shape[-1] * LOG_2PI
