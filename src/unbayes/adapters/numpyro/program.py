"""A NumPyro program as a model."""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import numpyro
from jaxtyping import Array, Float
from numpyro import handlers
from numpyro.distributions import Distribution
from numpyro.distributions.transforms import biject_to
from numpyro.infer.autoguide import AutoGuide
from numpyro.infer.util import compute_log_probs

from unbayes._numerics.fingerprint import fingerprint
from unbayes._numerics.quadrature import QUASI_RANDOM_NODES, Nodes, centre_node
from unbayes._numerics.records import count, to_arrays
from unbayes.models import AbstractDifferentiated

Call = tuple[tuple[Any, ...], dict[str, Any]]


class Program(AbstractDifferentiated):
    """A NumPyro program, with θ the unconstrained latent vector of its guide.

    Sites that are observed along the records make the likelihood. All other sites, and the Jacobian of the
    maps from the unconstrained space, make the prior.

    Attributes
    ----------
    program
        The callable.
    guide
        Gives the latent sites their order in θ, shapes and supports.
    constants
        Values of the program's own parameters (`numpyro.param`).
    fixed
        The arguments of the program, with None in place of those that hold records.
    template
        The arguments that hold records, with a single record of zeros, for what does not depend on them.
    axes
        Observed sites, and the axis of their log-density, from the right, along which the records lie.
    float_type
        Floating-point type of θ.
    pointwise
        Whether the belief was made by values and derivatives at its mean, as a Laplace approximation is, and
        not by expectations.
    """

    program: Callable[..., Any] = eqx.field(static=True)
    guide: AutoGuide = eqx.field(static=True)
    constants: dict[str, Any]
    fixed: Call
    template: Call
    axes: tuple[tuple[str, int], ...] = eqx.field(static=True)
    float_type: str = eqx.field(static=True)
    pointwise: bool = eqx.field(static=True, default=False)

    @property
    def dim(self) -> int:
        """Length d of θ."""
        return latent_dim(self.guide)

    @property
    def dtype(self) -> jnp.dtype:
        """Floating-point type of θ."""
        return jnp.dtype(self.float_type)

    @property
    def holds_functions(self) -> bool:
        """Whether the model holds functions of a user's, which a program is."""
        return True

    @property
    def fingerprint(self) -> str:
        """Of the program's name, latent sites and parameters; other arguments may vary with the records."""
        latent = sorted(latent_shapes(self.guide).items())
        return fingerprint(self.program, type(self.guide).__name__, latent, self.constants, self.float_type)

    def encode(self, records: Call, name: str = "records") -> Call:
        """Finite arrays that share their leading axis, with None in place of the arguments that are fixed."""
        return to_arrays(records, name, self.dtype)

    def log_prior(self, theta):
        """Log-density of the latent sites and of what else does not depend on the records, over θ."""
        values, log_jacobian = constrain(self.guide, theta)
        log_probs = self._log_probs(values, self.template)
        along_records = dict(self.axes)
        terms = [each.sum() for name, each in log_probs.items() if name not in along_records]
        return jnp.asarray(sum(terms) + log_jacobian, self.dtype)

    def log_likelihood(self, theta, evidence: Call):
        """Log-density of the observed sites, summed over sites and over all axes but the records'."""
        values, _ = constrain(self.guide, theta)
        log_probs = self._log_probs(values, evidence)
        total = count(evidence)
        terms = [jnp.moveaxis(log_probs[name], axis, 0).reshape(total, -1).sum(1) for name, axis in self.axes]
        return jnp.asarray(sum(terms), self.dtype)

    def nodes(self, count: int = QUASI_RANDOM_NODES) -> Nodes:
        """As for any model, or the mean alone where the belief is `pointwise`."""
        if not self.pointwise:
            return super().nodes(count)
        return centre_node(self.dim, self.dtype)

    @property
    def is_sampled(self) -> bool:
        """Whether expectations of the log-likelihood are averages, good to a few digits only."""
        return not self.pointwise and super().is_sampled

    def _log_probs(self, values: Mapping[str, Array], records: Call) -> dict[str, Array]:
        call = eqx.combine(records, self.fixed)
        return run(self.program, {**self.constants, **values}, call)[0]


def run(program: Callable[..., Any], values: Mapping[str, Any], call: Call, seed: int = 0):
    """Log-density of every sample site, with its axes, and the trace, at the given values of the sites."""
    args, kwargs = call
    seeded = handlers.seed(program, rng_seed=seed)
    # Values are checked once, at the boundary, and a template need not make sense.
    with numpyro.validation_enabled(False):
        return compute_log_probs(seeded, args, kwargs, dict(values), sum_log_prob=False)


def prototype(guide: AutoGuide, name: str) -> Distribution:
    """Distribution of a latent site when the guide was set up, from which it takes shape and support."""
    assert guide.prototype_trace is not None
    return guide.prototype_trace[name]["fn"]


def latent_shapes(guide: AutoGuide) -> dict[str, tuple[int, ...]]:
    """Shape in unconstrained space of every latent site, in the order in which θ holds them."""
    return {name: np.shape(value) for name, value in guide._init_locs.items()}


def latent_dim(guide: AutoGuide) -> int:
    """Length d of θ."""
    return sum(int(np.prod(shape)) for shape in latent_shapes(guide).values())


def split(guide: AutoGuide, theta: Float[Array, " d"]) -> dict[str, Array]:
    """Unconstrained value of every latent site."""
    shapes = latent_shapes(guide)
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes.values()])[:-1]
    parts = jnp.split(theta, ends)
    return {name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}


def constrain(guide: AutoGuide, theta: Float[Array, " d"]) -> tuple[dict[str, Array], Float[Array, ""]]:
    """Value of every latent site in its support, and the log-Jacobian of the map from θ to them."""
    values, log_jacobian = {}, jnp.zeros((), theta.dtype)
    for name, unconstrained in split(guide, theta).items():
        transform = biject_to(prototype(guide, name).support)
        values[name] = transform(unconstrained)
        log_jacobian += jnp.sum(transform.log_abs_det_jacobian(unconstrained, values[name]))
    return values, log_jacobian
