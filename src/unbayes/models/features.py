"""Feature maps a(x): how an input acts on the parameters, f = a(x)ᵀθ."""

import abc
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Float

from unbayes._numerics.records import to_float_array
from unbayes._storable import Storable
from unbayes._validation import require_lower_triangular, require_positive
from unbayes.models.kernels import AbstractKernel
from unbayes.posteriors import DiagonalGaussian, FullGaussian


class AbstractFeatures(Storable):
    """A map from inputs (n, k) to features (n, p).

    Attributes
    ----------
    inputs
        Number k of input columns.
    """

    inputs: eqx.AbstractVar[int]

    def require_valid(self) -> None:
        """Refuse a number of columns or of features that no map has."""
        require_positive("inputs", self.inputs, or_zero=True)
        require_positive("size", self.size)

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """Number p of features."""

    @abc.abstractmethod
    def __call__(self, x: Float[Array, "n k"]) -> Float[Array, "n p"]:
        """Feature vectors, one row per input."""

    @property
    def leaves_variance_open(self) -> bool:
        """Whether θ leaves part of f open, so that `variance` returns something."""
        return False

    @property
    def holds_functions(self) -> bool:
        """Whether the map is a function of a user's, which may close over anything."""
        return False

    @property
    def kept_inputs(self) -> Float[Array, "m k"] | None:
        """Inputs that the map itself holds, some of which may be those of training records."""
        return None

    def variance(self, x: Float[Array, "n k"]) -> Float[Array, " n"] | None:
        """Variance of f that θ leaves open, shape (n,); None where θ decides f."""
        return None

    def offset(self, x: Float[Array, "n k"]) -> Float[Array, " n"] | None:
        """Part of f that is known whatever θ is, shape (n,); None where there is none."""
        return None


class RawFeatures(AbstractFeatures):
    """The inputs themselves, with a one in front unless `bias` is False."""

    inputs: int = eqx.field(static=True)
    bias: bool = eqx.field(static=True, default=True)

    @property
    def size(self) -> int:
        """Number p of features: one per input column, and one for the bias."""
        return self.inputs + self.bias

    def __call__(self, x):
        """The inputs, with a column of ones in front where there is a bias."""
        return _with_bias(x, self.bias)


class PolynomialFeatures(AbstractFeatures):
    """Powers 1 … degree of every input column, no products between columns."""

    inputs: int = eqx.field(static=True)
    degree: int = eqx.field(static=True)
    bias: bool = eqx.field(static=True, default=True)

    @property
    def size(self) -> int:
        """Number p of features: `degree` per input column, and one for the bias."""
        return self.inputs * self.degree + self.bias

    def __call__(self, x):
        """Columns of powers: after the bias all first powers, then all squares, and so on."""
        return _with_bias(
            jnp.concatenate([x**power for power in range(1, self.degree + 1)], axis=1), self.bias
        )


class FunctionFeatures(AbstractFeatures):
    """Any function (n, k) → (n, size), such as a network up to its last hidden layer.

    Parameters
    ----------
    function
        The map; a pytree of arrays (an Equinox module) is traced, so new weights need no new compilation.
    inputs
        Number k of input columns.
    outputs
        Number of columns that `function` returns.
    bias
        Whether to put a one in front.
    """

    function: Callable[[Float[Array, "n k"]], Float[Array, "n m"]]
    inputs: int = eqx.field(static=True)
    outputs: int = eqx.field(static=True)
    bias: bool = eqx.field(static=True, default=True)

    @property
    def size(self) -> int:
        """Number p of features: the columns of the function, and one for the bias."""
        return self.outputs + self.bias

    @property
    def holds_functions(self) -> bool:
        """Whether the map is a function of a user's, which it is."""
        return True

    def __call__(self, x):
        """Values of the function, with a column of ones in front where there is a bias."""
        features = self.function(x)
        if features.shape != (x.shape[0], self.outputs):
            raise ValueError(
                f"function must return shape ({x.shape[0]}, {self.outputs}) for inputs of shape {x.shape}, "
                f"got {features.shape}"
            )
        return _with_bias(features, self.bias)


class InducingInputs(AbstractFeatures):
    """Sparse Gaussian process: θ = u are the function's values at m inducing inputs, f = k(x,U) K⁻¹ u.

    Parameters
    ----------
    locations
        The inducing inputs U, shape (m, k).
    kernel
        Covariance function of the process.
    conditional_variance
        False for the deterministic training conditional (DTC), in which u decides f. True keeps
        var(f|u) = k(x,x) − k(x,U) K⁻¹ k(U,x), as stochastic variational GPs do, equation (10).
    jitter
        Added to the diagonal of K, relative to the kernel's variance.
    """

    locations: Float[Array, "m k"]
    kernel: AbstractKernel
    scale_tril: Float[Array, "m m"]
    inputs: int = eqx.field(static=True)
    conditional_variance: bool = eqx.field(static=True)

    def __init__(
        self, locations, kernel: AbstractKernel, *, conditional_variance: bool = False, jitter: float = 0.0
    ):
        self.locations = jnp.asarray(locations, kernel.lengthscales.dtype)
        if self.locations.ndim != 2:
            raise ValueError(f"locations must have shape (m, k), got {self.locations.shape}")
        self.kernel = kernel
        self.inputs = self.locations.shape[1]
        self.conditional_variance = conditional_variance
        nugget = jitter * kernel.variance * jnp.eye(self.size, dtype=self.locations.dtype)
        self.scale_tril = jnp.linalg.cholesky(kernel(self.locations, self.locations) + nugget)
        if not bool(jnp.isfinite(self.scale_tril).all()):
            raise ValueError(
                "the kernel matrix of the inducing inputs is not positive definite in "
                f"{self.scale_tril.dtype} at jitter={jitter}; give a larger jitter, or move them apart"
            )

    def require_valid(self) -> None:
        """Refuse a kernel, or a factor of its matrix, that does not fit the inducing inputs."""
        require_lower_triangular("scale_tril", self.scale_tril)
        columns, scales = self.locations.shape[1], len(self.kernel.lengthscales)
        if self.inputs != columns:
            raise ValueError(f"inputs must be {columns}, the columns of locations, got {self.inputs}")
        if scales not in (1, columns):
            raise ValueError(f"kernel must have one length scale, or {columns}, got {scales}")
        if self.kernel.lengthscales.dtype != self.locations.dtype:
            raise ValueError(f"kernel must be {self.locations.dtype}, got {self.kernel.lengthscales.dtype}")

    @property
    def size(self) -> int:
        """Number m of inducing inputs."""
        return self.locations.shape[0]

    @property
    def kept_inputs(self) -> Float[Array, "m k"]:
        """The inducing inputs."""
        return self.locations

    @property
    def prior(self) -> FullGaussian:
        """Prior N(0, K) of the process at the inducing inputs."""
        return FullGaussian(jnp.zeros(self.size, self.locations.dtype), self.scale_tril)

    def __call__(self, x):
        """Feature vectors K⁻¹ k(U, x), one row per input."""
        return cho_solve((self.scale_tril, True), self.kernel(self.locations, x)).T

    @property
    def leaves_variance_open(self) -> bool:
        """Whether var(f|u) is kept: the setting `conditional_variance`."""
        return self.conditional_variance

    def variance(self, x):
        """Conditional variance var(f|u), shape (n,), or None in the DTC form."""
        if not self.conditional_variance:
            return None
        explained = (self(x) * self.kernel(x, self.locations)).sum(1)
        return jnp.maximum(self.kernel.variance - explained, 0)


class WhitenedInducingInputs(AbstractFeatures):
    """The same sparse Gaussian process with θ = L⁻¹u, K = L Lᵀ, whose prior is standard normal.

    Parameters
    ----------
    process
        The process in terms of u.
    """

    process: InducingInputs

    def __init__(self, process: InducingInputs):
        self.process = process

    @property
    def inputs(self) -> int:
        """Number k of input columns."""
        return self.process.inputs

    @property
    def size(self) -> int:
        """Number m of inducing inputs."""
        return self.process.size

    @property
    def kernel(self) -> AbstractKernel:
        """Covariance function of the process."""
        return self.process.kernel

    @property
    def leaves_variance_open(self) -> bool:
        """Whether the process keeps var(f|u)."""
        return self.process.leaves_variance_open

    @property
    def kept_inputs(self) -> Float[Array, "m k"]:
        """The inducing inputs."""
        return self.process.locations

    @property
    def prior(self) -> DiagonalGaussian:
        """Prior N(0, I) of θ."""
        return DiagonalGaussian.standard(self.size, self.process.locations.dtype)

    def __call__(self, x):
        """Feature vectors L⁻¹ k(U, x), one row per input."""
        covariance = self.process.kernel(self.process.locations, x)
        return solve_triangular(self.process.scale_tril, covariance, lower=True).T

    def variance(self, x):
        """Conditional variance of the process, shape (n,), or None: given θ, u is known."""
        return self.process.variance(x)


class CentredFeatures(AbstractFeatures):
    """Features of x − centre: the same map, with its origin elsewhere.

    Parameters
    ----------
    features
        The map.
    centre
        Where its origin is to be, shape (k,).
    """

    features: AbstractFeatures
    centre: Float[Array, " k"]

    def __init__(self, features: AbstractFeatures, centre):
        self.features = features
        self.centre = to_float_array(centre, "centre", jnp.result_type(float), (features.inputs,))

    def require_valid(self) -> None:
        """Refuse a centre that does not fit the map."""
        if len(self.centre) != self.inputs:
            raise ValueError(f"centre must have length {self.inputs}, got {len(self.centre)}")

    @property
    def inputs(self) -> int:
        """Number k of input columns."""
        return self.features.inputs

    @property
    def size(self) -> int:
        """Number p of features."""
        return self.features.size

    @property
    def leaves_variance_open(self) -> bool:
        """Whether the map leaves part of f open."""
        return self.features.leaves_variance_open

    @property
    def kept_inputs(self) -> Float[Array, "m k"] | None:
        """Inputs that the map holds, as they were before they were centred."""
        held = self.features.kept_inputs
        return None if held is None else held + self.centre

    @property
    def holds_functions(self) -> bool:
        """Whether the map is a function of a user's."""
        return self.features.holds_functions

    def __call__(self, x):
        """Feature vectors of the centred inputs, one row per input."""
        return self.features(x - self.centre)

    def variance(self, x):
        """Variance of f at the centred inputs that θ leaves open, shape (n,), or None."""
        return self.features.variance(x - self.centre)

    def offset(self, x):
        """Part of f at the centred inputs that is known whatever θ is, shape (n,), or None."""
        return self.features.offset(x - self.centre)


def _with_bias(x, bias: bool):
    return jnp.concatenate([jnp.ones((x.shape[0], 1), x.dtype), x], axis=1) if bias else x
