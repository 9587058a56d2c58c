"""Laplace's approximation: the mode of p(θ|D), and the curvature there."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from unbayes.ascent import SMALLEST_STEP, Bound, backtrack
from unbayes.posteriors import FullGaussian
from unbayes.posteriors.gram import inverse_cholesky
from unbayes.records import weighted_sum

# Gain of a step of L-BFGS at which curvature takes over, as a share of the tolerance and of log p(θ, D), and
# such steps at most.
LEAST_GAIN, LEAST_RELATIVE_GAIN, LARGEST_STEPS = 0.1, 1e-9, 300
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


@eqx.filter_jit
def laplace(bound: Bound, start: Float[Array, " d"], passes: int, tolerance: float) -> LaplaceFit:
    """Find the mode: by gradients alone, which often is enough, then by Newton steps, several to a curvature.

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

    def log_joint(theta):
        each = bound.model.log_likelihood(theta, bound.evidence)
        return bound.model.log_prior(theta) + weighted_sum(each, bound.weights)

    start = _climb(log_joint, start, tolerance)

    def bend(state):
        """Evaluate the curvature, and follow it as long as that pays."""
        start, _, _, _, pass_number = state
        point = FullGaussian(start, jnp.zeros((start.size, start.size), start.dtype))
        linear, curvature = bound.target(point)
        gradient = linear - curvature @ start
        _, scale_tril = positive(curvature)
        direction = scale_tril @ (scale_tril.T @ gradient)
        gain = 0.5 * gradient @ direction

        def follow(state):
            mean, direction, gain, value, _ = state
            step, value = backtrack(lambda s: log_joint(mean + s * direction), value, jnp.ones_like(value))
            mean = mean + jnp.where(step >= SMALLEST_STEP, step, 0) * direction
            gradient = jax.grad(log_joint)(mean)
            direction = scale_tril @ (scale_tril.T @ gradient)
            left = 0.5 * gradient @ direction
            pays = (left > 0.1 * tolerance) & (left < WORTHWHILE_SHARE * gain)
            return mean, direction, left, value, pays

        first = (start, direction, gain, log_joint(start), gain > tolerance)
        mean, *_ = jax.lax.while_loop(lambda state: state[-1], follow, first)
        return mean, gain, scale_tril, (mean != start).any(), pass_number + 1

    def unfinished(state):
        _, gain, _, moved, pass_number = state
        return (gain > tolerance) & moved & (pass_number < passes)

    matrix = jnp.eye(start.size, dtype=start.dtype)
    first = (start, jnp.asarray(jnp.inf, start.dtype), matrix, jnp.asarray(True), jnp.asarray(0))
    mean, gain, scale_tril, _, taken = jax.lax.while_loop(unfinished, bend, first)
    gaussian = FullGaussian(mean, scale_tril)
    return LaplaceFit(gaussian, bound.value(gaussian), gain, taken)


def _climb(log_joint, start: Float[Array, " d"], tolerance: float) -> Float[Array, " d"]:
    """Where L-BFGS from `start` no longer gains much."""
    optimizer = optax.lbfgs(linesearch=optax.scale_by_zoom_linesearch(20, initial_guess_strategy="one"))

    def loss(theta):
        return -log_joint(theta)

    def advance(state):
        theta, memory, _, before, step = state
        value, slope = optax.value_and_grad_from_state(loss)(theta, state=memory)
        move, memory = optimizer.update(slope, memory, theta, value=value, grad=slope, value_fn=loss)
        return theta + move, memory, before, value, step + 1

    def unfinished(state):
        _, _, before, value, step = state
        enough = jnp.maximum(LEAST_GAIN * tolerance, LEAST_RELATIVE_GAIN * jnp.abs(value))
        return ((before - value > enough) | (step < 2)) & (step < LARGEST_STEPS)

    infinite = jnp.asarray(jnp.inf, start.dtype)
    first = (start, optimizer.init(start), infinite, infinite, jnp.asarray(0))
    # What ships with optax counts in integers of two widths.
    with jax.numpy_dtype_promotion("standard"):
        return jax.lax.while_loop(unfinished, advance, first)[0]


def positive(matrix: Float[Array, "d d"]) -> tuple[Float[Array, "d d"], Float[Array, "d d"]]:
    """Positive-definite matrix with the same eigenvectors and absolute eigenvalues, and root of its inverse.

    The same matrix for a log-concave model; elsewhere, Newton's direction still leads uphill. The root is
    lower-triangular: L with L Lᵀ the inverse.
    """
    root = inverse_cholesky(matrix)

    def repaired():
        values, vectors = jnp.linalg.eigh(matrix)
        floor = jnp.finfo(matrix.dtype).eps * jnp.abs(values).max()
        found = (vectors * jnp.maximum(jnp.abs(values), floor)) @ vectors.T
        return found, inverse_cholesky(found)

    return jax.lax.cond(jnp.isfinite(root).all(), lambda: (matrix, root), repaired)
