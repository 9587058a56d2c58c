"""A memory that holds nobody's record: sums of derivatives over all training records."""

import dataclasses
from typing import Any, NamedTuple, Self

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unbayes._numerics.linalg import inverse_triangular
from unbayes._numerics.programs import compiled
from unbayes._numerics.quadrature import Nodes
from unbayes._storable import Storable
from unbayes.memory.kinds import Sums
from unbayes.models import AbstractModel
from unbayes.models.derivatives import Derivatives
from unbayes.posteriors import AbstractGaussian, GaussianNatural

# What rounding may have added to products of orthonormal directions, in float32.
LARGEST_ROUNDING = 1e-3


class KeptSums(Storable):
    """Sums of derivatives over training records, and over the prior where it is not Gaussian.

    They are taken at the posterior N(m, L Lᵀ) along k directions of z, where θ = m + L z.

    Attributes
    ----------
    derivatives
        The sums.
    directions
        Orthonormal columns, shape (d, k), those along which the records bend most first.
    share
        Part of what bends the records' log-likelihood that lies along these directions, at most 1.
    """

    derivatives: Derivatives
    directions: Float[Array, "d k"]
    share: float = eqx.field(static=True, default=1.0)

    def require_valid(self) -> None:
        """Refuse directions that are not those of the sums, or not orthonormal, and a share beyond all."""
        count = self.directions.shape[1]
        if count != self.derivatives.directions:
            raise ValueError(f"directions must be {self.derivatives.directions}, as in the sums, got {count}")
        columns = np.asarray(self.directions)
        if np.abs(columns.T @ columns - np.eye(count)).max() > LARGEST_ROUNDING:
            raise ValueError("directions must be orthonormal, got columns that are not")
        if not 0 <= self.share <= 1:
            raise ValueError(f"share must be between 0 and 1, got {self.share}")

    @property
    def dim(self) -> int:
        """Number d of parameters."""
        return len(self.directions)

    def of(
        self, posterior: AbstractGaussian, model: AbstractModel, evidence: Any, nodes: Nodes, weights: Any
    ) -> Derivatives:
        """The same sums over other records."""
        return model.derivatives(posterior, self._basis(posterior), evidence, nodes, weights, self._order)

    def site_and_sums(
        self,
        posterior: AbstractGaussian,
        around: AbstractGaussian,
        model: AbstractModel,
        evidence: Any,
        nodes: Nodes,
        weights: Any,
    ) -> tuple[GaussianNatural, Derivatives]:
        """The same sums over other records, and their sites at `around`: the posterior, or its dense form."""
        basis = self._basis(posterior)
        return model.site_and_derivatives(around, basis, evidence, nodes, weights, self._order)

    @property
    def _order(self) -> int:
        return 5 if self.derivatives.fifth is not None else self.derivatives.order

    def _basis(self, posterior: AbstractGaussian) -> Float[Array, "d k"]:
        return posterior.to_full().scale_tril @ self.directions

    def projection(self, posterior: AbstractGaussian) -> Float[Array, "k d"]:
        """From θ − m to coordinates along the directions, Uᵀ L⁻¹."""
        return self.directions.T @ inverse_triangular(posterior.to_full().scale_tril)

    def without(self, erased: Derivatives) -> Self:
        """The sums over the remaining records."""
        return dataclasses.replace(self, derivatives=self.derivatives - erased)

    def moved(self, before: AbstractGaussian, after: AbstractGaussian) -> "KeptSums":
        """The sums as seen from another belief, as far as they tell."""
        derivatives, directions = _moved(self, before, after)
        return dataclasses.replace(self, derivatives=derivatives, directions=directions)


class Leading(NamedTuple):
    """The directions along which the records bend most, and their part of all bending."""

    directions: Float[Array, "d k"]
    share: Float[Array, ""]

    def kept(self, derivatives: Derivatives) -> KeptSums:
        """With sums along them."""
        return KeptSums(derivatives, self.directions, min(float(self.share), 1.0))


def keep_sums(
    posterior: AbstractGaussian, model: AbstractModel, evidence: Any, weights: Any, sums: Sums, nodes: Nodes
) -> KeptSums:
    """Sums over records, which `weights` count."""
    bending = _bending(posterior, model, evidence, weights, nodes)
    leading, order = leading_directions(model, bending, sums), order_of(model, sums)
    return leading.kept(_derivatives(posterior, model, leading.directions, evidence, weights, order, nodes))


def order_of(model: AbstractModel, sums: Sums) -> int:
    """Of the highest derivatives that are summed: fifth ones too, where they tell the error of the fourth."""
    return 5 if sums.order == 4 and model.has_fifth_derivatives else sums.order


def leading_directions(model: AbstractModel, bending: Float[Array, "d d"], sums: Sums) -> Leading:
    """Of how much the records bend along each direction, as `model.bending` has it."""
    count = model.most_directions if sums.directions is None else min(sums.directions, model.dim)
    return _leading(bending, count)


@eqx.filter_jit
def _bending(posterior, model: AbstractModel, evidence, weights, nodes) -> Float[Array, "d d"]:
    return model.bending(posterior, posterior.to_full().scale_tril, evidence, nodes, weights)


@eqx.filter_jit
def _leading(bending: Float[Array, "d d"], count: int) -> Leading:
    values, vectors = jnp.linalg.eigh(bending)
    total = values.sum()
    share = jnp.where(total > 0, values[::-1][:count].sum() / total, 1)
    return Leading(vectors[:, ::-1][:, :count], jnp.where(count == len(bending), 1, share))


@eqx.filter_jit
def _derivatives(
    posterior, model: AbstractModel, directions, evidence, weights, order: int, nodes
) -> Derivatives:
    basis = posterior.to_full().scale_tril @ directions
    found = model.derivatives(posterior, basis, evidence, nodes, weights, order)
    prior = model.prior_derivatives(posterior, basis, nodes, order)
    return found if prior is None else found + prior


@eqx.filter_jit
def prior_derivatives(
    posterior: AbstractGaussian, model: AbstractModel, basis: Float[Array, "d k"], nodes: Nodes, order: int
) -> Derivatives | None:
    """What the prior adds to the sums; None where it is Gaussian and adds nothing."""
    return model.prior_derivatives(posterior, basis, nodes, order)


@compiled
def _moved(sums: KeptSums, before: AbstractGaussian, after: AbstractGaussian) -> tuple[Derivatives, Array]:
    projection = sums.projection(before)
    seen = projection @ after.to_full().scale_tril
    # The old coordinates are seen, a triangular map of new ones: leading directions stay the leading ones.
    directions, turn = jnp.linalg.qr(seen.T)
    move = projection @ (after.mean - before.mean)
    return sums.derivatives.seen_from(move, turn.T), directions
