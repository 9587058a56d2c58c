"""Variational inference by natural gradients, for Gaussian families."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from unbayes.ascent import SMALLEST_STEP, Bound, Climb, attainable, backtrack, go_on, set_out
from unbayes.models import AbstractModel
from unbayes.posteriors import AbstractGaussian, DiagonalGaussian, FullGaussian
from unbayes.progress import AbstractProgress, Silent
from unbayes.quadrature import QUASI_RANDOM_NODES, centre_node
from unbayes.records import padded
from unbayes.training.base import AbstractTraining, Trained
from unbayes.training.laplace import laplace, positive

NEWTON_ITERATIONS = 100
# Stationarity, in nats, beyond which integrals in several dimensions are too coarse to tell.
COARSE_TOLERANCE = 1e-7


class NaturalGradientVI(AbstractTraining):
    """Maximise the ELBO, equation (1), by guarded natural-gradient steps from the mode of the posterior.

    In natural parameters a full step is η ← prior + Σ_i s_i(q), with s_i the site of record i. Each step is
    halved until the ELBO does not fall. Nothing about it is random.

    Parameters
    ----------
    iterations
        Number of steps, at most.
    tolerance
        Stationarity, in nats, at which to stop; 100 roundings of the posterior's type at least.
    nodes
        Number of quasi-random nodes, where quadrature is not possible, and bound on that of a grid in two
        dimensions. A single one is the mean: the result is Laplace's approximation, and its ELBO no bound.
    mixing
        Number of steps before it that each step learns from, by Anderson's mixing: a few of them save some
        30% of the passes of a log-concave model. Dense beliefs only.
    """

    iterations: int = 1000
    tolerance: float = 1e-12
    nodes: int = QUASI_RANDOM_NODES
    mixing: int = 0

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
        nodes = model.nodes(self.nodes)
        tolerance = self.tolerance if model.integral_dim == 1 else max(self.tolerance, COARSE_TOLERANCE)
        evidence, weights = padded(evidence, model.dtype)
        bound = Bound(model, evidence, nodes, weights)
        if len(nodes.weights) == 1 and isinstance(start, FullGaussian):
            return self._laplace(bound, start, tolerance)
        tolerance = attainable(tolerance, start.dtype)
        end, newton_steps = self._climb(bound, start, tolerance, progress or Silent())
        told = jax.device_get((end.value, end.stationarity, end.trace, end.passes, newton_steps))
        value, stationarity, trace, taken, before = told
        return Trained(
            posterior=end.gaussian,
            method=self,
            elbo=float(value),
            stationarity=float(stationarity),
            converged=bool(stationarity <= tolerance),
            trace=trace[:taken],
            passes=int(taken + before),
        )

    def _climb(
        self, bound: Bound, start: AbstractGaussian, tolerance: float, progress: AbstractProgress
    ) -> tuple[Climb, Array]:
        """In one compiled call, or in one per pass where somebody watches; and the number of Newton steps."""
        beginning = (bound, type(start), start.mean, self.iterations, tolerance, self.mixing)
        if progress.silent:
            return _ascend(*beginning)
        state, newton_steps = _set_out(*beginning)
        with progress.track("training by natural gradients", self.iterations) as advance:
            while state.moving(tolerance) and state.passes < self.iterations:
                state = _go_on(bound, state, state.passes + 1, tolerance)
                advance(1, f"{float(state.stationarity):.2g} nats to go")
        return state, newton_steps

    def _laplace(self, bound: Bound, start: FullGaussian, tolerance: float) -> Trained:
        tolerance = attainable(tolerance, start.dtype)
        found = laplace(bound, start.mean, self.iterations, tolerance)
        elbo, stationarity = float(found.value), float(found.stationarity)
        trace, passes = np.full(1, elbo), int(found.passes)
        return Trained(found.gaussian, self, elbo, stationarity, stationarity <= tolerance, trace, passes)


@eqx.filter_jit
def _ascend(
    bound: Bound, family, start, iterations: int, tolerance: float, mixing: int
) -> tuple[Climb, Array]:
    state, newton_steps = _set_out(bound, family, start, iterations, tolerance, mixing)
    end = go_on(bound, state, iterations, tolerance)
    return end._replace(history=None), newton_steps


@eqx.filter_jit
def _set_out(
    bound: Bound, family, start, iterations: int, tolerance: float, mixing: int
) -> tuple[Climb, Array]:
    first, newton_steps = _laplace(bound, family, start, tolerance)
    return set_out(bound, first, iterations, mixing), newton_steps


@eqx.filter_jit
def _go_on(bound: Bound, state: Climb, until: Array, tolerance: float) -> Climb:
    return go_on(bound, state, until, tolerance)


def _laplace(bound: Bound, family, start, tolerance: float) -> tuple[AbstractGaussian, Array]:
    """Gaussian of `family` at the mode of p(θ|D), found by guarded Newton steps, and their number.

    A natural-gradient step of a point mass is a Newton step, so sites serve here too.
    """
    model = bound.model
    enough = max(tolerance, float(jnp.finfo(model.dtype).eps) ** 0.5)
    bound = dataclasses.replace(bound, nodes=centre_node(model.integral_dim, model.dtype))

    def log_joint(mean):
        deviations, total = model.log_likelihood_at(mean[None], bound.evidence, bound.weights)
        return model.log_prior(mean) + total + deviations[0]

    def advance(state):
        mean, value, _, _, iteration = state
        point = FullGaussian(mean, jnp.zeros((mean.size, mean.size), mean.dtype))
        linear, curvature = bound.target(point)
        gradient = linear - curvature @ mean
        precision, root = positive(curvature)
        direction = root @ (root.T @ gradient)
        step, value = backtrack(lambda s: log_joint(mean + s * direction), value, jnp.ones_like(value))
        moved = (gradient @ direction > enough) & (step >= SMALLEST_STEP)
        return mean + jnp.where(moved, step, 0) * direction, value, (precision, root), moved, iteration + 1

    def unfinished(state):
        _, _, _, moved, iteration = state
        return moved & (iteration < NEWTON_ITERATIONS)

    identity = jnp.eye(start.size, dtype=start.dtype)
    first = (start, log_joint(start), (identity, identity), jnp.asarray(True), jnp.asarray(0))
    mean, _, (precision, root), _, passes = jax.lax.while_loop(unfinished, advance, first)
    if issubclass(family, DiagonalGaussian):
        return DiagonalGaussian(mean, jnp.diagonal(precision) ** -0.5), passes
    return FullGaussian(mean, root), passes
