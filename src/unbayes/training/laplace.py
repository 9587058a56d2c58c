"""Laplace's approximation: the mode of p(θ|D), and the curvature there."""

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Float
from scipy.optimize import minimize

from unbayes.ascent import SMALLEST_STEP, Bound, backtrack
from unbayes.posteriors import FullGaussian, GaussianNatural
from unbayes.records import weighted_sum

# Gain of a step of L-BFGS, relative to log p(θ, D), at which curvature takes over, and such steps at most.
ROUGH_GAIN, ROUGH_STEPS = 1e-5, 200
# A curvature is followed as long as a step leaves at most this share of its own gain to the next.
WORTHWHILE_SHARE = 0.25


class LaplaceFit(NamedTuple):
    """Laplace's approximation.

    Attributes
    ----------
    gaussian
        At the mode, its precision the curvature there.
    value
        What `Bound.value` says of it.
    stationarity
        KL, in nats, from the belief to its own full step; its precision is that of the step, so that this is
        half the squared length of a Newton step.
    passes
        Number of evaluations of the curvature.
    """

    gaussian: FullGaussian
    value: Float[Array, ""]
    stationarity: Float[Array, ""]
    passes: Array


def laplace(bound: Bound, start: Float[Array, " d"], passes: int, tolerance: float) -> LaplaceFit:
    """Find the mode: near it by gradients alone, then by Newton steps, several to a curvature.

    Parameters
    ----------
    bound
        With a single node, the mean.
    start
        Where to begin.
    passes
        Number of evaluations of the curvature, at most.
    tolerance
        Stationarity, in nats, at which to stop.
    """
    arrays, rest = eqx.partition(bound, eqx.is_array)
    arrays = jax.tree.map(jnp.asarray, arrays)

    def loss(theta):
        value, slope = _loss(arrays, theta, rest)
        return float(value), np.asarray(slope, np.float64)

    options = {"ftol": ROUGH_GAIN, "maxiter": ROUGH_STEPS}
    rough = minimize(loss, np.asarray(start), jac=True, method="L-BFGS-B", options=options)
    return _newton(bound, jnp.asarray(rough.x, start.dtype), passes, tolerance)


def _log_joint(bound: Bound, theta):
    each = bound.model.log_likelihood(theta, bound.evidence)
    return bound.model.log_prior(theta) + weighted_sum(each, bound.weights)


@partial(jax.jit, static_argnums=2)
def _loss(arrays, theta, rest):
    bound = eqx.combine(arrays, rest)
    return jax.value_and_grad(lambda theta: -_log_joint(bound, theta))(theta.astype(bound.model.dtype))


@eqx.filter_jit
def _newton(bound: Bound, start, passes: int, tolerance: float) -> LaplaceFit:
    def log_joint(mean):
        return _log_joint(bound, mean)

    def bend(state):
        """Evaluate the curvature, and follow it as long as that pays."""
        start, _, _, _, pass_number = state
        point = FullGaussian(start, jnp.zeros((start.size, start.size), start.dtype))
        linear, curvature = bound.target(point)
        gradient = linear - curvature @ start
        precision = positive(curvature)
        factor = jnp.linalg.cholesky(precision)
        direction = cho_solve((factor, True), gradient)
        gain = 0.5 * gradient @ direction

        def follow(state):
            mean, direction, gain, value, _ = state
            step, value = backtrack(lambda s: log_joint(mean + s * direction), value, jnp.ones_like(value))
            mean = mean + jnp.where(step >= SMALLEST_STEP, step, 0) * direction
            gradient = jax.grad(log_joint)(mean)
            direction = cho_solve((factor, True), gradient)
            left = 0.5 * gradient @ direction
            pays = (left > 0.1 * tolerance) & (left < WORTHWHILE_SHARE * gain)
            return mean, direction, left, value, pays

        first = (start, direction, gain, log_joint(start), gain > tolerance)
        mean, *_ = jax.lax.while_loop(lambda state: state[-1], follow, first)
        return mean, gain, precision, (mean != start).any(), pass_number + 1

    def unfinished(state):
        _, gain, _, moved, pass_number = state
        return (gain > tolerance) & moved & (pass_number < passes)

    matrix = jnp.eye(start.size, dtype=start.dtype)
    first = (start, jnp.asarray(jnp.inf, start.dtype), matrix, jnp.asarray(True), jnp.asarray(0))
    mean, gain, precision, _, taken = jax.lax.while_loop(unfinished, bend, first)
    gaussian = FullGaussian.from_natural(GaussianNatural(precision @ mean, precision))
    return LaplaceFit(gaussian, bound.value(gaussian), gain, taken)


def positive(matrix):
    """Positive-definite matrix with the same eigenvectors and absolute eigenvalues.

    The same matrix for a log-concave model; elsewhere, Newton's direction still leads uphill.
    """

    def repaired():
        values, vectors = jnp.linalg.eigh(matrix)
        floor = jnp.finfo(matrix.dtype).eps * jnp.abs(values).max()
        return (vectors * jnp.maximum(jnp.abs(values), floor)) @ vectors.T

    return jax.lax.cond(jnp.isfinite(jnp.linalg.cholesky(matrix)).all(), lambda: matrix, repaired)
