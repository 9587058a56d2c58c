"""One natural-gradient step away from erased records, and what it tells of itself.

With g = E_q[∇ log p(D_e|θ)] and P = −E_q[∇² log p(D_e|θ)], a full step leaves the precision Λ − P and moves
the mean by −(Λ − P)⁻¹ g. It is held back in these cases:

- P is no part of Λ: it exceeds Λ in some direction, or is clearly negative in one, which no log-concave
  evidence is. Second derivatives then tell little beyond the place where they were taken (neural networks),
  and the precision stays as it is: the mean moves by −Λ⁻¹ g, as influence functions say. Where P exceeds Λ by
  more than its own negative part explains, Λ itself is too small, by that factor s at least: training had not
  converged. A step that trusts it would go s times too far, so it is divided by s, and little is left of it.
- A diagonal belief knows the diagonal of Λ only. Where records pull several parameters at once, a step for
  each of them alone goes too far: along a step δ by the factor (δᵀ P δ) / (δᵀ diag(P) δ), if the remaining
  records do as the erased ones. What the prior gave to Λ is known with all its entries.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Float

from unbayes._numerics.linalg import inverse_triangular
from unbayes._storable import Storable
from unbayes.models import AbstractModel
from unbayes.posteriors import (
    AbstractGaussian,
    AbstractPrecision,
    DensePrecision,
    DiagonalPrecision,
    FullGaussian,
    GaussianNatural,
    gaussian_kl,
    small_change,
)
from unbayes.trust.limits import LARGEST_NEGATIVE_SHARE


class Sites(Storable):
    """Sums over erased records at the trained posterior.

    Attributes
    ----------
    natural
        Sum of the sites, dense where that is affordable.
    third
        E_q[∇³ log p(D_e|θ)] in coordinates in which q is standard normal, shape (d, d, d); None where that
        is not affordable.
    """

    natural: GaussianNatural
    third: Float[Array, "d d d"] | None = None


class StepInfo(NamedTuple):
    """What a step tells of itself.

    Attributes
    ----------
    share, least_share
        Of the belief's precision that the erased records had given, where that is most and least.
    keeps_width
        Whether the precision stays, since these are no shares of it.
    taken
        Part of a full step that the mean took.
    change
        KL, in nats, from the belief after the step to the one before.
    evidence_left
        Least share of the belief's precision that is left beyond the prior; None where no log-concavity
        bounds it.
    second_term
        KL, in nats, by which the erased records would change their own pull; None where third derivatives
        are not known.
    """

    share: Float[Array, ""]
    least_share: Float[Array, ""]
    keeps_width: Array
    taken: Float[Array, ""]
    change: Float[Array, ""]
    evidence_left: Float[Array, ""] | None
    second_term: Float[Array, ""] | None


class Step(NamedTuple):
    """One step, its natural parameters, dense where those of the belief are known, and what it tells."""

    posterior: AbstractGaussian
    natural: GaussianNatural
    info: StepInfo


@eqx.filter_jit
def natural_gradient_step(
    posterior: AbstractGaussian,
    model: AbstractModel,
    curvature: GaussianNatural | None,
    sites: Sites,
) -> Step:
    """Take the erased records' sites away from a belief.

    Parameters
    ----------
    posterior
        q(θ|D).
    model
        Tells the prior, where it is Gaussian.
    curvature
        Dense natural parameters that a diagonal posterior is nearest to, where they were kept.
    sites
        Sums over the erased records at `posterior`.
    """
    belief, site = posterior, sites.natural
    if curvature is not None:
        # Where training has not quite converged, the mean of the curvature is a step of training away.
        belief = FullGaussian(posterior.mean, curvature.precision.inverse_factor())
    held = belief.natural.precision
    erased = held.restrict(site.precision)
    shares = belief.shares(erased)
    rounding = 100 * jnp.finfo(posterior.dtype).eps
    keeps_width = (shares.max() >= 1 - rounding) | (shares.min() < -LARGEST_NEGATIVE_SHARE)
    precision = held - erased * jnp.where(keeps_width, 0, 1).astype(posterior.dtype)
    taken = jnp.where(keeps_width, _allowed(shares), 1).astype(posterior.dtype)
    gradient = taken * site.gradient_at(belief.mean)
    if isinstance(held, DiagonalPrecision) and isinstance(site.precision, DensePrecision):
        move, alone = _without_overshooting(precision, gradient, site.precision, model.gaussian_prior)
        taken = taken * alone
        natural = GaussianNatural(precision @ (posterior.mean - move), precision)
    else:
        natural = GaussianNatural(precision @ posterior.mean - gradient, precision)
    found = posterior.with_natural(natural)
    evidence_left = second_term = None
    if model.is_log_concave and model.gaussian_prior is not None:
        evidence_left = posterior.evidence_left_without(site, model.gaussian_prior)
    if sites.third is not None:
        second_term = change_of_pull(posterior, found, sites.third)
    info = StepInfo(
        share=shares.max(),
        least_share=shares.min(),
        keeps_width=keeps_width,
        taken=taken,
        change=gaussian_kl(found, posterior),
        evidence_left=evidence_left,
        second_term=second_term,
    )
    return Step(found, natural, info)


def change_of_pull(
    before: AbstractGaussian, after: AbstractGaussian, third: Float[Array, "d d d"]
) -> Float[Array, ""]:
    """KL, in nats, by which a step moves the belief if records change their pull with it.

    The sites of records change with the belief. As far as third derivatives tell, for N(m + δ, Σ + Δ) the
    gradient changes by ½ T:(Δ + δδᵀ) and the precision by −T δ; fourth ones, by which a wider belief changes
    the precision too, are left out. Sites of the remaining records change as well, which is the next term
    that one step leaves out.

    Parameters
    ----------
    before, after
        The step.
    third
        T = E[∇³ log p] of the records, in coordinates in which `before` is standard normal.
    """
    inverse = inverse_triangular(before.to_full().scale_tril)
    root = inverse @ after.to_full().scale_tril
    move = inverse @ (after.mean - before.mean)
    wider = root @ root.T - jnp.eye(before.dim, dtype=before.dtype)
    gradient = 0.5 * jnp.tensordot(third, wider + jnp.outer(move, move), 2)
    return small_change(root, gradient, -third @ move)


def _allowed(shares: Float[Array, " d"]) -> Float[Array, ""]:
    """Part of a step of the mean that a precision allows which is too small for the erased records alone."""
    return 1 / jnp.maximum(shares.max() + jnp.minimum(shares.min(), 0), 1)


def _without_overshooting(
    precision: AbstractPrecision,
    gradient: Float[Array, " d"],
    erased: DensePrecision,
    prior: AbstractGaussian | None,
) -> tuple[Float[Array, " d"], Float[Array, ""]]:
    """Step of the mean of a diagonal belief, and the part of a full one that it is."""
    known = jnp.zeros_like(erased.matrix) if prior is None else prior.natural.precision.matrix
    # What remains of the evidence: this much on the diagonal, and elsewhere nobody knows.
    evidence = jnp.maximum(precision.diagonal - jnp.diagonal(known), 0)

    def move(together):
        factor = jnp.linalg.cholesky(known + jnp.diag(together * evidence))
        return cho_solve((factor, True), gradient)

    alone = move(1.0)
    each = erased.diagonal @ alone**2
    together = jnp.where(each > 0, jnp.maximum(alone @ (erased @ alone) / each, 1), 1)
    return move(together), 1 / together
