"""Precisions Λ = Σ⁻¹ of Gaussians, each with the structure that it has.

Evidence adds to precisions, whatever their structure. A low-rank one would be one more class here.
"""

import abc
from typing import TYPE_CHECKING, Self

import jax.numpy as jnp
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Float

from unbayes._numerics.linalg import inverse_cholesky
from unbayes._storable import Storable

if TYPE_CHECKING:
    from unbayes.posteriors.gaussian import AbstractGaussian

# Parameters beyond which a matrix of d² numbers, and its factorisation, cost too much.
LARGEST_DENSE_DIM = 2000


class AbstractPrecision(Storable):
    """A symmetric matrix Λ of shape (d, d) in a form of its own; positive definite in a proper belief.

    A sum or a difference has the less structured form of its two terms.
    """

    @property
    @abc.abstractmethod
    def dim(self) -> int:
        """Length d of θ."""

    @property
    @abc.abstractmethod
    def matrix(self) -> Float[Array, "d d"]:
        """Λ as an array."""

    @property
    @abc.abstractmethod
    def diagonal(self) -> Float[Array, " d"]:
        """The diagonal of Λ."""

    @abc.abstractmethod
    def restrict(self, other: "AbstractPrecision") -> "AbstractPrecision":
        """What a precision of this form can hold of `other`."""

    @abc.abstractmethod
    def __add__(self, other: "AbstractPrecision") -> "AbstractPrecision": ...

    @abc.abstractmethod
    def __mul__(self, factor: Float[Array, ""] | float) -> Self: ...

    def __rmul__(self, factor: Float[Array, ""] | float) -> Self:
        return self * factor

    def __sub__(self, other: "AbstractPrecision") -> "AbstractPrecision":
        return self + other * -1

    @abc.abstractmethod
    def __matmul__(self, vector: Float[Array, " d"]) -> Float[Array, " d"]: ...

    @abc.abstractmethod
    def solve(self, vector: Float[Array, " d"]) -> Float[Array, " d"]:
        """Λ⁻¹ `vector`; NaN where Λ is not positive definite."""

    @abc.abstractmethod
    def log_det(self) -> Float[Array, ""]:
        """Log det Λ; NaN where Λ is not positive definite."""

    @abc.abstractmethod
    def inverse_factor(self) -> Float[Array, "d d"]:
        """Lower-triangular L with L Lᵀ = Λ⁻¹; NaN where Λ is not positive definite."""

    @abc.abstractmethod
    def trace_with(self, gaussian: "AbstractGaussian") -> Float[Array, ""]:
        """Trace of ΛΣ for the covariance Σ of `gaussian`."""

    @abc.abstractmethod
    def shares(self, factor: Float[Array, "d d"]) -> Float[Array, " d"]:
        """Eigenvalues of LᵀΛL for lower-triangular L, in ascending order.

        With L Lᵀ the covariance of a belief, the shares of the belief's precision that Λ amounts to.
        """


class DensePrecision(AbstractPrecision):
    """Λ as a matrix of shape (d, d)."""

    entries: Float[Array, "d d"]

    @property
    def dim(self) -> int:
        """Length d of θ."""
        return self.entries.shape[-1]

    @property
    def matrix(self) -> Float[Array, "d d"]:
        """Λ as an array."""
        return self.entries

    @property
    def diagonal(self) -> Float[Array, " d"]:
        """The diagonal of Λ."""
        return jnp.diagonal(self.matrix)

    def restrict(self, other: AbstractPrecision) -> "DensePrecision":
        """All of `other`, as a matrix."""
        return DensePrecision(other.matrix)

    def __add__(self, other: AbstractPrecision) -> "DensePrecision":
        return DensePrecision(self.matrix + other.matrix)

    def __mul__(self, factor) -> "DensePrecision":
        return DensePrecision(self.matrix * factor)

    def __matmul__(self, vector):
        return self.matrix @ vector

    def solve(self, vector):
        """Λ⁻¹ `vector` by a Cholesky factor; NaN where there is none."""
        return cho_solve((jnp.linalg.cholesky(self.matrix), True), vector)

    def log_det(self):
        """Log det Λ by a Cholesky factor; NaN where there is none."""
        return 2 * jnp.log(jnp.diagonal(jnp.linalg.cholesky(self.matrix))).sum()

    def inverse_factor(self):
        """Lower-triangular L with L Lᵀ = Λ⁻¹; NaN where Λ is not positive definite."""
        return inverse_cholesky(self.matrix)

    def trace_with(self, gaussian):
        """Trace of ΛΣ, entry by entry."""
        return (self.matrix * gaussian.covariance).sum()

    def shares(self, factor):
        """Eigenvalues of LᵀΛL, in ascending order."""
        return jnp.linalg.eigvalsh(factor.T @ self.matrix @ factor)


class DiagonalPrecision(AbstractPrecision):
    """Λ by its diagonal, shape (d,)."""

    entries: Float[Array, " d"]

    @property
    def dim(self) -> int:
        """Length d of θ."""
        return self.entries.shape[-1]

    @property
    def diagonal(self) -> Float[Array, " d"]:
        """The diagonal of Λ."""
        return self.entries

    @property
    def matrix(self) -> Float[Array, "d d"]:
        """Λ as an array, zero off its diagonal."""
        return jnp.diag(self.diagonal)

    def restrict(self, other: AbstractPrecision) -> "DiagonalPrecision":
        """The diagonal of `other`."""
        return DiagonalPrecision(other.diagonal)

    def __add__(self, other: AbstractPrecision) -> AbstractPrecision:
        if not isinstance(other, DiagonalPrecision):
            return other + self
        return DiagonalPrecision(self.diagonal + other.diagonal)

    def __mul__(self, factor) -> "DiagonalPrecision":
        return DiagonalPrecision(self.diagonal * factor)

    def __matmul__(self, vector):
        return self.diagonal * vector

    def solve(self, vector):
        """Λ⁻¹ `vector`, entry by entry; NaN where an entry of Λ is not positive."""
        return vector / jnp.where(self.diagonal > 0, self.diagonal, jnp.nan)

    def log_det(self):
        """Sum of the logarithms of the diagonal."""
        return jnp.log(self.diagonal).sum()

    def inverse_factor(self):
        """Diagonal matrix of the standard deviations."""
        return jnp.diag(self.diagonal**-0.5)

    def trace_with(self, gaussian):
        """Trace of ΛΣ, from the diagonals alone."""
        return self.diagonal @ gaussian.variance

    def shares(self, factor):
        """Eigenvalues of LᵀΛL; of a diagonal L, without a factorisation, use `DiagonalGaussian.shares`."""
        return DensePrecision(self.matrix).shares(factor)
