"""The coreset's correction: how the remaining records answer, the term after one natural-gradient step.

One step keeps the sites of the remaining records as they were at q(θ|D). A coreset C of them, with weights w,
tells how these sites move: the fixed point of

    η⁺ = η − Σ_{D_e} s_i(q) + Σ_C w_c [ s_c(q⁺) − s_c(q) ]

maximises the ELBO of the weighted coreset under the base η − Σ_{D_e} s_i(q) − Σ_C w_c s_c(q) in place of a
prior. That is a well-posed problem if the base is a proper belief. What the coreset must add up to is known:
the precision of all remaining records. It is therefore seen through a linear map of θ that gives it just that
precision: where it knows too much it is damped, where too little stretched. Half of the prior's precision, at
least, is left to the base.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cholesky, solve_triangular
from jaxtyping import Array, Float

from unbayes._numerics.programs import compiled
from unbayes._numerics.quadrature import Nodes
from unbayes._numerics.records import padded
from unbayes.inference.ascent import AscentState, Bound, ascend
from unbayes.models import AbstractModel
from unbayes.models.view import AbstractView
from unbayes.posteriors import AbstractGaussian, DensePrecision, FullGaussian, GaussianNatural, gaussian_kl
from unbayes.unlearning.methods.step import Step

# Share of the precision that counts as known to all: directions that the coreset tells next to nothing of, or
# that no record does, stay as they are.
IGNORANCE = 0.05
# Records, at most, from which the uncertainty of a coreset is estimated.
LARGEST_SAMPLE = 100
# An ascent whose integrals are sampled comes to crawl: its steps are not quite the bound's gradient.
PASSES, SAMPLED_PASSES, TOLERANCE = 500, 80, 1e-9
# What may be left of the way to the fixed point, as a part of the change, before one step is preferred:
# beyond half of it the ascent is no nearer to its end than to its start.
LARGEST_REST = 0.5


class Correction(NamedTuple):
    """What a coreset says of the remaining records.

    Attributes
    ----------
    posterior
        The belief at the fixed point.
    natural
        Its natural parameters, dense also where it is diagonal.
    change, second_term
        KL, in nats, from the belief to the trained one, and to that of one step.
    stationarity
        KL, in nats, that is left between the belief and the fixed point.
    coverage
        Share of the remaining records' precision that the coreset stands for, unstretched.
    uncertainty
        Expected KL, in nats, that comes from having drawn this coreset and no other.
    """

    posterior: AbstractGaussian
    natural: GaussianNatural
    change: float
    second_term: float
    stationarity: float
    coverage: float
    uncertainty: float

    @property
    def is_settled(self) -> bool:
        """Whether the belief is nearer to the fixed point than the trained one is to one step.

        Elsewhere the ascent refused its steps, or wandered: one step alone is the better answer.
        """
        numbers = (self.change, self.second_term, self.coverage, self.uncertainty)
        return all(map(math.isfinite, numbers)) and self.stationarity <= LARGEST_REST * self.change


def coreset_correction(
    posterior: AbstractGaussian,
    model: AbstractModel,
    step: Step,
    coreset: Any,
    weights: Float[np.ndarray, " k"],
    nodes: Nodes,
) -> Correction:
    """Correct one step by how the remaining records change their pull, as a coreset shows it.

    Parameters
    ----------
    posterior
        q(θ|D).
    step
        One step, with its natural parameters η − Σ_{D_e} s_i(q) dense.
    coreset, weights
        Some of the remaining records, as evidence, and how many each stands for; zero for erased ones.
    """
    # A coreset loses records over time; the compiled functions serve until it has lost many.
    records = len(weights)
    coreset, present = padded(coreset, weights.dtype)
    weights = np.pad(weights, (0, len(present) - records))
    mapped, weights, coverage, site = _map_coreset(posterior, model, step.natural, coreset, weights, nodes)
    passes = SAMPLED_PASSES if model.is_sampled else PASSES
    end, *lengths = _ascend(posterior, mapped, step, site, coreset, weights, nodes, passes)
    share = min(LARGEST_SAMPLE / records, 1)
    rows = np.arange(len(weights)) if share == 1 else np.linspace(0, records - 1, LARGEST_SAMPLE).astype(int)
    uncertainty = _uncertainty(posterior, end.gaussian, mapped, coreset, weights, rows, nodes)
    numbers = jax.device_get((*lengths, end.stationarity, coverage, uncertainty))
    change, second_term, stationarity, coverage, uncertainty = map(float, numbers)
    return Correction(
        posterior=end.gaussian,
        natural=end.target,
        change=change,
        second_term=second_term,
        stationarity=stationarity,
        coverage=coverage,
        uncertainty=uncertainty / share,
    )


class _Mapped(AbstractView):
    """A model whose records look at m + M (θ − m) instead of θ."""

    map: Float[Array, "d d"]
    centre: Float[Array, " d"]

    def log_likelihood(self, theta, evidence):
        return self.model.log_likelihood(self._seen(theta), evidence)

    def expected_log_likelihood(self, gaussian, evidence, nodes, weights=None):
        return self.model.expected_log_likelihood(self._belief(gaussian), evidence, nodes, weights)

    def site(self, gaussian, evidence, nodes, weights=None):
        return self.expected_log_likelihood_and_site(gaussian, evidence, nodes, weights)[1]

    def expected_log_likelihood_and_site(self, gaussian, evidence, nodes, weights=None):
        belief = self._belief(gaussian)
        value, site = self.model.expected_log_likelihood_and_site(belief, evidence, nodes, weights)
        gradient = self.map.T @ site.gradient_at(belief.mean)
        curvature = DensePrecision(self.map.T @ site.precision.matrix @ self.map)
        return value, gaussian.to_full().site(gradient, curvature)

    def site_changes(self, before, after, evidence, nodes):
        return self.model.site_changes(self._belief(before), self._belief(after), evidence, nodes)

    def _seen(self, theta):
        return self.centre + self.map @ (theta - self.centre)

    def _belief(self, gaussian: AbstractGaussian) -> FullGaussian:
        root = self.map @ gaussian.to_full().scale_tril
        return FullGaussian.from_covariance(self._seen(gaussian.mean), root @ root.T)


@compiled
def _map_coreset(posterior, model: AbstractModel, one_step, coreset, weights, nodes):
    """The coreset through a map that gives it the remaining records' precision, weights, coverage and site.

    In coordinates in which one step leaves the identity, the map is the symmetric M with M A M = R, for the
    coreset's precision A and the remaining records' R: the one that moves θ least.
    """
    full = posterior.to_full()
    factor = cholesky(one_step.precision.matrix, lower=True)
    identity = jnp.eye(full.dim, dtype=full.dtype)

    def whiten(precision):
        half = solve_triangular(factor, precision.matrix, lower=True)
        return solve_triangular(factor, half.T, lower=True)

    remaining = whiten(one_step.precision - model.prior_site(full, nodes).precision)
    plain_site = model.site(full, coreset, nodes, weights)
    known = whiten(plain_site.precision) + IGNORANCE * identity
    root, inverse_root = (_power(remaining + IGNORANCE * identity, power) for power in (0.5, -0.5))
    whitened = root @ _power(root @ known @ root, -0.5) @ root
    map_ = solve_triangular(factor, whitened @ factor.T, lower=True, trans="T")
    spare = _power(0.5 * (remaining + identity), -0.5)

    def excess_of(precision):
        return jnp.linalg.eigvalsh(spare @ precision @ spare)[-1]

    # Through the map a belief looks wider or narrower, which changes the curvature of what sees it. Where
    # that makes things worse, as it may with hundreds of parameters, the coreset is left as it is.
    fitted_site = _Mapped(model, map_, full.mean).site(full, coreset, nodes, weights)
    fitted = excess_of(whiten(fitted_site.precision))
    # A map that is nearly singular leaves no belief, to rounding, that a record could meet.
    fitted = jnp.where(jnp.isfinite(fitted), fitted, jnp.inf)
    plain = excess_of(known - IGNORANCE * identity)
    fits = fitted <= jnp.maximum(plain, 1)
    map_ = jnp.where(fits, map_, identity)
    excess = jnp.maximum(jnp.minimum(fitted, plain), 1)
    site = jax.tree.map(lambda new, old: jnp.where(fits, new, old) / excess, fitted_site, plain_site)
    shares, directions = jnp.linalg.eigh(inverse_root @ known @ inverse_root)
    covered = ((root @ directions) ** 2 @ jnp.minimum(shares, 1)).sum() - IGNORANCE * full.dim
    coverage = covered / jnp.trace(remaining) / excess
    return _Mapped(model, map_, full.mean), weights / excess, coverage, site


def _power(matrix: Float[Array, "d d"], power: float) -> Float[Array, "d d"]:
    values, vectors = jnp.linalg.eigh(matrix)
    return (vectors * jnp.maximum(values, jnp.finfo(values.dtype).eps) ** power) @ vectors.T


@compiled
def _ascend(
    posterior, model: AbstractModel, step: Step, site, coreset, weights, nodes, passes: int
) -> tuple[AscentState, Float[Array, ""], Float[Array, ""]]:
    """The fixed point, and how far it is from the trained belief and from one step."""
    bound = Bound(model, coreset, nodes, weights, step.natural - site)
    end = ascend(bound, posterior, passes, TOLERANCE)
    return end, gaussian_kl(end.gaussian, posterior), gaussian_kl(end.gaussian, step.posterior)


@compiled
def _uncertainty(before, after, model: AbstractModel, coreset, weights, rows, nodes):
    """½ E‖noise of the natural parameters‖² in the metric of KL, if records were drawn one by one.

    The sum over the given rows of the coreset.
    """
    coreset, weights = jax.tree.map(lambda leaf: jnp.asarray(leaf)[rows], (coreset, weights))

    each = model.site_changes(before, after, coreset, nodes)
    return (weights**2 * jnp.where(weights > 0, 1 - 1 / jnp.maximum(weights, 1), 0)) @ each
