"""A sparse Gaussian process near records that are at hand: PIC."""

import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Float

from unbayes._numerics.records import to_float_array
from unbayes._validation import require_lower_triangular
from unbayes.models.features import AbstractFeatures, InducingInputs, WhitenedInducingInputs

ProcessFeatures = InducingInputs | WhitenedInducingInputs


class LocalFeatures(AbstractFeatures):
    """f of a sparse Gaussian process given θ and the records of one block, y_B = f_B + noise (PIC).

    With r(x, x') = k(x, x') − q(x, x') the covariance that θ leaves open and Λ = r(B, B) + noise, features
    are a(x) − r(x, B) Λ⁻¹ a(B), the known part of f is r(x, B) Λ⁻¹ y_B, and what stays open is
    r(x, x) − r(x, B) Λ⁻¹ r(B, x).

    Parameters
    ----------
    process
        The process, with `conditional_variance`.
    locations
        Inputs of the block's records, shape (n, k).
    targets
        Their targets less the mean of the process, shape (n,).
    noise
        Variance of the noise of each, shape (n,).
    """

    process: ProcessFeatures
    locations: Float[Array, "n k"]
    targets: Float[Array, " n"]
    scale_tril: Float[Array, "n n"]

    def __init__(self, process: ProcessFeatures, locations, targets, noise):
        require_open_process(process, "process")
        self.process = process
        dtype = process.kernel.lengthscales.dtype
        self.locations = to_float_array(locations, "locations", dtype, (None, process.inputs))
        total = len(self.locations)
        self.targets = to_float_array(targets, "targets", dtype, (total,))
        own = to_float_array(noise, "noise", dtype, (total,))
        self.scale_tril = jnp.linalg.cholesky(self._left_open(self.locations) + jnp.diag(own))
        if not bool(jnp.isfinite(self.scale_tril).all()):
            raise ValueError(
                f"the covariance of the records is not positive definite in {self.scale_tril.dtype}; give "
                "the likelihood more noise"
            )

    def require_valid(self) -> None:
        """Refuse records, or a factor of their covariance, that do not fit the process."""
        require_open_process(self.process, "process")
        require_lower_triangular("scale_tril", self.scale_tril)
        if self.locations.shape[1] != self.inputs:
            raise ValueError(f"locations must have {self.inputs} columns, got {self.locations.shape[1]}")

    @property
    def inputs(self) -> int:
        """Number k of input columns."""
        return self.process.inputs

    @property
    def size(self) -> int:
        """Number m of inducing inputs."""
        return self.process.size

    @property
    def leaves_variance_open(self) -> bool:
        """Whether θ and the records leave part of f open, which they do."""
        return True

    @property
    def kept_inputs(self) -> Float[Array, "l k"]:
        """The inducing inputs, and those of the records."""
        return jnp.concatenate([self.process.kept_inputs, self.locations])

    def __call__(self, x):
        """Feature vectors, less what the features of the records tell of them."""
        return self.process(x) - self._gain(x) @ self.process(self.locations)

    def offset(self, x):
        """What the records tell of f beyond θ, shape (n,)."""
        return self._gain(x) @ self.targets

    def variance(self, x):
        """Variance of f that θ and the records leave open, shape (n,)."""
        open_variance = self.process.variance(x)
        assert open_variance is not None
        told = solve_triangular(self.scale_tril, self._left_open(x).T, lower=True)
        return jnp.maximum(open_variance - (told**2).sum(0), 0)

    def _gain(self, x) -> Float[Array, "l n"]:
        """r(x, B) Λ⁻¹."""
        return cho_solve((self.scale_tril, True), self._left_open(x).T).T

    def _left_open(self, x) -> Float[Array, "l n"]:
        """Covariance r(x, B) of f with that at the records, given θ."""
        root = self.process.prior.to_full().scale_tril
        explained = (self.process(x) @ root) @ (self.process(self.locations) @ root).T
        return self.process.kernel(x, self.locations) - explained


def require_open_process(features: AbstractFeatures, name: str) -> None:
    """Refuse features that are not those of a process which keeps var(f|u)."""
    if not isinstance(features, ProcessFeatures) or not features.leaves_variance_open:
        raise ValueError(f"{name} must be those of inducing inputs with conditional_variance")
