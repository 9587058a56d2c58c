"""One natural-gradient step away from erased records, and what it tells of itself.

With g = E_q[∇ log p(D_e|θ)] and P = −E_q[∇² log p(D_e|θ)], a full step leaves the precision Λ − P and moves
the mean by −(Λ − P)⁻¹ g. It is held back in two cases:

- P is no part of Λ: it exceeds Λ in some direction, or is clearly negative in one, which no log-concave
  evidence is. Second derivatives then tell little beyond the place where they were taken (neural networks),
  and the precision stays as it is: the mean moves by −Λ⁻¹ g, as influence functions say.
- A diagonal belief knows the diagonal of Λ only. Where records pull several parameters at once, a step for
  each of them alone goes too far: along a step δ by the factor (δᵀ P δ) / (δᵀ diag(P) δ), if the remaining
  records do as the erased ones. What the prior gave to Λ is known with all its entries.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Float

from unbayes.models import AbstractModel
from unbayes.posteriors import (
    AbstractGaussian,
    DiagonalGaussian,
    FullGaussian,
    GaussianNatural,
    gaussian_kl,
)
from unbayes.posteriors.gram import inverse_cholesky
from unbayes.quadrature import Nodes

# Share of the belief's own precision by which evidence may be negative before it is called that: integrals of
# log-concave models are that good.
LARGEST_BEND = 0.1
DIAGNOSIS_DRAWS = 1000


class Told(NamedTuple):
    """What a step tells of itself.

    Attributes
    ----------
    share, least_share
        Of the belief's precision that the erased records had given, where that is most and least.
    keeps_width
        Whether the precision stays, since these are no shares of it.
    taken
        Part of a full step of the mean.
    change
        KL from the trained belief, in nats.
    log_weights
        Of draws from the trained belief, up to second order, shape (s,).
    pull
        KL by which the erased records would change their own pull; None where they were not looked at again.
    """

    share: Float[Array, ""]
    least_share: Float[Array, ""]
    keeps_width: Array
    taken: Float[Array, ""]
    change: Float[Array, ""]
    log_weights: Float[Array, " s"]
    pull: Float[Array, ""] | None = None


class Step(NamedTuple):
    """One step, its natural parameters, dense where those of the belief are known, and what it tells."""

    posterior: AbstractGaussian
    natural: GaussianNatural
    told: Told


@eqx.filter_jit
def one_step(
    posterior: AbstractGaussian,
    model: AbstractModel,
    curvature: GaussianNatural | None,
    site: GaussianNatural,
) -> Step:
    """Take the erased records' site away from a belief.

    Parameters
    ----------
    posterior
        q(θ|D).
    model
        Tells the prior, where it is Gaussian.
    curvature
        Dense natural parameters that a diagonal posterior is nearest to, where they were kept.
    site
        Sum of the erased records' sites at `posterior`, dense where that is affordable.
    """
    whole = posterior
    if curvature is not None:
        # Where training has not quite converged, the mean of the curvature is a step of training away.
        whole = FullGaussian(posterior.mean, inverse_cholesky(curvature.precision))
    knows_diagonal_only = isinstance(whole, DiagonalGaussian) and site.precision.ndim == 2
    erased = jnp.diagonal(site.precision) if knows_diagonal_only else site.precision
    shares = whole.shares(erased)
    rounding = 100 * jnp.finfo(posterior.dtype).eps
    keeps_width = (shares.max() >= 1 - rounding) | (shares.min() < -LARGEST_BEND)
    precision = whole.natural.precision - jnp.where(keeps_width, 0, erased)
    gradient = _gradient(whole, site)
    taken = jnp.ones((), posterior.dtype)
    if knows_diagonal_only:
        move, taken = _without_overshooting(precision, gradient, site.precision, model.gaussian_prior)
        natural = GaussianNatural(precision * (posterior.mean - move), precision)
    else:
        natural = GaussianNatural(_times(precision, posterior.mean) - gradient, precision)
    found = posterior.with_natural(natural)
    # The same draws in every call: a constant, which compilation keeps.
    noise = np.random.default_rng(0).standard_normal((DIAGNOSIS_DRAWS, posterior.dim))
    log_weights = _quadratic_log_weights(whole, site, jnp.asarray(noise, posterior.dtype))
    change = gaussian_kl(found, posterior)
    told = Told(shares.max(), shares.min(), keeps_width, taken, change, log_weights)
    return Step(found, natural, told)


def change_of_pull(
    before: AbstractGaussian, after: AbstractGaussian, model: AbstractModel, rows, weights, nodes: Nodes
) -> Float[Array, ""]:
    """KL, in nats, by which a step moves the belief if the given records' sites change with it.

    Those of the remaining records change too, which is the next term that one step leaves out.
    """
    old, new = (model.site(q.to_full(), rows, nodes, weights) for q in (before, after))
    return squared_length(after.to_full(), *jax.tree.map(jnp.subtract, new, old))


def squared_length(gaussian: FullGaussian, linear, precision) -> Float[Array, ""]:
    """KL, in nats and to second order, that a small change of natural parameters makes."""
    pull = (linear - precision @ gaussian.mean) @ gaussian.scale_tril
    spread = gaussian.scale_tril.T @ precision @ gaussian.scale_tril
    return 0.5 * (pull**2).sum() + 0.25 * (spread**2).sum()


def _without_overshooting(
    precision: Float[Array, " d"],
    gradient: Float[Array, " d"],
    erased: Float[Array, "d d"],
    prior: AbstractGaussian | None,
) -> tuple[Float[Array, " d"], Float[Array, ""]]:
    """Step of the mean of a diagonal belief, and the part of a full one that it is."""
    known = jnp.zeros_like(erased) if prior is None else prior.to_full().natural.precision
    # What remains of the evidence: this much on the diagonal, and elsewhere nobody knows.
    evidence = jnp.maximum(precision - jnp.diagonal(known), 0)

    def move(together):
        factor = jnp.linalg.cholesky(known + jnp.diag(together * evidence))
        return cho_solve((factor, True), gradient)

    alone = move(1.0)
    each = jnp.diagonal(erased) @ alone**2
    together = jnp.where(each > 0, jnp.maximum(alone @ erased @ alone / each, 1), 1)
    return move(together), 1 / together


def _quadratic_log_weights(gaussian: AbstractGaussian, site: GaussianNatural, noise):
    """Log 1/p(D_e|θ) at the coloured noise, from its expected gradient and curvature under q."""
    gradient = _gradient(gaussian, site)

    def one(noise):
        away = gaussian.colour(noise) - gaussian.mean
        return 0.5 * away @ _times(site.precision, away) - gradient @ away

    return jax.vmap(one)(noise)


def _gradient(gaussian: AbstractGaussian, site: GaussianNatural) -> Float[Array, " d"]:
    return site.linear - _times(site.precision, gaussian.mean)


def _times(precision, vector: Float[Array, " d"]) -> Float[Array, " d"]:
    return precision * vector if precision.ndim == 1 else precision @ vector
