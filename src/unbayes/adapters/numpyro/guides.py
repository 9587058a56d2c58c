"""Auto-guides as beliefs over their flat unconstrained latent vector, and back."""

import abc
import copy
import dataclasses
import weakref
from collections.abc import Mapping
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float
from numpyro.distributions.transforms import biject_to
from numpyro.infer.autoguide import (
    AutoDiagonalNormal,
    AutoGuide,
    AutoIAFNormal,
    AutoLaplaceApproximation,
    AutoLowRankMultivariateNormal,
    AutoMultivariateNormal,
    AutoNormal,
)
from scipy.optimize import minimize

from unbayes.adapters.numpyro.flow import GuideFlow
from unbayes.adapters.numpyro.program import latent_dim, latent_shapes, split
from unbayes.posteriors import AbstractVariational, DiagonalGaussian, FullGaussian


@dataclasses.dataclass(frozen=True)
class AbstractTrained(abc.ABC):
    """A guide and its parameters.

    Attributes
    ----------
    guide
        An auto-guide that has been set up.
    params
        Values of its parameters, and of those of its model.
    """

    guide: Any
    params: dict[str, Any]

    @property
    @abc.abstractmethod
    def posterior(self) -> AbstractVariational:
        """The belief over θ."""

    @abc.abstractmethod
    def with_posterior(self, posterior: Any) -> Self:
        """The guide with the parameters that give it the belief `posterior`, or the nearest it can hold."""

    @property
    def bare(self) -> Any:
        """The guide without the arguments that it was set up with."""
        return without_data(self.guide)

    @property
    def constants(self) -> dict[str, Any]:
        """Parameters of the model itself."""
        return {
            name: self.value(name)
            for name, site in self.guide.prototype_trace.items()
            if site["type"] == "param"
        }

    def value(self, name: str, shape: tuple[int, ...] | None = None, *, positive: bool = False) -> Any:
        """A parameter, or a sentence where it is not there, not finite, or of another shape."""
        if name not in self.params:
            raise ValueError(
                f"params must hold {name!r} to be those of the {type(self.guide).__name__} that is given, "
                f"got {sorted(self.params)}"
            )
        value = jax.tree.map(jnp.asarray, self.params[name])
        if shape is not None and jnp.shape(value) != shape:
            raise ValueError(f"params must hold {name!r} of shape {shape}, got {jnp.shape(value)}")
        if not all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(value)):
            raise ValueError(f"params must be finite, got NaN or infinity in {name!r}")
        if positive and not bool((value > 0).all()):
            raise ValueError(f"params must hold positive {name!r}, got {value.min():g}")
        return value

    def updated(self, **values: Any) -> Self:
        """The guide with some of its parameters replaced, by their names after the prefix."""
        prefix = self.guide.prefix
        return dataclasses.replace(
            self, params={**self.params, **{f"{prefix}_{name}": value for name, value in values.items()}}
        )

    def vector(self, name: str, *, positive: bool = False) -> Float[Array, " d"]:
        """A parameter of length d, by its name after the prefix."""
        return self.value(f"{self.guide.prefix}_{name}", (latent_dim(self.guide),), positive=positive)


class MeanField(AbstractTrained):
    """An `AutoDiagonalNormal` and its parameters."""

    @property
    def posterior(self) -> DiagonalGaussian:
        """Independent Gaussians."""
        return DiagonalGaussian(self.vector("loc"), self.vector("scale", positive=True))

    def with_posterior(self, posterior: DiagonalGaussian) -> Self:
        """Mean and scale."""
        return self.updated(loc=posterior.mean, scale=posterior.scale)


class SiteWise(AbstractTrained):
    """An `AutoNormal` and its parameters, which are those of each site."""

    @property
    def posterior(self) -> DiagonalGaussian:
        """Independent Gaussians."""
        return DiagonalGaussian(self._joined("loc"), self._joined("scale", positive=True))

    def with_posterior(self, posterior: DiagonalGaussian) -> Self:
        """Mean and scale, split into sites."""
        values = {
            f"{site}_{self.guide.prefix}_{name}": value
            for name, vector in (("loc", posterior.mean), ("scale", posterior.scale))
            for site, value in split(self.guide, vector).items()
        }
        return dataclasses.replace(self, params={**self.params, **values})

    def _joined(self, name: str, *, positive: bool = False) -> Float[Array, " d"]:
        return jnp.concatenate(
            [
                self.value(f"{site}_{self.guide.prefix}_{name}", shape, positive=positive).ravel()
                for site, shape in latent_shapes(self.guide).items()
            ]
        )


class FullRank(AbstractTrained):
    """An `AutoMultivariateNormal` and its parameters."""

    @property
    def posterior(self) -> FullGaussian:
        """Gaussian with full covariance."""
        dim = latent_dim(self.guide)
        scale_tril = self.value(f"{self.guide.prefix}_scale_tril", (dim, dim))
        if not bool((jnp.diagonal(scale_tril) > 0).all()):
            raise ValueError("params must hold a scale_tril with a positive diagonal, got others")
        return FullGaussian(self.vector("loc"), scale_tril)

    def with_posterior(self, posterior: FullGaussian) -> Self:
        """Mean and factor, whose diagonal NumPyro wants positive."""
        signs = jnp.sign(jnp.diagonal(posterior.scale_tril))
        return self.updated(loc=posterior.mean, scale_tril=posterior.scale_tril * signs)


class LowRank(AbstractTrained):
    """`AutoLowRankMultivariateNormal`: covariance S (I + F Fᵀ) S, S diagonal and F of a few columns."""

    @property
    def posterior(self) -> FullGaussian:
        """The same Gaussian with its covariance as a dense matrix."""
        scale, factor = self.vector("scale", positive=True), self._factor
        return FullGaussian.from_covariance(self.vector("loc"), _low_rank_covariance(scale, factor))

    def with_posterior(self, posterior: FullGaussian) -> Self:
        """The member of the family nearest to `posterior` in KL[low rank‖full], as SVI would find it."""
        precision = posterior.natural.precision.matrix
        scale, factor = _nearest_low_rank(precision, self.vector("scale"), self._factor)
        return self.updated(loc=posterior.mean, scale=scale, cov_factor=factor)

    @property
    def _factor(self) -> Float[Array, "d r"]:
        name = f"{self.guide.prefix}_cov_factor"
        factor = self.value(name)
        dim = latent_dim(self.guide)
        if jnp.ndim(factor) != 2 or len(factor) != dim:
            raise ValueError(f"params must hold {name!r} of shape ({dim}, rank), got {jnp.shape(factor)}")
        return factor


class Laplace(AbstractTrained):
    """`AutoLaplaceApproximation`, whose parameters are the mode alone.

    The covariance is computed by the guide, at the mode and from the data that it was set up with.
    """

    @property
    def posterior(self) -> FullGaussian:
        """Gaussian around the mode."""
        loc = self.vector("loc")
        # Compiled: the guide's Hessian of a whole program is slow step by step.
        scale_tril = jax.jit(lambda params: self.guide.get_transform(params).scale_tril)(self.params)
        if not bool(jnp.isfinite(scale_tril).all() & (jnp.diagonal(scale_tril) > 0).all()):
            raise ValueError("params must be at a mode of the posterior, but its Hessian is singular there")
        return FullGaussian(loc, scale_tril)

    def with_posterior(self, posterior: FullGaussian) -> Self:
        """The mode, for a copy of the guide that takes the precision from `posterior`."""
        guide = copy.copy(self.bare)
        precision = posterior.natural.precision.matrix
        guide._hessian_fn = lambda loss, loc: precision
        return dataclasses.replace(self.updated(loc=posterior.mean), guide=guide)


class Flow(AbstractTrained):
    """An `AutoIAFNormal` and its parameters."""

    @property
    def posterior(self) -> GuideFlow:
        """The flow that the guide gives to its latent vector."""
        if self.guide.latent_dim < 2:
            raise ValueError("guide must have at least two latent dimensions, got an AutoIAFNormal of one")
        names = [f"{self.guide.prefix}_arn__{i}$params" for i in range(self.guide.num_flows)]
        params = {name: self.value(name) for name in names}
        types = {leaf.dtype for leaf in jax.tree.leaves(params)}
        if types != {jnp.dtype(jnp.result_type(float))}:
            raise ValueError(
                f"params of an AutoIAFNormal must be of JAX's default type, {jnp.result_type(float)}, "
                f"got {sorted(map(str, types))}"
            )
        return GuideFlow(params, self.bare)

    def with_posterior(self, posterior: GuideFlow) -> Self:
        """The weights of its networks."""
        return dataclasses.replace(self, params={**self.params, **posterior.params})


FAMILIES: dict[type[AutoGuide], type[AbstractTrained]] = {
    AutoNormal: SiteWise,
    AutoDiagonalNormal: MeanField,
    AutoMultivariateNormal: FullRank,
    AutoLowRankMultivariateNormal: LowRank,
    AutoLaplaceApproximation: Laplace,
    AutoIAFNormal: Flow,
}


def read(guide: AutoGuide, params: Mapping[str, Any]) -> AbstractTrained:
    """Guide and parameters as one value, or a sentence where they do not make a trained guide."""
    family = next((found for kind, found in FAMILIES.items() if isinstance(guide, kind)), None)
    if family is None:
        names = ", ".join(kind.__name__ for kind in FAMILIES)
        raise TypeError(f"guide must be one of {names}, got {type(guide).__name__}")
    if guide.prototype_trace is None:
        raise ValueError("guide must have been set up on data, as svi.run and svi.init do, got a new one")
    if not isinstance(params, Mapping):
        raise TypeError(f"params must be a dictionary such as svi_result.params, got {type(params).__name__}")
    return family(guide, dict(params))


_bare: "weakref.WeakKeyDictionary[AutoGuide, tuple[int, AutoGuide]]" = weakref.WeakKeyDictionary()


def without_data(guide: AutoGuide) -> AutoGuide:
    """A copy of a guide that samples as before and holds nothing of the data it was set up with.

    The same copy for the same guide, so that what was compiled for it serves again. Its `sample_posterior`
    gives the latent sites and leaves out deterministic ones, which NumPyro computes from those data.
    """
    made_for, bare = _bare.get(guide, (0, guide))
    if made_for == id(guide.prototype_trace):
        return bare
    assert guide.prototype_trace is not None
    bare: Any = copy.copy(guide)
    bare.prototype_trace = {name: _without_data(site) for name, site in guide.prototype_trace.items()}
    supports = {name: bare.prototype_trace[name]["fn"].support for name in guide._init_locs}
    bare._postprocess_fn = lambda values: {
        name: biject_to(supports[name])(value) for name, value in values.items() if name in supports
    }
    for closure in ("_potential_fn", "_potential_fn_gen", "_loss_fn"):
        vars(bare).pop(closure, None)
    _bare[guide] = (id(guide.prototype_trace), bare)
    return bare


def _without_data(site: dict[str, Any]) -> dict[str, Any]:
    """A site of a trace: of observed and deterministic ones, the name and the kind alone."""
    if site["type"] in ("param", "plate") or (site["type"] == "sample" and not site["is_observed"]):
        return {**site, "args": (), "kwargs": {}}
    return {name: site[name] for name in ("name", "type", "is_observed") if name in site}


def _low_rank_covariance(scale: Float[Array, " d"], factor: Float[Array, "d r"]) -> Float[Array, "d d"]:
    scaled = scale[:, None] * factor
    return jnp.diag(scale**2) + scaled @ scaled.T


@jax.jit
def _divergence(parameters, precision):
    """KL from the low-rank Gaussian, up to a constant, to one of equal mean and the given precision."""
    log_scale, factor = parameters
    covariance = _low_rank_covariance(jnp.exp(log_scale), factor)
    rank = factor.shape[1]
    inner = jnp.linalg.cholesky(jnp.eye(rank, dtype=factor.dtype) + factor.T @ factor)
    log_det_scale = log_scale.sum() + jnp.log(jnp.diagonal(inner)).sum()
    return 0.5 * (precision * covariance).sum() - log_det_scale


def _nearest_low_rank(precision, scale, factor) -> tuple[Float[Array, " d"], Float[Array, "d r"]]:
    """Scale and factor that minimise the divergence, by L-BFGS from those given."""
    dtype = precision.dtype
    flat, unflatten = ravel_pytree((jnp.log(scale), factor))
    value_and_grad = jax.value_and_grad(_divergence)

    def objective(parameters):
        value, gradient = value_and_grad(unflatten(jnp.asarray(parameters, dtype)), precision)
        return float(value), np.asarray(ravel_pytree(gradient)[0], np.float64)

    # Until rounding stops it: there are few numbers to find.
    options = {"ftol": 0, "gtol": 0, "maxiter": 1000}
    start = np.asarray(flat, np.float64)
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options=options).x
    log_scale, factor = unflatten(jnp.asarray(found, dtype))
    return jnp.exp(log_scale), factor
