"""Take records back out of a Gaussian guide that was trained with Pyro.

The guide is read as a Gaussian posterior over its flat unconstrained latent, in double precision whatever its
own; the likelihood stays a PyTorch function, differentiated by PyTorch; the result is written back.
"""

# pyright: reportMissingImports=false

import copy
import dataclasses
import itertools
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import torch
from jaxtyping import Array, Float, PRNGKeyArray
from pyro.infer.autoguide import AutoDiagonalNormal, AutoMultivariateNormal
from pyro.primitives import validation_enabled
from torch.distributions import biject_to
from torch.func import grad, jacrev, vmap

from unbayes._numerics.records import CHUNK_ELEMENTS, accumulate, count, to_arrays
from unbayes.adapters._torch import Guard, assign, call_back, to_array, to_double
from unbayes.models.base import AbstractModel
from unbayes.posteriors import AbstractGaussian, DensePrecision, DiagonalGaussian, FullGaussian
from unbayes.progress import AbstractProgress
from unbayes.unlearning import AbstractMethod, Unlearned
from unbayes.unlearning import unlearn as unlearn_from_posterior
from unbayes.unlearning.methods.auto import Auto

AUTO = Auto()
_copies = itertools.count(1)

Guide: TypeAlias = AutoDiagonalNormal | AutoMultivariateNormal
LogLikelihood: TypeAlias = Callable[[dict[str, torch.Tensor], Any], torch.Tensor]


def unlearn(
    guide: Guide,
    log_likelihood: LogLikelihood,
    erased: Any,
    *,
    method: AbstractMethod = AUTO,
    key: PRNGKeyArray,
    in_place: bool = False,
    progress: AbstractProgress | None = None,
) -> tuple[Guide, Unlearned]:
    """Take `erased` back out of a trained `guide`.

    Always start from the guide as it was trained: where requests arrive one after the other, give it and all
    the records that were erased so far.

    Parameters
    ----------
    guide
        An `AutoMultivariateNormal` or `AutoDiagonalNormal`, trained by `pyro.infer.SVI`. All its latent
        variables must be shared by all records.
    log_likelihood
        (sites, records) ↦ log p(record|θ), shape (n,): `sites` holds a value of every latent site under its
        name, in its own support, and `records` is `erased`, or some of its rows. It must be written in
        operations that `torch.func` can differentiate twice.
    erased
        The records D_e: a tensor, or a tuple or dict of them, with the records along the leading axis.
    method, key, progress
        As for `unbayes.unlearn`.
    in_place
        Whether to change `guide` itself, instead of a copy, which gets a name of its own in Pyro's parameter
        store and holds nothing of the data that the guide was set up with. If anything fails, it stays as it
        was. A guide that was changed in place is refused from then on, and so is a call during which another
        one changed it.

    Returns
    -------
    guide
        The guide without the erased records.
    result
        How it was done, and how far to trust it.
    """
    with jax.enable_x64(True):
        guard = Guard(guide, lambda: _parameters(guide), "guide")
        posterior = _read(guide)
        model = TorchModel(_Density(guide, log_likelihood), posterior.dim)
        records = jax.tree.map(to_array, erased)
        _require_log_likelihood(model, posterior, model.encode(records, "erased"))
        result = unlearn_from_posterior(posterior, model, records, method=method, key=key, progress=progress)
        if in_place:
            guard.swap(lambda: _write(guide, result.posterior))
            return guide, result
        recovered = _copied(guide)
        guard.require_unchanged()
        _write(recovered, result.posterior)
    return recovered, result


@dataclasses.dataclass(frozen=True)
class _Density:
    """Log p(record|θ) of the flat unconstrained θ, in the type and on the device of the guide."""

    guide: Guide
    log_likelihood: LogLikelihood

    def __call__(self, theta: torch.Tensor, records: Any) -> torch.Tensor:
        sites = dict(itertools.starmap(_named_value, self.guide._unpack_latent(theta)))
        return self.log_likelihood(sites, records)

    def to_tensor(self, values: Any) -> torch.Tensor:
        tensor = torch.from_numpy(np.array(values))
        dtype = self.guide.loc.dtype if tensor.is_floating_point() else tensor.dtype
        return tensor.to(self.guide.loc.device, dtype)


def _named_value(site: Any, unconstrained: torch.Tensor) -> tuple[str, torch.Tensor]:
    return site["name"], biject_to(site["fn"].support)(unconstrained)


class TorchModel(AbstractModel):
    """A likelihood that is a PyTorch function of a flat θ; compiled code calls back to it.

    Parameters
    ----------
    density
        (θ, records) ↦ log p(record|θ), shape (n,).
    size
        Length d of θ.
    """

    density: _Density = eqx.field(static=True)
    size: int = eqx.field(static=True)

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
        """Whether third derivatives are affordable: PyTorch is asked for two at most."""
        return False

    def log_prior(self, theta):
        """Not known: unlearning needs the posterior and the likelihood only."""
        raise TypeError("a guide does not tell the prior of its model")

    def log_likelihood(self, theta, evidence):
        """Log p(record|θ) of each record."""
        return _log_likelihood(theta, self.density, evidence)

    def site(self, gaussian: AbstractGaussian, evidence, nodes, weights=None):
        """Natural gradient of E_q[log p(D|θ)], with the derivatives that PyTorch computes."""
        thetas = jax.vmap(gaussian.colour)(nodes.points)
        host, shapes = _expected_derivatives(self.density), ((self.dim,), (self.dim, self.dim))

        def part(weighted):
            gradient, curvature = call_back(host, shapes, thetas, nodes.weights, *weighted)
            return gaussian.site(gradient, DensePrecision(curvature))

        return accumulate(part, (evidence, weights), max(CHUNK_ELEMENTS // thetas.size, 1))


@eqx.filter_custom_vjp
def _log_likelihood(theta: Float[Array, " d"], density: _Density, evidence) -> Float[Array, " n"]:
    """One call for all θ of a `vmap`; its gradient is another."""
    return call_back(_values(density), ((count(evidence),),), theta, evidence)[0]


@_log_likelihood.def_fwd
def _forward(perturbed, theta, density: _Density, evidence):
    return _log_likelihood(theta, density, evidence), None


@_log_likelihood.def_bwd
def _backward(residuals, cotangent, perturbed, theta, density: _Density, evidence):
    return call_back(_pullback(density), (theta.shape,), theta, evidence, cotangent)[0]


def _values(density: _Density):
    """Log-likelihoods of shape (..., n) at θ of shape (..., d); records have leading axes of length one."""

    def host(theta, evidence):
        thetas, records = _unbatched(density, theta, evidence)
        each = _vmap(lambda theta: density(theta, records), thetas)
        return (to_double(each).reshape(*theta.shape[:-1], -1),)

    return host


def _pullback(density: _Density):
    """Gradients in θ, shape (..., d), of the log-likelihoods weighted by cotangents, shape (..., n)."""

    def host(theta, evidence, cotangent):
        thetas, records = _unbatched(density, theta, evidence)
        flat = np.broadcast_to(cotangent, (*theta.shape[:-1], cotangent.shape[-1]))
        flat = density.to_tensor(flat.reshape(len(thetas), -1))
        each = _vmap(grad(lambda theta, pull: density(theta, records) @ pull), thetas, flat)
        return (to_double(each).reshape(theta.shape),)

    return host


def _expected_derivatives(density: _Density):
    """E[∇ log p(D|θ)] and −E[∇² log p(D|θ)] over weighted θ."""

    def host(thetas, node_weights, evidence, record_weights):
        records = jax.tree.map(density.to_tensor, evidence)
        pull = None if record_weights is None else density.to_tensor(record_weights)

        def total(theta):
            each = density(theta, records)
            return each.sum() if pull is None else each @ pull

        flat = density.to_tensor(thetas)
        chunk = max(CHUNK_ELEMENTS // (thetas.shape[1] * count(evidence)), 1)
        slopes, bends = (
            to_double(_vmap(derivative, flat, chunk_size=chunk))
            for derivative in (grad(total), jacrev(grad(total)))
        )
        return node_weights @ slopes, -np.tensordot(node_weights, bends, 1)

    return host


def _unbatched(density: _Density, theta, evidence):
    """θ as the rows of a matrix, and records without the axes that `vmap` put in front of theirs."""
    extra = theta.ndim - 1
    records = jax.tree.map(lambda leaf: density.to_tensor(leaf[(0,) * extra]), evidence)
    return density.to_tensor(np.reshape(theta, (-1, theta.shape[-1]))), records


def _vmap(function, *arguments, chunk_size: int | None = None):
    # Distributions check their arguments by looking at values, which a vmap does not have.
    with validation_enabled(False):
        return vmap(function, chunk_size=chunk_size)(*arguments).detach()


def _require_log_likelihood(model: TorchModel, posterior: AbstractGaussian, evidence) -> None:
    """Refuse a function that does not do what unlearning needs, before any of it has begun."""
    theta, total = np.asarray(posterior.mean), count(evidence)
    density = model.density
    records = jax.tree.map(density.to_tensor, evidence)
    found = density(density.to_tensor(theta), records)
    if not isinstance(found, torch.Tensor) or found.shape != (total,):
        what = f"shape {tuple(found.shape)}" if isinstance(found, torch.Tensor) else type(found).__name__
        raise ValueError(f"log_likelihood must return one number per record, shape ({total},), got {what}")
    if not bool(torch.isfinite(found).all()):
        raise ValueError("log_likelihood must be finite at the mean of the guide, got NaN or infinity")
    try:
        derivatives = _expected_derivatives(density)(theta[None], np.ones(1), evidence, None)
    except RuntimeError as error:
        raise ValueError(
            "log_likelihood must be written in operations that torch.func can map and differentiate twice, "
            f"got {error}"
        ) from error
    if not all(np.isfinite(part).all() for part in derivatives):
        raise ValueError("log_likelihood must have finite derivatives at the mean of the guide")


def _parameters(guide: Any) -> Iterable[torch.Tensor]:
    """All parameters; what has none is refused by `_read`."""
    return guide.parameters() if isinstance(guide, torch.nn.Module) else ()


def _read(guide) -> AbstractGaussian:
    if type(guide) not in (AutoDiagonalNormal, AutoMultivariateNormal):
        raise TypeError(
            "guide must be an AutoMultivariateNormal or an AutoDiagonalNormal of Pyro, got "
            f"{type(guide).__name__}"
        )
    if guide.prototype_trace is None:
        raise ValueError("guide must be trained, got one that was never run")
    mean, scale = to_double(guide.loc), to_double(guide.scale)
    if type(guide) is AutoDiagonalNormal:
        return DiagonalGaussian(mean, scale)
    return FullGaussian(mean, scale[:, None] * to_double(guide.scale_tril))


def _write(guide, posterior: Any) -> None:
    """Inverse of `_read`."""
    assign(guide.loc, posterior.mean)
    if isinstance(posterior, DiagonalGaussian):
        guide.scale = torch.from_numpy(np.array(posterior.scale)).to(guide.loc)
        return
    factor = np.array(posterior.scale_tril)
    factor *= np.sign(np.diag(factor))
    scale = np.diag(factor).copy()
    guide.scale = torch.from_numpy(scale).to(guide.loc)
    guide.scale_tril = torch.from_numpy(factor / scale[:, None]).to(guide.loc)


def _copied(guide):
    """A guide with parameters of its own, under a name of its own.

    Pyro's guides do not survive `copy.deepcopy`, which takes the model away from the original, and guides of
    one name share their parameters through the parameter store.
    """
    twin = object.__new__(type(guide))
    shallow = {
        name: copy.copy(value) if isinstance(value, dict) else value for name, value in vars(guide).items()
    }
    vars(twin).update(shallow)
    twin._parameters = {
        name: torch.nn.Parameter(value.detach().clone(), value.requires_grad)
        for name, value in guide._parameters.items()
    }
    twin.prototype_trace = _without_data(guide.prototype_trace)
    twin._pyro_context = type(guide._pyro_context)()
    twin._pyro_name = f"{guide._pyro_name}_unlearned_{next(_copies)}"
    return twin


def _without_data(trace):
    """A copy of the trace that a guide was set up with, without its arguments and observed values."""
    bare = trace.copy()
    for name, site in trace.nodes.items():
        is_latent = site["type"] == "sample" and not site["is_observed"]
        if not is_latent and site["type"] != "param":
            bare.remove_node(name)
    return bare
