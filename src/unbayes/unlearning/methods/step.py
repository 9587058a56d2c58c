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

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Float

from unbayes._numerics.linalg import inverse_triangular
from unbayes._numerics.programs import compiled
from unbayes._storable import Storable
from unbayes.models import AbstractModel
from unbayes.models.derivatives import Derivatives
from unbayes.posteriors import (
    AbstractGaussian,
    AbstractPosterior,
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
    derivatives
        Sums of higher derivatives in coordinates in which q is standard normal: along the directions of the
        memory's sums or, without them, along all where that is affordable; else None.
    """

    natural: GaussianNatural
    derivatives: Derivatives | None = None


class StepInfo(NamedTuple):
    """What a step tells of itself.

    Attributes
    ----------
    share, least_share
        Of the belief's precision that the erased records had given, where that is most and least.
    erased_evidence, evidence
        Trace of the erased records' precision, and of that of all records, in coordinates in which the belief
        has precision one: how many directions they determine.
    keeps_width
        Whether the precision stays, since these are no shares of it.
    taken
        Part of a full step that the mean took.
    change
        KL, in nats, from the belief after the step to the one before.
    answering
        Share of what holds the mean, along its step, that is the remaining records' and not the prior's:
        these may answer the step, the prior does not.
    inflation
        Mean ratio of a parameter's variance to that which a diagonal belief gives it; 1 for a dense one. What
        moves the mean is worth so many times as much to a diagonal belief.
    evidence_left
        Least share of the belief's precision that is left beyond the prior; None where no log-concavity
        bounds it.
    second_term
        KL, in nats, by which the erased records would change their own pull; None where third derivatives
        are not known.
    """

    share: Float[Array, ""]
    least_share: Float[Array, ""]
    erased_evidence: Float[Array, ""]
    evidence: Float[Array, ""]
    keeps_width: Array
    taken: Float[Array, ""]
    change: Float[Array, ""]
    answering: Float[Array, ""]
    inflation: Float[Array, ""]
    evidence_left: Float[Array, ""] | None
    second_term: Float[Array, ""] | None


class Step(NamedTuple):
    """One step, its natural parameters, dense where those of the belief are known, and what it tells."""

    posterior: AbstractGaussian
    natural: GaussianNatural
    info: StepInfo


@compiled
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
    keeps_width = are_no_shares(shares)
    precision = held - erased * jnp.where(keeps_width, 0, 1).astype(posterior.dtype)
    taken = jnp.where(keeps_width, allowed_part(shares), 1).astype(posterior.dtype)
    gradient = taken * site.gradient_at(belief.mean)
    if isinstance(held, DiagonalPrecision) and isinstance(site.precision, DensePrecision):
        move, alone = _without_overshooting(precision, gradient, site.precision, model.gaussian_prior)
        taken = taken * alone
        natural = GaussianNatural(precision @ (posterior.mean - move), precision)
    else:
        natural = GaussianNatural(precision @ posterior.mean - gradient, precision)
    found = posterior.with_natural(natural)
    moved = found.mean - posterior.mean
    evidence_left = second_term = None
    if model.is_log_concave and model.gaussian_prior is not None:
        evidence_left = posterior.evidence_left_without(site, model.gaussian_prior)
    third = sites.derivatives
    if third is not None and third.fourth is None and third.directions == posterior.dim:
        second_term = change_of_pull(posterior, found, third)
    info = StepInfo(
        share=shares.max(),
        least_share=shares.min(),
        erased_evidence=shares.sum(),
        evidence=evidence_beyond(belief, model.gaussian_prior),
        keeps_width=keeps_width,
        taken=taken,
        change=gaussian_kl(found, posterior),
        answering=answering(moved, moved @ (precision @ moved), model.gaussian_prior),
        inflation=(belief.variance * held.diagonal).mean() if curvature is not None else jnp.ones(()),
        evidence_left=evidence_left,
        second_term=second_term,
    )
    return Step(found, natural, info)


def distance_to_step(
    posterior: AbstractPosterior, model: AbstractModel, site: GaussianNatural | None, found: AbstractPosterior
) -> dict[str, float]:
    """How far the result of another method is from one step, as fields of `Measures`; empty where unknown."""
    if not (isinstance(posterior, AbstractGaussian) and isinstance(found, AbstractGaussian)) or site is None:
        return {}
    numbers = jax.device_get(_distance_to_step(posterior, model, site, found))
    return {name: float(value) for name, value in numbers.items()}


@compiled
def _distance_to_step(posterior: AbstractGaussian, model: AbstractModel, site, found: AbstractGaussian):
    step = natural_gradient_step(posterior, model, None, Sites(site))
    return {
        "distance_to_step": gaussian_kl(step.posterior, found),
        "step_change": step.info.change,
        # Where sites do not depend on the belief, nobody answers: one step is all there is.
        "answering": jnp.where(model.is_conjugate_to(posterior), 0.0, step.info.answering),
        "erased_evidence": step.info.erased_evidence,
        "evidence": step.info.evidence,
    }


def change_of_pull(before: AbstractGaussian, after: AbstractGaussian, third: Derivatives) -> Float[Array, ""]:
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
        T = E[∇³ log p] of the records, along all coordinates in which `before` is standard normal.
    """
    inverse = inverse_triangular(before.to_full().scale_tril)
    root = inverse @ after.to_full().scale_tril
    move = inverse @ (after.mean - before.mean)
    wider = root @ root.T - jnp.eye(before.dim, dtype=before.dtype)
    half = third.half
    gradient = 0.5 * half.contracted(wider + jnp.outer(move, move)) @ third.third
    return small_change(root, gradient, -half.matrix(third.third @ move))


def answering(
    move: Float[Array, " d"], held: Float[Array, ""], prior: AbstractGaussian | None
) -> Float[Array, ""]:
    """Share of the precision `held` along a move of the mean that is not the prior's."""
    if prior is None:
        return jnp.ones((), move.dtype)
    own = move @ (prior.natural.precision @ move)
    return jnp.where(held > 0, jnp.clip(1 - own / held, 0, 1), 1)


def evidence_beyond(belief: AbstractGaussian, prior: AbstractGaussian | None) -> Float[Array, ""]:
    """Trace of what a belief knows beyond its prior; of all it knows, where that is not Gaussian."""
    known = 0.0 if prior is None else prior.natural.precision.trace_with(belief)
    return jnp.asarray(belief.dim, belief.dtype) - known


def are_no_shares(shares: Float[Array, " d"]) -> Array:
    """Whether what erased records had given is no part of a belief's precision, so that this must stay."""
    rounding = 100 * jnp.finfo(shares.dtype).eps
    return (shares.max() >= 1 - rounding) | (shares.min() < -LARGEST_NEGATIVE_SHARE)


def allowed_part(shares: Float[Array, " d"]) -> Float[Array, ""]:
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
