"""Train on: improve an unlearned posterior on the remaining records, in a few passes over them."""

import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, cast

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unbayes._numerics.programs import kept
from unbayes._numerics.quadrature import QUASI_RANDOM_NODES
from unbayes._numerics.records import count
from unbayes._validation import require_key, require_precision
from unbayes.inference.ascent import attainable, is_better, next_step, step_length
from unbayes.memory import Memory
from unbayes.models import AbstractModel
from unbayes.posteriors import AbstractGaussian, AbstractVariational, GaussianNatural
from unbayes.progress import AbstractProgress, Silent
from unbayes.training.base import Trained

Stream = Callable[[], Iterable[Any]]


def refine(
    posterior: AbstractVariational,
    model: AbstractModel,
    remaining: Any,
    *,
    passes: int = 10,
    tolerance: float = 1e-6,
    nodes: int = QUASI_RANDOM_NODES,
    key: PRNGKeyArray,
    progress: AbstractProgress | None = None,
) -> Trained:
    """Continue training from `posterior`, which unlearning has brought close to where it will end.

    Parameters
    ----------
    posterior
        Where to start.
    model
        Prior and likelihood.
    remaining
        The records D_r, as `model.encode` takes them; or a function that returns an iterable of batches of
        them and is called once for every pass, so that no more than a batch is in memory. A flow needs the
        former.
    passes
        Passes over the data, at most; a flow takes the steps that `GradientVI` takes.
    tolerance
        Stationarity, in nats, at which to stop.
    nodes
        Number of quasi-random nodes, where quadrature is not possible.
    key
        Key of whatever is random.
    progress
        A `ProgressBar()`, say.
    """
    started = time.perf_counter()
    require_key(key)
    require_precision(posterior=posterior, model=model)
    if not isinstance(passes, int) or passes < 1:
        raise ValueError(f"passes must be an integer of at least 1, got {passes!r}")
    if not isinstance(posterior, AbstractGaussian):
        if callable(remaining):
            raise TypeError(
                "remaining must be records, not a stream of batches, where the posterior is a flow"
            )
        from unbayes.training.gradient import GradientVI

        return GradientVI().run(model, model.encode(remaining), posterior, key=key, progress=progress)
    with kept(model.holds_functions):
        return _refine(posterior, model, remaining, passes, tolerance, nodes, progress, started)


def _refine(
    posterior: AbstractGaussian, model: AbstractModel, remaining, passes, tolerance, nodes, progress, started
) -> Trained:
    stream = cast(Stream, remaining) if callable(remaining) else _Once(remaining)
    steps = _Steps(model, model.nodes(nodes), stream)
    best = steps.evaluate(posterior)
    trace, step = [best.elbo], 1.0
    tolerance = attainable(tolerance, posterior.dtype)
    with (progress or Silent()).track("refining", passes) as advance:
        advance(1, f"{best.elbo:.6g}")
        while len(trace) < passes and best.gap > tolerance:
            here = steps.evaluate(best.gaussian.toward(best.target, step))
            trace.append(here.elbo)
            advance(1, f"{here.elbo:.6g}")
            better = is_better(here.elbo, here.gap, best.elbo, best.gap, posterior.dtype)
            step = float(next_step(step, better, here.gap, best.gap))
            best = here if better else best
    return Trained(
        posterior=best.gaussian,
        method=f"{len(trace)} passes of natural gradients",
        elbo=best.elbo,
        stationarity=best.gap,
        converged=best.gap <= tolerance,
        trace=np.asarray(trace),
        passes=len(trace),
        memory=Memory(best.records, max(best.gap, 0.0)).kept_for(best.gaussian, model),
        seconds=time.perf_counter() - started,
    )


class _Once(NamedTuple):
    """Records that are all in memory, as a stream of one batch."""

    records: Any

    def __call__(self) -> tuple[Any, ...]:
        return (self.records,)


class _Point(NamedTuple):
    """A belief, the ELBO there, its full natural-gradient step, and how far that goes."""

    gaussian: AbstractGaussian
    elbo: float
    target: GaussianNatural
    gap: float
    records: int


class _Steps(NamedTuple):
    """One pass over the data per point."""

    model: AbstractModel
    nodes: Any
    stream: Stream

    def evaluate(self, gaussian: AbstractGaussian) -> _Point:
        elbo, target = _prior_part(gaussian, self.model, self.nodes)
        records = 0
        for batch in self.stream():
            evidence = self.model.encode(batch, "remaining")
            parts = _batch_part(gaussian, self.model, evidence, self.nodes)
            elbo, target = elbo + parts[0], target + parts[1]
            records += count(evidence)
        if not records:
            raise ValueError("remaining must hold at least one record, got none")
        gap = float(_step_length(gaussian, target))
        return _Point(gaussian, float(elbo), target, gap, records)


@eqx.filter_jit
def _prior_part(
    gaussian: AbstractGaussian, model: AbstractModel, nodes
) -> tuple[Float[Array, ""], GaussianNatural]:
    around = gaussian.to_full() if model.has_dense_sites else gaussian
    return model.expected_log_prior(gaussian, nodes) + gaussian.entropy(), model.prior_site(around, nodes)


@eqx.filter_jit
def _batch_part(
    gaussian: AbstractGaussian, model: AbstractModel, evidence, nodes
) -> tuple[Float[Array, ""], GaussianNatural]:
    around = gaussian.to_full() if model.has_dense_sites else gaussian
    return model.expected_log_likelihood_and_site(around, evidence, nodes)


@eqx.filter_jit
def _step_length(gaussian: AbstractGaussian, target: GaussianNatural) -> Float[Array, ""]:
    return step_length(gaussian, target)
