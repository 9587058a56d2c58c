"""The mode of p(θ|D) and the curvature there: by L-BFGS, and by guarded Newton steps."""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from unbayes._numerics.linalg import inverse_cholesky
from unbayes._numerics.quadrature import centre_node
from unbayes._numerics.records import weighted_sum
from unbayes.inference.ascent import SMALLEST_STEP, Bound, backtrack
from unbayes.posteriors import DiagonalGaussian, FullGaussian, GaussianNatural

# Gain of a step of L-BFGS at which Newton steps take over, as a share of the tolerance and of log p(θ, D),
# and such steps at most.
LEAST_GAIN, LEAST_RELATIVE_GAIN, LARGEST_STEPS = 0.1, 1e-9, 300
# A curvature is used again as long as a step with it leaves at most this share of its own gain to the next.
WORTHWHILE_SHARE = 0.25
# Newton steps, at most, that look for where variational training starts.
NEWTON_ITERATIONS = 100
# Nats from the mode that will do where curvatures are dear: training itself moves further.
WIDE_GAIN = 1e-2


class NewtonStep(NamedTuple):
    """A Newton step of log p(θ, D) from some θ.

    Attributes
    ----------
    precision
        Negative second derivatives, made positive definite, shape (d, d).
    scale_tril
        Lower-triangular root of its inverse, shape (d, d).
    direction
        The step, shape (d,).
    gain
        What the step would gain if log p(θ, D) were quadratic, in nats.
    """

    precision: Float[Array, "d d"]
    scale_tril: Float[Array, "d d"]
    direction: Float[Array, " d"]
    gain: Float[Array, ""]


def newton_step(bound: Bound, theta: Float[Array, " d"]) -> NewtonStep:
    """Newton step from θ: the natural-gradient step of a point mass, so that sites serve here too.

    `bound` has a single node, the mean.
    """
    return newton_step_to(bound.target(point_mass(theta)), theta)


def point_mass(theta: Float[Array, " d"]) -> FullGaussian:
    """The belief that is sure of θ."""
    return FullGaussian(theta, jnp.zeros((theta.size, theta.size), theta.dtype))


def newton_step_to(target: GaussianNatural, theta: Float[Array, " d"]) -> NewtonStep:
    """Newton step, of which `target` is the natural-gradient step of a point mass at θ."""
    precision, scale_tril = positive_definite(target.precision.matrix)
    gradient = target.gradient_at(theta)
    direction = scale_tril @ (scale_tril.T @ gradient)
    return NewtonStep(precision, scale_tril, direction, 0.5 * gradient @ direction)


class Mode(NamedTuple):
    """Where p(θ|D) is largest, and the curvature on the way there.

    Attributes
    ----------
    theta
        The mode, shape (d,).
    precision, scale_tril
        Negative second derivatives at the last step, or their diagonal alone, and a root of their inverse,
        shapes (d, d).
    passes
        Number of Newton steps.
    """

    theta: Float[Array, " d"]
    precision: Float[Array, "d d"]
    scale_tril: Float[Array, "d d"]
    passes: Array


def find_mode(bound: Bound, start: Float[Array, " d"], tolerance: float) -> Mode:
    """Mode of p(θ|D), good enough to start variational training from.

    By guarded Newton steps; where curvatures are dear, by L-BFGS, with the diagonal of the curvature alone.
    Training then takes its first dense curvature under a belief that has some width, and none at the mode.
    """
    model = bound.model
    bound = dataclasses.replace(bound, nodes=centre_node(model.integral_dim, model.dtype))

    def log_joint(theta):
        deviations, total = model.log_likelihood_at(theta[None], bound.evidence, bound.weights)
        return model.log_prior(theta) + total + deviations[0]

    if bound.is_wide:
        theta = _maximise_by_lbfgs(log_joint, start, max(tolerance, WIDE_GAIN))
        diagonal = _curvature_of_each(bound, theta)
        return Mode(theta, jnp.diag(diagonal), jnp.diag(diagonal**-0.5), jnp.asarray(0))
    enough = max(tolerance, float(jnp.finfo(model.dtype).eps) ** 0.5)

    def advance(state):
        mode, value, _ = state
        newton = newton_step(bound, mode.theta)
        step, value = backtrack(
            lambda s: log_joint(mode.theta + s * newton.direction), value, jnp.ones_like(value)
        )
        moved = (2 * newton.gain > enough) & (step >= SMALLEST_STEP)
        theta = mode.theta + jnp.where(moved, step, 0) * newton.direction
        return Mode(theta, newton.precision, newton.scale_tril, mode.passes + 1), value, moved

    def unfinished(state):
        mode, _, moved = state
        return moved & (mode.passes < NEWTON_ITERATIONS)

    identity = jnp.eye(start.size, dtype=start.dtype)
    first = (Mode(start, identity, identity, jnp.asarray(0)), log_joint(start), jnp.asarray(True))
    return jax.lax.while_loop(unfinished, advance, first)[0]


def _curvature_of_each(bound: Bound, theta: Float[Array, " d"]) -> Float[Array, " d"]:
    """Negative second derivative of log p(θ, D) in each parameter, of a log-concave model."""
    point = DiagonalGaussian(theta, jnp.ones_like(theta))
    prior = bound.model.prior_site(point, bound.nodes)
    site = bound.model.site(point, bound.evidence, bound.nodes, bound.weights)
    return (prior + site).precision.diagonal


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

    start = _maximise_by_lbfgs(log_joint, start, tolerance)

    def advance(state):
        """Evaluate the curvature, and take steps with it as long as they pay."""
        start, _, _, _, pass_number = state
        newton = newton_step(bound, start)
        scale_tril = newton.scale_tril

        def step_again(state):
            mean, direction, gain, value, _ = state
            step, value = backtrack(lambda s: log_joint(mean + s * direction), value, jnp.ones_like(value))
            mean = mean + jnp.where(step >= SMALLEST_STEP, step, 0) * direction
            gradient = jax.grad(log_joint)(mean)
            direction = scale_tril @ (scale_tril.T @ gradient)
            left = 0.5 * gradient @ direction
            pays = (left > 0.1 * tolerance) & (left < WORTHWHILE_SHARE * gain)
            return mean, direction, left, value, pays

        first = (start, newton.direction, newton.gain, log_joint(start), newton.gain > tolerance)
        mean, *_ = jax.lax.while_loop(lambda state: state[-1], step_again, first)
        return mean, newton.gain, scale_tril, (mean != start).any(), pass_number + 1

    def unfinished(state):
        _, gain, _, moved, pass_number = state
        return (gain > tolerance) & moved & (pass_number < passes)

    matrix = jnp.eye(start.size, dtype=start.dtype)
    first = (start, jnp.asarray(jnp.inf, start.dtype), matrix, jnp.asarray(True), jnp.asarray(0))
    mean, gain, scale_tril, _, taken = jax.lax.while_loop(unfinished, advance, first)
    gaussian = FullGaussian(mean, scale_tril)
    return LaplaceFit(gaussian, bound.value(gaussian), gain, taken)


def _maximise_by_lbfgs(log_joint, start: Float[Array, " d"], tolerance: float) -> Float[Array, " d"]:
    """Where L-BFGS from `start` no longer gains much."""
    # Imported here: optax takes a while, and few need this.
    import optax

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


def positive_definite(
    matrix: Float[Array, "d d"],
) -> tuple[Float[Array, "d d"], Float[Array, "d d"]]:
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
