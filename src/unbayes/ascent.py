"""Guarded natural-gradient ascent of the ELBO of a Gaussian belief."""

from typing import Any, Generic, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from unbayes.models import AbstractModel
from unbayes.posteriors import AbstractGaussian, GaussianNatural, gaussian_kl
from unbayes.quadrature import Nodes

SMALLEST_STEP = 2.0**-20

Gaussian = TypeVar("Gaussian", bound=AbstractGaussian)


class Bound(eqx.Module):
    """ELBO, equation (1), of records that may carry weights, as a function of a Gaussian belief.

    Attributes
    ----------
    model, evidence
        Prior and likelihood, and the records as `model.encode` returned them.
    nodes
        Of the integrals; not random where the predictor is a scalar.
    weights
        How often each record counts, shape (n,); None for once.
    base
        Natural parameters that stand in for the prior; None for the model's own prior.
    """

    model: AbstractModel
    evidence: Any
    nodes: Nodes
    weights: Float[Array, " n"] | None = None
    base: GaussianNatural | None = None

    def value(self, gaussian: AbstractGaussian) -> Float[Array, ""]:
        """The bound, up to the constant of `base`."""
        expected = self.model.expected_log_likelihood(gaussian, self.evidence, self.nodes, self.weights)
        if self.base is None:
            return expected + self.model.expected_log_prior(gaussian, self.nodes) + gaussian.entropy()
        return expected + gaussian.expected_log_factor(self.base) + gaussian.entropy()

    def target(self, gaussian: AbstractGaussian) -> GaussianNatural:
        """Natural parameters after a full natural-gradient step, dense where that is affordable.

        A diagonal belief takes the Gaussian that is nearest to the dense ones, `AbstractGaussian.toward`.
        """
        around = gaussian.to_full() if self.model.has_dense_sites else gaussian
        base = self.model.prior_site(around, self.nodes) if self.base is None else self.base
        return jax.tree.map(
            jnp.add, base, self.model.site(around, self.evidence, self.nodes, self.weights)
        )

    def gap(self, gaussian: AbstractGaussian, target: GaussianNatural) -> Float[Array, ""]:
        """How far a full step goes: KL[q‖q after the step] in nats, zero where the bound is stationary."""
        gap = gaussian_kl(gaussian, gaussian.toward(target, 1.0))
        return jnp.where(jnp.isfinite(gap), gap, jnp.inf)


class Climb(NamedTuple, Generic[Gaussian]):
    """State of an ascent.

    Attributes
    ----------
    gaussian
        The belief.
    value
        The bound at it.
    stationarity
        KL, in nats, from the belief to its own full step.
    step
        Length of the next step, at most one; zero where none goes uphill.
    iteration
        Number of steps taken.
    trace
        The bound before every step, NaN where there was none.
    """

    gaussian: Gaussian
    value: Float[Array, ""]
    stationarity: Float[Array, ""]
    step: Float[Array, ""]
    iteration: Array
    trace: Float[Array, " iterations"]


def climb(bound: Bound, start: Gaussian, iterations: int, tolerance: float) -> Climb[Gaussian]:
    """Take natural-gradient steps, each halved until the bound does not fall, until it is stationary.

    Parameters
    ----------
    bound
        What to maximise.
    start
        Where to begin.
    iterations
        Number of steps, at most.
    tolerance
        Stationarity, in nats, at which to stop, where that is `attainable`.
    """
    tolerance = attainable(tolerance, start.dtype)

    def advance(state: Climb) -> Climb:
        target = bound.target(state.gaussian)
        gap = bound.gap(state.gaussian, target)
        step, value = backtrack(
            lambda step: bound.value(state.gaussian.toward(target, step)), state.value, state.step
        )
        moved = (gap > tolerance) & (step >= SMALLEST_STEP)
        gaussian = jax.tree.map(
            lambda new, old: jnp.where(moved, new, old), state.gaussian.toward(target, step), state.gaussian
        )
        return Climb(
            gaussian,
            value=jnp.where(moved, value, state.value),
            stationarity=gap,
            step=jnp.where(moved, jnp.minimum(2 * step, 1.0), 0.0),
            iteration=state.iteration + 1,
            trace=state.trace.at[state.iteration].set(state.value),
        )

    def unfinished(state: Climb):
        return (state.step > 0) & (state.iteration < iterations)

    one = jnp.ones((), start.dtype)
    trace = jnp.full(iterations, jnp.nan, start.dtype)
    first = Climb(start, bound.value(start), jnp.inf * one, one, jnp.asarray(0), trace)
    return jax.lax.while_loop(unfinished, advance, first)


def attainable(tolerance: float, dtype: jnp.dtype) -> float:
    """The tolerance, or 100 roundings of the floating-point type where that is more."""
    return max(tolerance, 100 * float(jnp.finfo(dtype).eps))


def backtrack(value_at, current: Float[Array, ""], step: Float[Array, ""]):
    """Halve `step` until the value is finite and no lower than `current`, to rounding."""
    slack = 16 * jnp.finfo(current.dtype).eps * (1 + jnp.abs(current))

    def unacceptable(state):
        step, value = state
        return ~(value >= current - slack) & (step >= SMALLEST_STEP)

    def halve(state):
        step = state[0] / 2
        return step, value_at(step)

    return jax.lax.while_loop(unacceptable, halve, (2 * step, -jnp.inf * jnp.ones_like(current)))
