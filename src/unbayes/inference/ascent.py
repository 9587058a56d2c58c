"""Guarded natural-gradient ascent of the ELBO of a Gaussian belief."""

import dataclasses
from typing import Any, Generic, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from unbayes._numerics.quadrature import Nodes
from unbayes.inference.mixing import History
from unbayes.models import AbstractModel
from unbayes.posteriors import (
    AbstractGaussian,
    AbstractPrecision,
    FullGaussian,
    GaussianNatural,
    gaussian_kl,
    kl_to_natural,
)

SMALLEST_STEP = 2.0**-12
# Parameters of a log-concave model from which a curvature costs as much as tens of gradients.
LEAST_WIDE_DIM = 256

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
    prior_precision
        Of the model's own prior, where it is Gaussian and that was computed in advance.
    """

    model: AbstractModel
    evidence: Any
    nodes: Nodes
    weights: Float[Array, " n"] | None = None
    base: GaussianNatural | None = None
    prior_precision: AbstractPrecision | None = None

    @property
    def is_wide(self) -> bool:
        """Whether it pays to have fewer curvatures, for some more work on each."""
        return self.model.is_log_concave and self.model.dim >= LEAST_WIDE_DIM

    def prepared(self) -> "Bound":
        """The same, with what need not be computed in every pass."""
        prior = self.model.gaussian_prior
        if self.base is not None or prior is None:
            return self
        return dataclasses.replace(self, prior_precision=prior.natural.precision)

    def value(self, gaussian: AbstractGaussian) -> Float[Array, ""]:
        """The bound, up to the constant of `base`."""
        expected = self.model.expected_log_likelihood(gaussian, self.evidence, self.nodes, self.weights)
        return expected + self._base_value(gaussian)

    def target(self, gaussian: AbstractGaussian) -> GaussianNatural:
        """Natural parameters after a full natural-gradient step, dense where that is affordable.

        A diagonal belief takes the Gaussian that is nearest to the dense ones, `AbstractGaussian.toward`.
        """
        full = around(gaussian, self.model)
        site = self.model.site(full, self.evidence, self.nodes, self.weights)
        return self._base_site(full) + site

    def value_and_target(self, gaussian: AbstractGaussian) -> tuple[Float[Array, ""], GaussianNatural]:
        """Both, which a model may give in hardly more time than either."""
        full = around(gaussian, self.model)
        expected, site = self.model.expected_log_likelihood_and_site(
            full, self.evidence, self.nodes, self.weights
        )
        return expected + self._base_value(gaussian), self._base_site(full) + site

    def base_value_and_site(self, gaussian: AbstractGaussian) -> tuple[Float[Array, ""], GaussianNatural]:
        """Both without any record."""
        return self._base_value(gaussian), self._base_site(around(gaussian, self.model))

    def _base_value(self, gaussian: AbstractGaussian) -> Float[Array, ""]:
        prior = self.model.gaussian_prior
        if self.base is not None:
            expected = self.base.linear @ gaussian.mean
            expected -= 0.5 * gaussian.expected_quadratic(self.base.precision)
        elif prior is None or self.prior_precision is None:
            expected = self.model.expected_log_prior(gaussian, self.nodes)
        else:
            away = gaussian.expected_quadratic(self.prior_precision, prior.mean)
            expected = 0.5 * (prior.dim - away) - prior.entropy()
        return expected + gaussian.entropy()

    def _base_site(self, full: AbstractGaussian) -> GaussianNatural:
        prior = self.model.gaussian_prior
        if self.base is not None:
            return self.base
        if prior is None or self.prior_precision is None:
            return self.model.prior_site(full, self.nodes)
        precision = self.prior_precision
        return full.site(precision @ (prior.mean - full.mean), precision)


def around(gaussian: AbstractGaussian, model: AbstractModel) -> AbstractGaussian:
    """The belief at which sites are taken: its dense form, where dense sites are affordable."""
    return gaussian.to_full() if model.has_dense_sites else gaussian


def step_length(gaussian: AbstractGaussian, target: GaussianNatural) -> Float[Array, ""]:
    """KL[q‖q after a full step to `target`], in nats: zero where the bound is stationary."""
    if isinstance(gaussian, FullGaussian):
        length = kl_to_natural(gaussian, target)
    else:
        length = gaussian_kl(gaussian, gaussian.toward(target, 1.0))
    return jnp.where(jnp.isfinite(length), length, jnp.inf)


@eqx.filter_jit
def stationarity(gaussian: AbstractGaussian, model: AbstractModel, evidence: Any) -> Float[Array, ""]:
    """KL, in nats, from a belief to its own full natural-gradient step on all records.

    Zero where training has converged, which unlearning relies on.
    """
    bound = Bound(model, evidence, model.nodes())
    return step_length(gaussian, bound.target(gaussian))


class AscentState(NamedTuple, Generic[Gaussian]):
    """State of an ascent.

    Attributes
    ----------
    gaussian
        The best belief so far.
    value
        The bound at it.
    target
        Natural parameters of a full step from it.
    stationarity
        KL, in nats, from the belief to its own full step.
    step
        Share of that step to try next.
    passes
        Number of times that the bound was evaluated.
    trace
        The bound at the best belief after every pass, NaN where there was none.
    history
        The steps that led here, where they are mixed.
    """

    gaussian: Gaussian
    value: Float[Array, ""]
    target: GaussianNatural
    stationarity: Float[Array, ""]
    step: Float[Array, ""]
    passes: Array
    trace: Float[Array, " passes"]
    history: History | None = None

    def moving(self, tolerance: float) -> Array:
        """Whether there is a step to take, and reason to."""
        return (self.stationarity > tolerance) & ((self.step >= SMALLEST_STEP) | (self.passes == 0))


def ascend(bound: Bound, start: Gaussian, passes: int, tolerance: float) -> AscentState[Gaussian]:
    """Take natural-gradient steps, each halved until it makes things better, until the bound is stationary.

    Parameters
    ----------
    bound
        What to maximise.
    start
        Where to begin.
    passes
        Number of times to evaluate the bound and its step, at most.
    tolerance
        Stationarity, in nats, at which to stop, where that is `attainable`.
    """
    return resume(bound, init(bound.model, start, passes), passes, tolerance)


def init(model: AbstractModel, start: Gaussian, passes: int, mixing: int = 0) -> AscentState[Gaussian]:
    """State of an ascent of at most `passes` before its first one, a step of length zero from `start`.

    Where `mixing` is not zero and the belief is dense, steps are mixed with so many before them.
    """
    natural = around(start, model).natural
    one = jnp.ones((), start.dtype)
    trace = jnp.full(passes, jnp.nan, start.dtype)
    history = History.begin(natural, mixing) if mixing and isinstance(start, FullGaussian) else None
    return AscentState(start, -jnp.inf * one, natural, jnp.inf * one, 0 * one, jnp.asarray(0), trace, history)


def resume(
    bound: Bound, state: AscentState[Gaussian], until: int | Array, tolerance: float
) -> AscentState[Gaussian]:
    """Continue an ascent until that many passes were made, or to its end; as `ascend` does."""
    tolerance = attainable(tolerance, state.gaussian.dtype)
    bound = bound.prepared()

    def advance(state: AscentState) -> AscentState:
        candidate, natural = proposal(state)
        return after(state, candidate, natural, *bound.value_and_target(candidate))

    return jax.lax.while_loop(lambda s: s.moving(tolerance) & (s.passes < until), advance, state)


def proposal(state: AscentState) -> tuple[AbstractGaussian, GaussianNatural]:
    """Belief to look at next, and its natural parameters or, where steps are not mixed, its target."""
    if state.history is None:
        return state.gaussian.toward(state.target, state.step), state.target
    natural = state.history.propose(state.gaussian, state.target, state.step)
    return FullGaussian.from_natural(natural), natural


def after(
    state: AscentState,
    candidate: AbstractGaussian,
    natural: GaussianNatural,
    value: Float[Array, ""],
    target: GaussianNatural,
) -> AscentState:
    """State once the bound and its full step are known at the belief that was proposed."""
    gap = step_length(candidate, target)
    better = is_better(value, gap, state.value, state.stationarity, candidate.dtype)
    step = next_step(state.step, better, gap, state.stationarity)
    history = state.history
    if history is None:
        step = jnp.where(better, _secant_step(state, candidate, target, step), step)
    else:
        # What makes nothing better after other steps is no reason to shorten the next, a plain one.
        step = jnp.where(~better & (history.taken > 0), state.step, step)
        history = history.after(natural, state.target, better, counts=state.step > 0)
    best = (candidate, value, target, gap)
    kept = (state.gaussian, state.value, state.target, state.stationarity)
    best = jax.tree.map(lambda new, old: jnp.where(better, new, old), best, kept)
    return AscentState(
        *best,
        step=step,
        passes=state.passes + 1,
        trace=state.trace.at[state.passes].set(best[1]),
        history=history,
    )


def _secant_step(state: AscentState, candidate: AbstractGaussian, target: GaussianNatural, otherwise):
    """Step that the change of the gradient in the mean asks for, as Barzilai and Borwein choose it.

    Full steps overshoot and swing to and fro where a wider belief finds less curvature; this one damps that.
    `otherwise` where the gradients tell nothing.
    """
    before, after = state.target.gradient_at(state.gaussian.mean), target.gradient_at(candidate.mean)
    change = (before - after) * candidate.variance**0.5
    secant = state.step * (before * candidate.variance**0.5) @ change / (change @ change)
    return jnp.where((state.step > 0) & (secant > 0), jnp.clip(secant, 0.1, 1.0), otherwise)


def next_step(step, better, gap, best_gap):
    """Step to try next: longer while steps shorten, shorter where they overshoot, one at the start."""
    accepted = jnp.where(gap < best_gap, jnp.minimum(1.4 * step, 1.0), 0.7 * step)
    return jnp.where(step > 0, jnp.where(better, accepted, step / 2), 1.0)


def is_better(value, gap, best_value, best_gap, dtype: jnp.dtype):
    """Whether a step is worth taking: the bound falls by rounding at most, or by less than the steps shorten.

    The latter settles ascents whose integrals are sampled, where a step is not quite the bound's gradient.
    """
    settles = (gap < best_gap) & (value >= best_value - best_gap)
    return not_worse(value, best_value, dtype) | settles


def not_worse(value, best_value, dtype: jnp.dtype):
    """Whether a value is finite and no lower than the best so far, to rounding."""
    return value >= best_value - 16 * float(jnp.finfo(dtype).eps) * (1 + abs(best_value))


def attainable(tolerance: float, dtype: jnp.dtype) -> float:
    """The tolerance, or 100 roundings of the floating-point type where that is more."""
    return max(tolerance, 100 * float(jnp.finfo(dtype).eps))


def backtrack(value_at, current: Float[Array, ""], step: Float[Array, ""]):
    """Halve `step` until the value is finite and no lower than `current`, to rounding."""

    def unacceptable(state):
        step, value = state
        return ~not_worse(value, current, current.dtype) & (step >= SMALLEST_STEP)

    def halve(state):
        step = state[0] / 2
        return step, value_at(step)

    return jax.lax.while_loop(unacceptable, halve, (2 * step, -jnp.inf * jnp.ones_like(current)))
