"""Train on: improve an unlearned posterior on the remaining records, in a few passes over them."""

import dataclasses
import time
from typing import Any

import numpy as np
from jaxtyping import PRNGKeyArray

from unbayes._numerics.programs import kept
from unbayes._numerics.quadrature import QUASI_RANDOM_NODES
from unbayes._numerics.records import count
from unbayes._validation import require_key, require_precision
from unbayes.data.scan import as_source, is_source
from unbayes.inference.ascent import attainable, is_better, next_step
from unbayes.inference.passes import AbstractCheckpoint, AllAtOnce, Passes, require_untied
from unbayes.memory import Memory
from unbayes.models import AbstractModel
from unbayes.posteriors import AbstractGaussian, AbstractVariational
from unbayes.progress import AbstractProgress
from unbayes.training.base import Trained
from unbayes.training.passes import Evaluation


def refine(
    posterior: AbstractVariational,
    model: AbstractModel,
    remaining: Any,
    *,
    passes: int = 10,
    tolerance: float = 1e-6,
    nodes: int = QUASI_RANDOM_NODES,
    key: PRNGKeyArray,
    checkpoint: AbstractCheckpoint | None = None,
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
        The records D_r, as `model.encode` takes them; or where they come from, such as a `scan` or a function
        that returns an iterable of batches of them and is called for every pass, so that no more than a few
        batches are in memory. A flow needs the former.
    passes
        Passes over the data, at most; a flow takes the steps that `GradientVI` takes.
    tolerance
        Stationarity, in nats, at which to stop.
    nodes
        Number of quasi-random nodes, where quadrature is not possible.
    key
        Key of whatever is random.
    checkpoint
        A `Checkpoint(folder)`: with it, the same call goes on where an earlier one was broken off.
    progress
        A `ProgressBar()`, say.
    """
    started = time.perf_counter()
    require_key(key)
    require_precision(posterior=posterior, model=model)
    if not isinstance(passes, int) or passes < 1:
        raise ValueError(f"passes must be an integer of at least 1, got {passes!r}")
    if not isinstance(posterior, AbstractGaussian):
        if is_source(remaining):
            raise TypeError(
                "remaining must be records, not a stream of batches, where the posterior is a flow"
            )
        from unbayes.training.gradient import GradientVI

        return GradientVI().run(model, model.encode(remaining), posterior, key=key, progress=progress)
    with kept(model.holds_functions):
        if is_source(remaining):
            require_untied(model, "remaining")
            source = as_source(remaining)
        else:
            source = AllAtOnce(remaining, count(model.encode(remaining, "remaining")))
        steps = Passes(source, progress, "remaining", checkpoint)
        refined = _refine(posterior, Evaluation(steps, model, model.nodes(nodes)), passes, tolerance)
        steps.end()
    return dataclasses.replace(refined, seconds=time.perf_counter() - started)


def _refine(posterior: AbstractGaussian, evaluation: Evaluation, passes: int, tolerance: float) -> Trained:
    best = evaluation.at(posterior, "where it starts")
    trace, step = [float(best.elbo)], 1.0
    tolerance = attainable(tolerance, posterior.dtype)
    while len(trace) < passes and best.gap > tolerance:
        here = evaluation.at(best.gaussian.toward(best.target, step), f"{float(best.gap):.2g} nats to go")
        trace.append(float(here.elbo))
        better = is_better(here.elbo, here.gap, best.elbo, best.gap, posterior.dtype)
        step = float(next_step(step, better, here.gap, best.gap))
        best = here if better else best
    gap = float(best.gap)
    return Trained(
        posterior=best.gaussian,
        method=f"{len(trace)} passes of natural gradients",
        elbo=float(best.elbo),
        stationarity=gap,
        converged=gap <= tolerance,
        trace=np.asarray(trace),
        passes=len(trace),
        memory=Memory(best.records, max(gap, 0.0)).kept_for(best.gaussian, evaluation.model),
    )
