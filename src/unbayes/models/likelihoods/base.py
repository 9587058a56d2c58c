"""What every likelihood p(y|f) of a predictor f offers."""

import abc
from collections.abc import Callable
from functools import partial
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from unbayes._numerics.quadrature import Nodes, gauss_hermite, safe_sqrt
from unbayes._storable import Storable
from unbayes.models.predictive import AbstractPredictive


class Integrals(NamedTuple):
    """E[log p(y|f)], E[∇ log p(y|f)] and −E[∇² log p(y|f)] of a Gaussian f."""

    value: Float[Array, "..."]
    slope: Float[Array, "..."]
    curvature: Float[Array, "..."]


def _slope(function: Callable[[Array], Array], at: Float[Array, " n"]) -> Float[Array, " n"]:
    return jax.jvp(function, (at,), (jnp.ones_like(at),))[1]


class AbstractLikelihood(Storable):
    """p(y|f) for a predictor f with `outputs` entries; a scalar where that is one.

    Attributes
    ----------
    outputs
        Number of entries of f.
    is_log_concave
        Whether log p(y|f) is concave in f for every y; the erased records' curvature is then never negative.
    is_conjugate
        Whether log p(y|f) is quadratic in f: a Gaussian prior then gives a Gaussian posterior.
    """

    is_log_concave: ClassVar[bool] = False
    is_conjugate: ClassVar[bool] = False

    outputs: eqx.AbstractVar[int]

    @property
    def integral_dim(self) -> int:
        """Number of directions of f that log p(y|f) depends on: the first so many rows of `rotation`."""
        return self.outputs

    def rotation(self, dtype: jnp.dtype) -> Float[Array, "o o"]:
        """Orthonormal coordinates of f, one per row; the identity unless a likelihood needs others."""
        return jnp.eye(self.outputs, dtype=dtype)

    @abc.abstractmethod
    def encode_targets(self, y, name: str, dtype: jnp.dtype) -> Array:
        """Return y with the type that `log_prob` takes; raise ValueError or TypeError where it is invalid."""

    def outcomes(self, targets: Array) -> Array:
        """What was observed, in targets as `encode_targets` returns them: all there is, as a rule."""
        return targets

    def absorb(
        self, targets: Array, variance: Float[Array, " n"] | None
    ) -> tuple[Array, Float[Array, " n"] | None]:
        """Targets that carry the variance of f that θ leaves open, and what of it is left: all, as a rule."""
        return targets, variance

    def open_variance(self, targets: Array) -> Float[Array, " n"] | None:
        """Variance of f that targets carry; None where they carry none, as a rule."""
        return None

    @abc.abstractmethod
    def log_prob(self, f: Float[Array, "..."], y: Array) -> Float[Array, ""]:
        """Log p(y|f) of one record; f has shape () or (outputs,)."""

    @abc.abstractmethod
    def predictive(self, f: Float[Array, "k n ..."], log_weights: Float[Array, " k"]) -> AbstractPredictive:
        """Predictive distributions from weighted values of f, k of them for each of n inputs."""

    def joint_predictive(
        self, mean: Float[Array, "n o"], root: Float[Array, "n o o"], nodes: Nodes
    ) -> AbstractPredictive:
        """Predictive distributions for f ~ N(mean, root rootᵀ) of several entries, on common nodes."""
        directions = root[:, :, : self.integral_dim]
        f = mean + jnp.einsum("nod,kd->kno", directions, nodes.points)
        return self.predictive(f, jnp.log(nodes.weights))

    def largest_log_probs(self, y: Array) -> Float[Array, " n"] | None:
        """The most that log p(y|f) can be over all f, for every target; None where there is no bound."""
        return None

    def integrals_at(self, f: Float[Array, "o k"], y: Array, weights: Float[Array, " k"]) -> Integrals:
        """Integrals of one record with several outputs, as weighted sums over k values of f."""
        derivatives = self.log_prob, jax.grad(self.log_prob), jax.hessian(self.log_prob)
        value, slope, second = (
            jnp.tensordot(weights, jax.vmap(each, (1, None))(f, y), 1) for each in derivatives
        )
        return Integrals(value, slope, -second)

    def scalar_nodes(self, dtype: jnp.dtype) -> Nodes:
        """Nodes for integrals over a scalar f: Gauss–Hermite, unless log p(y|f) needs others."""
        return gauss_hermite(dtype)

    def expected_log_prob(
        self, mean: Float[Array, ""], variance: Float[Array, ""], y: Array
    ) -> Float[Array, ""]:
        """E[log p(y|f)] for scalar f ~ N(mean, variance), by quadrature."""
        nodes = self.scalar_nodes(mean.dtype)
        f = mean + safe_sqrt(variance) * nodes.points[:, 0]
        return nodes.weights @ jax.vmap(self.log_prob, (0, None))(f, y)

    @property
    def has_expected_prob(self) -> bool:
        """Whether `log_expected_prob` is known."""
        return type(self).log_expected_prob is not AbstractLikelihood.log_expected_prob

    def log_expected_prob(
        self, mean: Float[Array, ""], variance: Float[Array, ""], y: Array
    ) -> Float[Array, ""]:
        """Log E[p(y|f)] for scalar f ~ N(mean, variance): p may be a narrow peak, so that each says how."""
        raise TypeError(f"{type(self).__name__} does not know log E[p(y|f)]")

    def expected_log_probs(
        self, mean: Float[Array, " n"], variance: Float[Array, " n"], y: Array
    ) -> Float[Array, " n"]:
        """`expected_log_prob` of every record."""
        return jax.vmap(self.expected_log_prob)(mean, variance, y)

    def integrals(self, mean: Float[Array, " n"], variance: Float[Array, " n"], y: Array) -> Integrals:
        """Integrals for scalar f ~ N(mean, variance), record by record."""
        slope = jax.grad(self.expected_log_prob)
        arguments = (mean, variance, y)
        return Integrals(
            self.expected_log_probs(*arguments),
            jax.vmap(slope)(*arguments),
            -jax.vmap(jax.grad(slope))(*arguments),
        )

    def third_derivatives(
        self, mean: Float[Array, " n"], variance: Float[Array, " n"], y: Array
    ) -> Float[Array, " n"]:
        """E[∂³ log p(y|f)/∂f³] for scalar f ~ N(mean, variance), record by record.

        The derivative of an expectation along the mean is the expectation of the derivative: this is minus
        the slope of `integrals(...).curvature` in the mean.
        """

        def curvature(mean):
            return self.integrals(mean, variance, y).curvature

        return -_slope(curvature, mean)

    def higher_derivatives(
        self, mean: Float[Array, " n"], variance: Float[Array, " n"], y: Array, order: int
    ) -> list[Float[Array, " n"]]:
        """E[∂ᵏ log p(y|f)/∂fᵏ] for k from 3 to `order`: each is the slope of the one before in the mean."""

        def third(mean):
            return self.third_derivatives(mean, variance, y)

        functions: list[Callable[[Array], Array]] = [third]
        for _ in range(3, order):
            functions.append(partial(_slope, functions[-1]))
        return [function(mean) for function in functions]

    def gaussian_predictive(
        self, mean: Float[Array, " n"], variance: Float[Array, " n"]
    ) -> AbstractPredictive:
        """Predictive distributions for scalar f ~ N(mean, variance), by quadrature."""
        nodes = self.scalar_nodes(mean.dtype)
        return self.predictive(mean + jnp.sqrt(variance) * nodes.points, jnp.log(nodes.weights))
