"""Log-densities that are PyTorch functions of a flat θ; they and their derivatives as functions of arrays."""

# pyright: reportMissingImports=false

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import torch
from pyro.primitives import validation_enabled
from torch.distributions import biject_to
from torch.func import grad, jacrev, vmap

from unbayes._numerics.linalg import Half
from unbayes._numerics.records import CHUNK_ELEMENTS, count
from unbayes.adapters._torch import to_double
from unbayes.adapters.pyro.guides import Guide

# Fourth derivatives keep so many times as many numbers as they return, on the way there.
KEPT_ON_THE_WAY = 16


@dataclasses.dataclass(frozen=True)
class Density:
    """Log p(record|θ) of the flat unconstrained θ, in the type and on the device of the guide."""

    guide: Guide
    function: Callable[..., torch.Tensor]

    def __call__(self, theta: torch.Tensor, records: Any) -> torch.Tensor:
        """One number per record, shape (n,)."""
        return self.function({name: value for name, value, _ in self._sites(theta)}, records)

    def _sites(self, theta: torch.Tensor):
        """Name, value and logarithm of the volume around it, of every latent site."""
        guide: Any = self.guide
        for site, unconstrained in guide._unpack_latent(theta):
            transform = biject_to(site["fn"].support)
            value = transform(unconstrained)
            yield site["name"], value, transform.log_abs_det_jacobian(unconstrained, value).sum()

    def to_tensor(self, values: Any) -> torch.Tensor:
        """An array as a tensor."""
        tensor = torch.from_numpy(np.array(values))
        dtype = self.guide.loc.dtype if tensor.is_floating_point() else tensor.dtype
        return tensor.to(self.guide.loc.device, dtype)


class PriorDensity(Density):
    """Log p(θ), as that of a single record; the function is one of the sites, in their own support."""

    def __call__(self, theta: torch.Tensor, records: Any) -> torch.Tensor:
        """Log p(θ), shape (1,): that of the sites, and the logarithm of the volume around them."""
        sites = list(self._sites(theta))
        log_prior = self.function({name: value for name, value, _ in sites})
        return (log_prior + sum(volume for _, _, volume in sites)).reshape(1)


def values(density: Density):
    """Log-likelihoods of shape (..., n) at θ of shape (..., d); records have leading axes of length one."""

    def host(theta, evidence):
        thetas, records = _unbatched(density, theta, evidence)
        each = _vmap(lambda theta: density(theta, records), thetas)
        return (to_double(each).reshape(*theta.shape[:-1], -1),)

    return host


def pullback(density: Density):
    """Gradients in θ, shape (..., d), of the log-likelihoods weighted by cotangents, shape (..., n)."""

    def host(theta, evidence, cotangent):
        thetas, records = _unbatched(density, theta, evidence)
        flat = np.broadcast_to(cotangent, (*theta.shape[:-1], cotangent.shape[-1]))
        flat = density.to_tensor(flat.reshape(len(thetas), -1))
        each = _vmap(grad(lambda theta, pull: density(theta, records) @ pull), thetas, flat)
        return (to_double(each).reshape(theta.shape),)

    return host


def expected_derivatives(density: Density):
    """E[∇ log p(D|θ)] and −E[∇² log p(D|θ)] over weighted θ."""

    def host(thetas, node_weights, evidence, record_weights):
        slopes, bends = _derivatives(density, (1, 2), thetas, evidence, record_weights)
        return node_weights @ slopes, -np.tensordot(node_weights, bends, 1)

    return host


def second_derivatives(density: Density):
    """∇² log p(D|θ) at each θ, shape (s, d, d)."""

    def host(thetas, evidence, record_weights):
        return _derivatives(density, (2,), thetas, evidence, record_weights)

    return host


def higher_derivatives(density: Density, order: int):
    """E[∇³ log p(D|θ)] and, where `order` is 4, E[∇⁴ log p(D|θ)] along directions, by pairs of these."""

    def host(thetas, node_weights, directions, evidence, record_weights):
        half = Half(directions.shape[1])
        orders = (3, 4)[: order - 2]
        each = _derivatives(density, orders, thetas, evidence, record_weights, directions)
        third, *fourth = (np.tensordot(node_weights, part, 1)[half.indices] for part in each)
        return (third, *(part[:, *half.indices] for part in fourth))

    return host


def _derivatives(density: Density, orders, thetas, evidence, record_weights, directions=None):
    """Derivatives of log p(D|θ) at each θ, along all coordinates or along directions, one array per order."""
    records = jax.tree.map(density.to_tensor, evidence)
    pull = None if record_weights is None else density.to_tensor(record_weights)
    basis = None if directions is None else density.to_tensor(directions)

    def total(z, theta):
        each = density(theta + (z if basis is None else basis @ z), records)
        return each.sum() if pull is None else each @ pull

    width = thetas.shape[1] if directions is None else directions.shape[1]
    origin = torch.zeros(width, dtype=density.guide.loc.dtype, device=density.guide.loc.device)
    flat = density.to_tensor(thetas)
    found = []
    for order in orders:
        derivative = grad(total)
        for _ in range(order - 1):
            derivative = jacrev(derivative)
        elements = count(evidence) * width ** max(order - 1, 1) * (KEPT_ON_THE_WAY if order > 2 else 1)
        chunk = max(CHUNK_ELEMENTS // elements, 1)
        found.append(to_double(_vmap(lambda theta, d=derivative: d(origin, theta), flat, chunk_size=chunk)))
    return tuple(found)


def _unbatched(density: Density, theta, evidence):
    """θ as the rows of a matrix, and records without the axes that `vmap` put in front of theirs."""
    extra = theta.ndim - 1
    records = jax.tree.map(lambda leaf: density.to_tensor(leaf[(0,) * extra]), evidence)
    return density.to_tensor(np.reshape(theta, (-1, theta.shape[-1]))), records


def _vmap(function, *arguments, chunk_size: int | None = None):
    # Distributions check their arguments by looking at values, which a vmap does not have.
    with validation_enabled(False):
        return vmap(function, chunk_size=chunk_size)(*arguments).detach()
