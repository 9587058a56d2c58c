"""The natural-gradient step where few records are erased beside many parameters.

The erased records' precision P then has a rank k < d, and P = RᵀR with R of shape (k, d). With Σ = LLᵀ and
F = (RL)ᵀ, in coordinates in which the belief is standard normal,

- the shares removed are the eigenvalues of FᵀF, shape (k, k), and d − k zeros;
- the covariance left is (Σ⁻¹ − P)⁻¹ = L(I + VVᵀ)Lᵀ, with V = FK⁻ᵀ and K the Cholesky factor of I − FᵀF,

so that O(d²k) operations do where `natural_gradient_step` takes O(d³), and the result is the same. R comes
from the sum P itself: statistics hold no more than they do for any other number of records.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from unbayes._numerics.linalg import cholesky_of_each, inverse_triangular
from unbayes._numerics.low_rank import largest_eigenpair, low_rank_root, probe, updated_factor
from unbayes._numerics.records import round_number
from unbayes.models import AbstractModel
from unbayes.posteriors import AbstractGaussian, DensePrecision, FullGaussian
from unbayes.unlearning.methods.step import (
    Sites,
    StepInfo,
    allowed_part,
    answering,
    are_no_shares,
    evidence_beyond,
)

# Parameters from which the step is taken this way: below, dense matrices cost milliseconds.
LEAST_DIM = 256
# Rank of the erased records' precision, as a share of d, up to which it pays: the root is found row by row.
LARGEST_RANK_SHARE = 0.5
# What a root may leave of the precision along some direction, in square roots of a rounding.
LARGEST_REMAINDER = 1.0


class FewRecordsStep(NamedTuple):
    """One step, and what it tells; without the natural parameters, which take O(d³)."""

    posterior: FullGaussian
    info: StepInfo


def few_records_step(
    posterior: AbstractGaussian, model: AbstractModel, sites: Sites, records: int
) -> FewRecordsStep | None:
    """Take the sites of few records of a log-concave model away; None where that is no shorter way.

    Parameters
    ----------
    posterior, model, sites
        As for `natural_gradient_step`.
    records
        Number of records that `sites` sum over.
    """
    # A round number, so that one compiled step serves many numbers of records.
    rank = round_number(records) * model.site_rank
    is_low = posterior.dim >= LEAST_DIM and rank <= LARGEST_RANK_SHARE * posterior.dim
    is_plain = isinstance(sites.natural.precision, DensePrecision) and sites.derivatives is None
    if not (isinstance(posterior, FullGaussian) and model.is_log_concave and is_low and is_plain):
        return None
    step, is_root = _step(posterior, model, sites, rank)
    return FewRecordsStep(step.posterior, jax.device_get(step.info)) if is_root else None


@eqx.filter_jit
def _step(
    posterior: FullGaussian, model: AbstractModel, sites: Sites, rank: int
) -> tuple[FewRecordsStep, Array]:
    """The step, and whether the erased records' precision is of that rank and has no negative part."""
    factor, site, prior = posterior.scale_tril, sites.natural, model.gaussian_prior
    root = low_rank_root(site.precision.matrix, rank)
    erased = (root @ factor).T
    products = erased.T @ erased
    share, direction = largest_eigenpair(lambda v: products @ v, jnp.zeros_like(products[0]))
    # The extremes: none along directions that the records say nothing of.
    shares = jnp.stack([jnp.zeros_like(share), share])
    keeps_width = are_no_shares(shares)
    taken = jnp.where(keeps_width, allowed_part(shares), 1).astype(posterior.dtype)
    identity = jnp.eye(rank, dtype=posterior.dtype)
    kept = jnp.where(keeps_width, identity, cholesky_of_each((identity - products)[None])[0])
    change = jnp.where(keeps_width, 0, erased @ inverse_triangular(kept).T)
    pull = taken * (site.gradient_at(posterior.mean) @ factor)
    move = -(pull + change @ (pull @ change))
    found = FullGaussian(posterior.mean + factor @ move, updated_factor(factor, change))
    evidence_left = None
    if prior is not None:
        known = prior.natural.precision

        def without(direction):
            return (known @ (factor @ direction)) @ factor + erased @ (direction @ erased)

        evidence_left = 1 - largest_eigenpair(without, erased @ direction)[0]
    held = move @ move - jnp.where(keeps_width, 0, ((move @ erased) ** 2).sum())
    wider = (change**2).sum() + 2 * jnp.log(jnp.diagonal(kept)).sum()
    info = StepInfo(
        share=share,
        least_share=shares[0],
        erased_evidence=jnp.trace(products),
        evidence=evidence_beyond(posterior, prior),
        keeps_width=keeps_width,
        taken=taken,
        change=0.5 * (wider + move @ move),
        answering=answering(factor @ move, held, prior),
        inflation=jnp.ones(()),
        evidence_left=evidence_left,
        second_term=None,
    )
    across = probe(posterior.dim, posterior.dtype)
    whole = site.precision @ across
    limit = LARGEST_REMAINDER * jnp.finfo(posterior.dtype).eps ** 0.5 * jnp.linalg.norm(whole)
    is_root = jnp.linalg.norm(whole - (root @ across) @ root) <= limit
    return FewRecordsStep(found, info), is_root
