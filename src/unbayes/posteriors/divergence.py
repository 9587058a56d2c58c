"""Closed-form divergences."""

import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from unbayes._numerics.linalg import inverse_triangular
from unbayes.posteriors.gaussian import AbstractGaussian, DiagonalGaussian, FullGaussian
from unbayes.posteriors.natural import GaussianNatural


def gaussian_kl(p: AbstractGaussian, q: AbstractGaussian) -> Float[Array, ""]:
    """KL[p‖q] in closed form, for any two Gaussians."""
    if p.dim != q.dim:
        raise ValueError(f"p and q must have the same length, got {p.dim} and {q.dim}")
    mahalanobis = (q.whiten(p.mean) ** 2).sum()
    if isinstance(p, DiagonalGaussian) and isinstance(q, DiagonalGaussian):
        trace = jnp.exp(2 * (p.log_scale - q.log_scale)).sum()
    elif isinstance(q, DiagonalGaussian):
        trace = (p.variance / q.variance).sum()
    else:
        root, other = p.to_full().scale_tril, q.to_full().scale_tril
        trace = ((inverse_triangular(other) @ root) ** 2).sum()
    return 0.5 * (trace + mahalanobis - p.dim) + q.log_det_scale - p.log_det_scale


def kl_to_natural(p: FullGaussian, q: GaussianNatural) -> Float[Array, ""]:
    """KL[p‖q] for q in natural parameters; NaN where its precision is indefinite."""
    factor = jnp.linalg.cholesky(q.precision.matrix)
    away = solve_triangular(factor, q.linear, lower=True) - factor.T @ p.mean
    trace = ((factor.T @ p.scale_tril) ** 2).sum()
    log_det_factor = jnp.log(jnp.diagonal(factor)).sum()
    return 0.5 * (trace + away @ away - p.dim) - log_det_factor - p.log_det_scale


def small_change(
    root: Float[Array, "d d"], gradient: Float[Array, " d"], precision: Float[Array, "d d"]
) -> Float[Array, ""]:
    """KL, in nats and to second order, that a small change of natural parameters makes.

    Parameters
    ----------
    root
        L of the belief N(m, L Lᵀ) that changes.
    gradient, precision
        The change: of the gradient at m of its log-density, and of its precision.
    """
    pull, spread = gradient @ root, root.T @ precision @ root
    return 0.5 * (pull**2).sum() + 0.25 * (spread**2).sum()
