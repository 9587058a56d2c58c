"""Variational inference by natural gradients, for Gaussian families."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unbayes._numerics.quadrature import QUASI_RANDOM_NODES
from unbayes._numerics.records import padded
from unbayes.inference.ascent import AscentState, Bound, attainable, init, resume
from unbayes.inference.newton import find_mode, laplace
from unbayes.models import AbstractModel
from unbayes.posteriors import (
    AbstractGaussian,
    DensePrecision,
    DiagonalGaussian,
    FullGaussian,
    GaussianNatural,
)
from unbayes.progress import AbstractProgress, Silent
from unbayes.training.base import AbstractTraining, Trained

# Stationarity, in nats, beyond which integrals in several dimensions are too coarse to tell.
COARSE_TOLERANCE = 1e-7
# Steps that the next one learns from where passes are dear: with more, it took no fewer of them.
WIDE_MIXING = 2


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
        30% of the passes of a log-concave model. Dense beliefs only. By default two where a log-concave model
        has hundreds of parameters, else none.
    """

    iterations: int = 1000
    tolerance: float = 1e-12
    nodes: int = QUASI_RANDOM_NODES
    mixing: int | None = None

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
        if nodes.count == 1 and isinstance(start, FullGaussian):
            return self._laplace(bound, start, tolerance)
        tolerance = attainable(tolerance, start.dtype)
        end, newton_steps = self._ascend(bound, start, tolerance, progress or Silent())
        numbers = (end.value, end.stationarity, end.trace, end.passes, newton_steps)
        value, stationarity, trace, taken, before = jax.device_get(numbers)
        return Trained(
            posterior=end.gaussian,
            method=self,
            elbo=float(value),
            stationarity=float(stationarity),
            converged=bool(stationarity <= tolerance),
            trace=trace[:taken],
            passes=int(taken + before),
        )

    def _ascend(
        self, bound: Bound, start: AbstractGaussian, tolerance: float, progress: AbstractProgress
    ) -> tuple[AscentState, Array]:
        """In one compiled call, or in one per pass where somebody watches; and the number of Newton steps."""
        mixing = (WIDE_MIXING if bound.is_wide else 0) if self.mixing is None else self.mixing
        beginning = (bound, type(start), start.mean, self.iterations, tolerance, mixing)
        if progress.silent:
            return _ascend(*beginning)
        state, newton_steps = _init(*beginning)
        with progress.track("training by natural gradients", self.iterations) as advance:
            while state.moving(tolerance) and state.passes < self.iterations:
                state = _resume(bound, state, state.passes + 1, tolerance)
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
) -> tuple[AscentState, Array]:
    state, newton_steps = _init(bound, family, start, iterations, tolerance, mixing)
    end = resume(bound, state, iterations, tolerance)
    return end._replace(history=None), newton_steps


@eqx.filter_jit
def _init(
    bound: Bound, family, start, iterations: int, tolerance: float, mixing: int
) -> tuple[AscentState, Array]:
    """State of an ascent that begins at the mode of p(θ|D), and the number of Newton steps that found it."""
    mode = find_mode(bound, start, tolerance)
    first = belief_at(family, mode.theta, mode.precision, mode.scale_tril)
    return init(bound.model, first, iterations, mixing), mode.passes


def belief_at(
    family: type[AbstractGaussian],
    mode: Float[Array, " d"],
    precision: Float[Array, "d d"],
    scale_tril: Float[Array, "d d"],
) -> AbstractGaussian:
    """Where an ascent begins: the member of the family that is nearest to Laplace's approximation."""
    if issubclass(family, DiagonalGaussian):
        return DiagonalGaussian(mode, jnp.diagonal(precision) ** -0.5)
    if issubclass(family, FullGaussian):
        return FullGaussian(mode, scale_tril)
    dense = DensePrecision(precision)
    return family.from_natural(GaussianNatural(dense @ mode, dense))


@eqx.filter_jit
def _resume(bound: Bound, state: AscentState, until: Array, tolerance: float) -> AscentState:
    return resume(bound, state, until, tolerance)
