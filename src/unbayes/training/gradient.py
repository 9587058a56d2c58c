"""Variational inference by stochastic gradients."""

from typing import Any

import equinox as eqx
import jax.random as jr
import optax
from jaxtyping import PRNGKeyArray

from unbayes._numerics.records import count, minibatch
from unbayes.inference.ascent import stationarity as measure_stationarity
from unbayes.inference.objectives import elbo
from unbayes.inference.stochastic import ADAM, minimise
from unbayes.models import AbstractModel
from unbayes.posteriors import AbstractGaussian, AbstractVariational
from unbayes.progress import AbstractProgress
from unbayes.training.base import AbstractTraining, Trained


class GradientVI(AbstractTraining):
    """Maximise the ELBO, equation (1), by reparametrised stochastic gradients; works for every family.

    Parameters
    ----------
    iterations
        Number of steps, at most.
    draws
        Draws of θ in each step.
    batch_size
        Records in each step, drawn with replacement and scaled up; None takes all of them.
    optimizer
        Any optax gradient transformation.
    early_stop
        Stop once the ELBO no longer improves beyond noise.
    """

    iterations: int = 10_000
    draws: int = 16
    batch_size: int | None = None
    optimizer: optax.GradientTransformation = eqx.field(default=ADAM, repr=False)
    early_stop: bool = True

    def run(
        self,
        model: AbstractModel,
        evidence: Any,
        start: Any,
        *,
        key: PRNGKeyArray,
        progress: AbstractProgress | None = None,
    ) -> Trained:
        """Train a member of a family by following gradients from `start`."""
        loop_key, elbo_key = jr.split(key)
        posterior, trace = minimise(
            NegativeElbo(model, evidence, self.draws, self.batch_size),
            start,
            optimizer=self.optimizer,
            iterations=self.iterations,
            key=loop_key,
            progress=progress,
            description="maximising the ELBO",
            early_stop=self.early_stop,
        )
        stationarity = None
        if isinstance(posterior, AbstractGaussian) and model.has_affordable_sites:
            stationarity = float(measure_stationarity(posterior, model, evidence))
        return Trained(
            posterior=posterior,
            method=self,
            elbo=float(_measure_elbo(posterior, model, evidence, elbo_key)),
            stationarity=stationarity,
            converged=len(trace) < self.iterations if self.early_stop else None,
            trace=-trace,
        )


class NegativeElbo(eqx.Module):
    """−ELBO of a random batch, scaled to all records."""

    model: AbstractModel
    evidence: Any
    draws: int = eqx.field(static=True)
    batch_size: int | None = eqx.field(static=True)

    def __call__(self, candidate: AbstractVariational, key: PRNGKeyArray):
        """Estimate from one batch and `draws` draws."""
        batch_key, draw_key = jr.split(key)
        batch = minibatch(self.evidence, self.batch_size, batch_key)
        scale = count(self.evidence) / count(batch)
        return -elbo(candidate, self.model, batch, key=draw_key, draws=self.draws, scale=scale)


@eqx.filter_jit
def _measure_elbo(posterior, model: AbstractModel, evidence, key):
    if isinstance(posterior, AbstractGaussian) and not model.is_sampled:
        return elbo(posterior, model, evidence)
    return elbo(posterior, model, evidence, key=key)
