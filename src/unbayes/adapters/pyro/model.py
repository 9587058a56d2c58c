"""A model whose likelihood and prior are PyTorch functions."""

# pyright: reportMissingImports=false

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import torch
from jaxtyping import Array, Float

from unbayes._numerics.linalg import Half
from unbayes._numerics.records import CHUNK_ELEMENTS, accumulate, count, take, to_arrays
from unbayes.adapters._torch import call_back
from unbayes.adapters.pyro.densities import (
    KEPT_ON_THE_WAY,
    Density,
    PriorDensity,
    expected_derivatives,
    higher_derivatives,
    pullback,
    second_derivatives,
    values,
)
from unbayes.models.base import AbstractModel
from unbayes.models.derivatives import Derivatives
from unbayes.posteriors import AbstractGaussian, DensePrecision

# The prior counts as one record, of which nothing is read.
NO_RECORD = np.zeros(1)


class TorchModel(AbstractModel):
    """A likelihood that is a PyTorch function of a flat θ; compiled code calls back to it.

    Parameters
    ----------
    density
        (θ, records) ↦ log p(record|θ), shape (n,).
    size
        Length d of θ.
    prior
        Log p(θ); None where it is not known, and not needed.
    """

    density: Density = eqx.field(static=True)
    size: int = eqx.field(static=True)
    prior: PriorDensity | None = eqx.field(static=True, default=None)

    @property
    def dim(self) -> int:
        """Length d of θ."""
        return self.size

    @property
    def dtype(self) -> jnp.dtype:
        """Double precision, outside of PyTorch."""
        return jnp.dtype("float64")

    @property
    def holds_functions(self) -> bool:
        """Whether the model holds functions of a user's, which it always does."""
        return True

    def encode(self, records, name: str = "records"):
        """Finite arrays that share their leading axis."""
        return to_arrays(records, name, self.dtype)

    @property
    def has_third_derivatives(self) -> bool:
        """Whether third derivatives are affordable where nobody asked for them, which PyTorch's are not."""
        return False

    def log_prior(self, theta):
        """Log p(θ), where it is known: unlearning needs the posterior and the likelihood only."""
        return _log_likelihood(theta, self._known_prior, jnp.asarray(NO_RECORD))[0]

    @property
    def _known_prior(self) -> PriorDensity:
        if self.prior is None:
            raise TypeError("a guide does not tell the prior of its model")
        return self.prior

    def log_likelihood(self, theta, evidence):
        """Log p(record|θ) of each record."""
        return _log_likelihood(theta, self.density, evidence)

    def site(self, gaussian: AbstractGaussian, evidence, nodes, weights=None):
        """Natural gradient of E_q[log p(D|θ)], with the derivatives that PyTorch computes."""
        return self._site(self.density, gaussian, evidence, nodes, weights)

    def prior_site(self, gaussian: AbstractGaussian, nodes):
        """The same of E_q[log p(θ)]."""
        return self._site(self._known_prior, gaussian, jnp.asarray(NO_RECORD), nodes, None)

    def derivatives(self, gaussian, directions, evidence, nodes, weights=None, order=4):
        """E_q[∇³ log p(D|θ)] and so on, as PyTorch differentiates along the directions."""
        return _higher(self.density, gaussian, directions, evidence, nodes, weights, order)

    def prior_derivatives(self, gaussian, directions, nodes, order=4):
        """The same of log p(θ)."""
        return _higher(self._known_prior, gaussian, directions, jnp.asarray(NO_RECORD), nodes, None, order)

    def bending(self, gaussian, root, evidence, nodes, weights=None):
        """How much second derivatives vary, E_q[(H − E H)²], with those that PyTorch computes."""
        thetas = jax.vmap(gaussian.colour)(nodes.points)
        shapes = ((*thetas.shape, self.dim),)

        def second(density, evidence, weights):
            return call_back(second_derivatives(density), shapes, thetas, evidence, weights)[0]

        found = accumulate(
            lambda weighted: second(self.density, *weighted), (evidence, weights), _chunk(thetas.size)
        )
        found = found + second(self._known_prior, jnp.asarray(NO_RECORD), None)
        away = root.T @ (found - jnp.tensordot(nodes.weights, found, 1)) @ root
        return jnp.einsum("k,kij,kjl->il", nodes.weights, away, away)

    def _site(self, density: Density, gaussian: AbstractGaussian, evidence, nodes, weights):
        thetas = jax.vmap(gaussian.colour)(nodes.points)
        host, shapes = expected_derivatives(density), ((self.dim,), (self.dim, self.dim))

        def part(weighted):
            gradient, curvature = call_back(host, shapes, thetas, nodes.weights, *weighted)
            return gaussian.site(gradient, DensePrecision(curvature))

        return accumulate(part, (evidence, weights), _chunk(thetas.size))


def _chunk(elements: int) -> int:
    """Records that PyTorch is given at a time, with so many numbers for each."""
    return max(CHUNK_ELEMENTS // elements, 1)


def _higher(density: Density, gaussian, directions, evidence, nodes, weights, order: int) -> Derivatives:
    thetas = jax.vmap(gaussian.colour)(nodes.points)
    width = directions.shape[1]
    pairs = Half(width).size
    shapes = ((pairs, width), (pairs, pairs))[: order - 2]

    def part(weighted):
        return call_back(
            higher_derivatives(density, order), shapes, thetas, nodes.weights, directions, *weighted
        )

    found = accumulate(part, (evidence, weights), _chunk(KEPT_ON_THE_WAY * width ** (order - 1)))
    return Derivatives(*found)


@eqx.filter_custom_vjp
def _log_likelihood(theta: Float[Array, " d"], density: Density, evidence) -> Float[Array, " n"]:
    """One call for all θ of a `vmap`; its gradient is another."""
    return call_back(values(density), ((count(evidence),),), theta, evidence)[0]


@_log_likelihood.def_fwd
def _forward(perturbed, theta, density: Density, evidence):
    return _log_likelihood(theta, density, evidence), None


@_log_likelihood.def_bwd
def _backward(residuals, cotangent, perturbed, theta, density: Density, evidence):
    return call_back(pullback(density), (theta.shape,), theta, evidence, cotangent)[0]


def require_log_likelihood(model: TorchModel, posterior: AbstractGaussian, evidence) -> None:
    """Refuse a function that does not do what unlearning needs, before any of it has begun."""
    total = count(evidence)
    found = _at_mean(model.density, posterior, evidence)
    if not isinstance(found, torch.Tensor) or found.shape != (total,):
        raise ValueError(
            f"log_likelihood must return one number per record, shape ({total},), got {_shape(found)}"
        )
    _require_differentiable("log_likelihood", model.density, posterior, found, evidence, 2)


def require_prior(model: TorchModel, posterior: AbstractGaussian, evidence, order: int) -> None:
    """Refuse a prior that is no log-density, and functions that cannot be differentiated so many times."""
    prior = model._known_prior
    sites = {name: value for name, value, _ in prior._sites(prior.to_tensor(posterior.mean))}
    found = prior.function(sites)
    if not isinstance(found, torch.Tensor) or found.shape != ():
        raise ValueError(f"log_prior must return one number for all sites, shape (), got {_shape(found)}")
    _require_differentiable("log_prior", prior, posterior, found, NO_RECORD, max(order, 2))
    if order > 2:
        first = take(evidence, slice(0, 1))
        found = _at_mean(model.density, posterior, first)
        _require_differentiable("log_likelihood", model.density, posterior, found, first, order)


def _at_mean(density: Density, posterior: AbstractGaussian, evidence):
    records = jax.tree.map(density.to_tensor, evidence)
    return density(density.to_tensor(posterior.mean), records)


def _require_differentiable(
    name: str, density: Density, posterior: AbstractGaussian, found: torch.Tensor, evidence, order: int
) -> None:
    if not bool(torch.isfinite(found).all()):
        raise ValueError(f"{name} must be finite at the mean of the guide, got NaN or infinity")
    thetas = np.asarray(posterior.mean)[None], np.ones(1)
    times, instead = "twice", ""
    try:
        if order == 2:
            derivatives = expected_derivatives(density)(*thetas, evidence, None)
        else:
            times = "three times" if order == 3 else "four times"
            instead = "; a memory of the curvature alone needs two"
            along = np.asarray(posterior.to_full().scale_tril)[:, :1]
            derivatives = higher_derivatives(density, order)(*thetas, along, evidence, None)
    except RuntimeError as error:
        raise ValueError(
            f"{name} must be written in operations that torch.func can map and differentiate {times}"
            f"{instead}, got {error}"
        ) from error
    if not all(np.isfinite(part).all() for part in derivatives):
        raise ValueError(f"{name} must have finite derivatives at the mean of the guide")


def _shape(found) -> str:
    return f"shape {tuple(found.shape)}" if isinstance(found, torch.Tensor) else type(found).__name__
