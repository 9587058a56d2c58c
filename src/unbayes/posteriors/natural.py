"""Natural parameters of Gaussians."""

from jaxtyping import Array, Float

from unbayes._storable import Storable
from unbayes.posteriors.precision import AbstractPrecision


class GaussianNatural(Storable):
    """Natural parameters of a Gaussian, the space in which evidence adds up.

    Attributes
    ----------
    linear
        Λm, shape (d,).
    precision
        Λ.
    """

    linear: Float[Array, " d"]
    precision: AbstractPrecision

    def require_valid(self) -> None:
        """Refuse parameters of different lengths or types."""
        if self.precision.dim != len(self.linear):
            raise ValueError(f"precision must have dimension {len(self.linear)}, got {self.precision.dim}")
        if (found := self.precision.diagonal.dtype) != self.linear.dtype:
            raise ValueError(f"precision must be {self.linear.dtype} as linear is, got {found}")

    def __add__(self, other: "GaussianNatural") -> "GaussianNatural":
        return GaussianNatural(self.linear + other.linear, self.precision + other.precision)

    def __sub__(self, other: "GaussianNatural") -> "GaussianNatural":
        return GaussianNatural(self.linear - other.linear, self.precision - other.precision)

    def gradient_at(self, theta: Float[Array, " d"]) -> Float[Array, " d"]:
        """Gradient at θ of the log-density whose natural parameters these are, Λ(m − θ)."""
        return self.linear - self.precision @ theta
