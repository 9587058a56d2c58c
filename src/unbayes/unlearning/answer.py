"""How the remaining records answer, once others are gone: the term after one natural-gradient step.

One step keeps the sites of the remaining records as they were at q(θ|D). A coreset C of them, with weights w,
tells how these sites move: the fixed point of

    η⁺ = η − Σ_{D_e} s_i(q) + Σ_C w_c [ s_c(q⁺) − s_c(q) ]

maximises the ELBO of the weighted coreset under the base η − Σ_{D_e} s_i(q) − Σ_C w_c s_c(q) in place of a
prior. That is a well-posed problem if the base is a proper belief. The weights are therefore calibrated: the
sum of the remaining records' precision is known, and the coreset must not exceed it in any direction.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cholesky, solve_triangular
from jaxtyping import Array, Float
from scipy.optimize import nnls

from unbayes.ascent import Bound, Climb, climb
from unbayes.models import AbstractModel
from unbayes.posteriors import AbstractGaussian, FullGaussian, GaussianNatural
from unbayes.quadrature import Nodes

# Pull of the weights towards those they were drawn with, beside the misfit of the precision.
RIDGE = 0.3
PASSES, TOLERANCE = 500, 1e-9


class Answer(NamedTuple):
    """What a coreset says.

    Attributes
    ----------
    posterior
        The belief at the fixed point.
    natural
        Its natural parameters, dense also where it is diagonal.
    coverage
        Share of the remaining records' precision that the calibrated coreset stands for.
    uncertainty
        Expected KL, in nats, that comes from having drawn this coreset and no other.
    """

    posterior: AbstractGaussian
    natural: GaussianNatural
    coverage: float
    uncertainty: float


def answer(
    posterior: AbstractGaussian,
    model: AbstractModel,
    one_step: GaussianNatural,
    coreset: Any,
    weights: Float[Array, " k"],
    nodes: Nodes,
) -> Answer:
    """Let the remaining records answer to one step.

    Parameters
    ----------
    posterior
        q(θ|D).
    one_step
        η − Σ_{D_e} s_i(q), dense.
    coreset, weights
        Some of the remaining records, as evidence, and how many each stands for; zero for erased ones.
    """
    view = _view(posterior, model, one_step, coreset, nodes)
    calibrated, coverage = _calibrate(view, np.asarray(weights, np.float64))
    calibrated = jnp.asarray(calibrated, posterior.dtype)
    end = _settle(posterior, model, one_step, coreset, calibrated, nodes)
    return Answer(
        posterior=end.gaussian,
        natural=end.target,
        coverage=coverage,
        uncertainty=float(_uncertainty(posterior, end.gaussian, model, coreset, calibrated, weights, nodes)),
    )


class _View(NamedTuple):
    """Precisions in coordinates in which one step leaves the identity."""

    each: Float[Array, "k d d"]
    remaining: Float[Array, "d d"]


@eqx.filter_jit
def _view(posterior, model: AbstractModel, one_step, coreset, nodes) -> _View:
    full = posterior.to_full()
    factor = cholesky(one_step.precision, lower=True)

    def whiten(precision):
        half = solve_triangular(factor, precision, lower=True)
        return solve_triangular(factor, half.mT, lower=True)

    prior = model.prior_site(full, nodes).precision
    sites = _each_site(full, model, coreset, nodes)
    return _View(jax.vmap(whiten)(sites.precision), whiten(one_step.precision - prior))


def _each_site(gaussian, model: AbstractModel, evidence, nodes) -> GaussianNatural:
    return jax.lax.map(
        lambda record: model.site(gaussian, jax.tree.map(lambda leaf: leaf[None], record), nodes),
        evidence,
        batch_size=32,
    )


def _calibrate(view: _View, drawn: np.ndarray) -> tuple[np.ndarray, float]:
    """Weights near those drawn whose precision fits, and nowhere exceeds, that of the remaining records."""
    each, remaining = np.asarray(view.each, np.float64), np.asarray(view.remaining, np.float64)
    present = drawn > 0
    weights = np.zeros_like(drawn)
    flat = each[present].reshape(present.sum(), -1)
    sizes = np.linalg.norm(flat, axis=1) + np.finfo(float).tiny
    unit = flat / sizes[:, None]
    # Least squares by its normal equations: as many unknowns as records, however many parameters.
    factor = np.linalg.cholesky(unit @ unit.T + RIDGE**2 * np.eye(len(unit)))
    right = np.linalg.solve(factor, unit @ remaining.ravel() + RIDGE**2 * drawn[present] * sizes)
    weights[present] = nnls(factor.T, right)[0] / sizes
    stood_for = np.tensordot(weights, each, 1)
    excess = _largest_share(stood_for, remaining)
    weights /= max(excess, 1)
    return weights, float(np.trace(stood_for) / max(excess, 1) / np.trace(remaining))


def _largest_share(part: np.ndarray, whole: np.ndarray) -> float:
    """Largest eigenvalue of `part` relative to `whole`, which may be singular to rounding."""
    values, vectors = np.linalg.eigh(whole)
    root = vectors / np.sqrt(np.maximum(values, 1e-9))
    return float(np.linalg.eigvalsh(root.T @ part @ root)[-1])


@eqx.filter_jit
def _settle(posterior, model: AbstractModel, one_step, coreset, weights, nodes) -> Climb:
    known = model.site(posterior.to_full(), coreset, nodes, weights)
    base = jax.tree.map(jnp.subtract, one_step, known)
    bound = Bound(model, coreset, nodes, weights, base)
    return climb(bound, posterior, PASSES, TOLERANCE)


@eqx.filter_jit
def _uncertainty(before, after, model: AbstractModel, coreset, weights, drawn, nodes):
    """½ E‖noise of the natural parameters‖² in the metric of KL, if records were drawn one by one."""
    old, new = (_each_site(q.to_full(), model, coreset, nodes) for q in (before, after))
    linear, precision = jax.tree.map(jnp.subtract, new, old)
    each = jax.vmap(lambda linear, precision: squared_length(after.to_full(), linear, precision))(
        linear, precision
    )
    return (weights**2 * jnp.where(drawn > 0, 1 - 1 / jnp.maximum(drawn, 1), 0)) @ each


def squared_length(gaussian: FullGaussian, linear, precision) -> Float[Array, ""]:
    """KL, in nats and to second order, that a small change of natural parameters makes."""
    pull = (linear - precision @ gaussian.mean) @ gaussian.scale_tril
    spread = gaussian.scale_tril.T @ precision @ gaussian.scale_tril
    return 0.5 * (pull**2).sum() + 0.25 * (spread**2).sum()
