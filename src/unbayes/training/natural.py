"""Variational inference by natural gradients, for Gaussian families."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Float, PRNGKeyArray

from unbayes.models import AbstractModel
from unbayes.posteriors import AbstractGaussian, DiagonalGaussian, FullGaussian, GaussianNatural, gaussian_kl
from unbayes.progress import AbstractProgress
from unbayes.quadrature import Nodes
from unbayes.training.base import AbstractTraining, Trained

SMALLEST_STEP = 2.0**-20
NEWTON_ITERATIONS = 100


class NaturalGradientVI(AbstractTraining):
    """Maximise the ELBO, equation (1), by guarded natural-gradient steps from the mode of the posterior.

    In natural parameters a full step is η ← prior + Σ_i s_i(q), with s_i the site of record i. Each step is
    halved until the ELBO does not fall. Deterministic where the predictor is a scalar; common random numbers
    elsewhere.

    Parameters
    ----------
    iterations
        Number of steps, at most.
    tolerance
        Stationarity, in nats, at which to stop; 100 roundings of the posterior's type at least.
    nodes
        Number of common random numbers, where quadrature is not possible.
    """

    iterations: int = 1000
    tolerance: float = 1e-12
    nodes: int = 256

    def run(
        self,
        model: AbstractModel,
        evidence: Any,
        start: Any,
        *,
        key: PRNGKeyArray,
        progress: AbstractProgress | None = None,
    ) -> Trained:
        """Train a member of `start`'s family; where it starts is the mode, not `start`."""
        if not isinstance(start, AbstractGaussian):
            raise TypeError(f"family must be Gaussian for natural gradients, got {type(start).__name__}")
        nodes = model.nodes(key, self.nodes)
        tolerance = max(self.tolerance, 100 * float(jnp.finfo(start.dtype).eps))
        climb = _climb(model, evidence, type(start), start.mean, nodes, self.iterations, tolerance)
        taken = int(climb.iteration)
        return Trained(
            posterior=climb.gaussian,
            method=self,
            elbo=float(climb.elbo),
            stationarity=float(climb.stationarity),
            converged=bool(climb.stationarity <= tolerance),
            trace=np.asarray(climb.trace)[:taken],
        )


def natural_step(
    model: AbstractModel, evidence: Any, gaussian: AbstractGaussian, nodes: Nodes
) -> tuple[GaussianNatural, Float[Array, ""]]:
    """Full natural-gradient step of the ELBO, and how far it goes: KL[q‖q after the step] in nats."""
    target = jax.tree.map(jnp.add, model.prior_site(gaussian, nodes), model.site(gaussian, evidence, nodes))
    gap = gaussian_kl(gaussian, gaussian.with_natural(target))
    return target, jnp.where(jnp.isfinite(gap), gap, jnp.inf)


class _Climb(NamedTuple):
    gaussian: AbstractGaussian
    elbo: Float[Array, ""]
    stationarity: Float[Array, ""]
    step: Float[Array, ""]
    iteration: Array
    trace: Float[Array, " iterations"]


@eqx.filter_jit
def _climb(model, evidence, family, start, nodes: Nodes, iterations: int, tolerance: float) -> _Climb:
    def elbo(gaussian):
        expected = model.expected_log_likelihood(gaussian, evidence, nodes)
        return expected + model.expected_log_prior(gaussian, nodes) + gaussian.entropy()

    def advance(climb: _Climb) -> _Climb:
        target, gap = natural_step(model, evidence, climb.gaussian, nodes)

        def at(step):
            return climb.gaussian.with_natural(
                jax.tree.map(lambda a, b: (1 - step) * a + step * b, climb.gaussian.natural, target)
            )

        step, value = _backtrack(lambda step: elbo(at(step)), climb.elbo, climb.step)
        moved = (gap > tolerance) & (step >= SMALLEST_STEP)
        return _Climb(
            gaussian=jax.tree.map(lambda new, old: jnp.where(moved, new, old), at(step), climb.gaussian),
            elbo=jnp.where(moved, value, climb.elbo),
            stationarity=gap,
            step=jnp.where(moved, jnp.minimum(2 * step, 1.0), 0.0),
            iteration=climb.iteration + 1,
            trace=climb.trace.at[climb.iteration].set(climb.elbo),
        )

    def unfinished(climb: _Climb):
        return (climb.step > 0) & (climb.iteration < iterations)

    first = _laplace(model, evidence, family, start, nodes)
    one = jnp.ones((), first.dtype)
    trace = jnp.full(iterations, jnp.nan, first.dtype)
    return jax.lax.while_loop(
        unfinished, advance, _Climb(first, elbo(first), jnp.inf * one, one, jnp.asarray(0), trace)
    )


def _laplace(model, evidence, family, start, nodes: Nodes) -> AbstractGaussian:
    """Gaussian of `family` at the mode of p(θ|D), found by guarded Newton steps.

    A natural-gradient step of a point mass is a Newton step, so sites serve here too.
    """

    def log_joint(mean):
        deviations, total = model.log_likelihood_at(mean[None], evidence)
        return model.log_prior(mean) + total + deviations[0]

    def advance(state):
        mean, value, _, _, iteration = state
        point = FullGaussian(mean, jnp.zeros((mean.size, mean.size), mean.dtype))
        linear, curvature = jax.tree.map(
            jnp.add, model.prior_site(point, nodes), model.site(point, evidence, nodes)
        )
        gradient = linear - curvature @ mean
        precision = _positive(curvature)
        direction = cho_solve((jnp.linalg.cholesky(precision), True), gradient)
        step, value = _backtrack(lambda s: log_joint(mean + s * direction), value, jnp.ones_like(value))
        moved = (gradient @ direction > jnp.finfo(mean.dtype).eps ** 0.5) & (step >= SMALLEST_STEP)
        return mean + jnp.where(moved, step, 0) * direction, value, precision, moved, iteration + 1

    def unfinished(state):
        _, _, _, moved, iteration = state
        return moved & (iteration < NEWTON_ITERATIONS)

    identity = jnp.eye(start.size, dtype=start.dtype)
    first = (start, log_joint(start), identity, jnp.asarray(True), 0)
    mean, _, precision, _, _ = jax.lax.while_loop(unfinished, advance, first)
    if issubclass(family, DiagonalGaussian):
        return DiagonalGaussian(mean, jnp.diagonal(precision) ** -0.5)
    return FullGaussian.from_natural(GaussianNatural(precision @ mean, precision))


def _backtrack(value_at, current, step):
    """Halve `step` until the value is finite and no lower than `current`, to rounding."""
    slack = 16 * jnp.finfo(current.dtype).eps * (1 + jnp.abs(current))

    def unacceptable(state):
        step, value = state
        return ~(value >= current - slack) & (step >= SMALLEST_STEP)

    def halve(state):
        step = state[0] / 2
        return step, value_at(step)

    return jax.lax.while_loop(unacceptable, halve, (2 * step, -jnp.inf * jnp.ones_like(current)))


def _positive(matrix):
    """Positive-definite matrix with the same eigenvectors and absolute eigenvalues.

    The same matrix for a log-concave model; elsewhere, Newton's direction still leads uphill.
    """
    values, vectors = jnp.linalg.eigh(matrix)
    floor = jnp.finfo(matrix.dtype).eps * jnp.abs(values).max()
    return (vectors * jnp.maximum(jnp.abs(values), floor)) @ vectors.T
