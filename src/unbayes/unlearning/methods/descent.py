"""What the methods with an adjusted likelihood share."""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from unbayes._numerics.records import take
from unbayes.inference.objectives import removal_log_weights
from unbayes.inference.passes import shared
from unbayes.inference.stochastic import minimise_each
from unbayes.memory import Memory
from unbayes.models import AbstractModel
from unbayes.posteriors import AbstractGaussian, AbstractPosterior, AbstractVariational
from unbayes.trust import RetrainingNeeded, measure
from unbayes.trust.weights import diagnose_weights
from unbayes.unlearning.base import AbstractAdjustedMethod, AbstractMethod
from unbayes.unlearning.result import Solution

# Draws of q(θ|D) whose weights tell how far to trust a descent.
DIAGNOSIS_DRAWS = 4000


class AbstractAdjustedObjective(eqx.Module):
    """A function of q̃ and of a key, for one λ or, within a sweep, several."""

    lam: eqx.AbstractVar[Float[Array, "..."]]

    @abc.abstractmethod
    def __call__(self, candidate: AbstractPosterior, key: PRNGKeyArray) -> Float[Array, ""]:
        """Estimate of the objective at `candidate`, on random numbers from `key`."""


class AbstractDescent(AbstractAdjustedMethod):
    """A method that moves q̃ from q(θ|D) by stochastic gradients of an objective in which λ is a leaf."""

    keeps_rows: ClassVar[bool] = True

    iterations: eqx.AbstractVar[int]
    whiten: eqx.AbstractVar[bool]
    optimizer: eqx.AbstractVar[optax.GradientTransformation]
    early_stop: eqx.AbstractVar[bool]

    @abc.abstractmethod
    def objective(
        self,
        posterior: AbstractPosterior,
        model: AbstractModel,
        erased: Any,
        lam: Float[Array, "..."],
        log_max: Float[Array, ""],
    ) -> AbstractAdjustedObjective:
        """The function of q̃ that is minimised, for thresholds `lam`."""

    def check(self, posterior: AbstractPosterior, model: AbstractModel, memory: Memory | None) -> None:
        """Refuse a posterior that gradients cannot move."""
        require_variational(self, posterior)

    def summarise(self, posterior, model, erased, weights, *, memory, key):
        """The records themselves: every iteration reads them."""
        return take(erased, np.flatnonzero(weights))

    def solve_each(self, posterior, model, statistics, lams, *, key, progress=None) -> list[Solution]:
        """Descend once for every λ below one, on the same random numbers."""
        erased = statistics.value
        loop_key, mode_key, diagnosis_key = jr.split(key, 3)
        log_max = posterior.max_log_prob(mode_key)
        thetas, log_full = _draw(posterior, diagnosis_key, DIAGNOSIS_DRAWS)
        deviations, mean = log_likelihood_at(model, thetas, erased)
        moving = [lam for lam in lams if lam < 1]
        found = iter(self._descend(posterior, model, erased, moving, log_max, loop_key, progress))
        solutions = []
        for lam in lams:
            candidate, trace = next(found) if lam < 1 else (posterior, np.empty(0))
            diagnosis = diagnose_weights(removal_log_weights(deviations, mean, log_full, log_max, lam))
            measured = {
                "effective_sample_size": diagnosis.effective_sample_size,
                "khat": diagnosis.khat,
                "rose": measure.rose(trace),
                "shift": measure.shift(posterior, candidate, diagnosis_key),
            }
            solutions.append(Solution(candidate, trace, measured))
        return solutions

    def _descend(self, posterior, model, erased, lams, log_max, key, progress):
        """Candidates and traces, one of each for every λ."""
        if not lams:
            return []
        objective = self.objective(posterior, model, erased, jnp.asarray(lams, posterior.dtype), log_max)
        start, frame = posterior, None
        if self.whiten and isinstance(posterior, AbstractGaussian):
            frame = posterior
            objective = _Whitened(objective, posterior)
            start = type(posterior).standard(posterior.dim, posterior.dtype, key=key)
        nowhere = jax.tree.map(lambda _: None, objective)
        found = minimise_each(
            objective,
            eqx.tree_at(lambda o: o.lam, nowhere, 0, is_leaf=lambda leaf: leaf is None),
            start,
            optimizer=self.optimizer,
            iterations=self.iterations,
            key=key,
            progress=progress,
            description=f"unlearning by {type(self).__name__}",
            until_flat=self.early_stop,
        )
        return found if frame is None else [(frame.push(inner), trace) for inner, trace in found]


class _Whitened(eqx.Module):
    """An objective of the belief over z, θ = frame.colour(z)."""

    objective: AbstractAdjustedObjective
    frame: AbstractGaussian

    @property
    def lam(self):
        return self.objective.lam

    def __call__(self, inner: AbstractGaussian, key: PRNGKeyArray):
        return self.objective(self.frame.push(inner), key)


def require_variational(method: AbstractMethod, posterior: AbstractPosterior) -> None:
    """Refuse a posterior that is neither Gaussian nor a flow."""
    if not isinstance(posterior, AbstractVariational):
        raise TypeError(
            f"method {type(method).__name__} needs a Gaussian or a flow, got {type(posterior).__name__}; "
            "use Exact for conjugate posteriors and tables"
        )


def log_likelihood_at(model: AbstractModel, thetas, erased, weights=None):
    """Log-likelihood of `erased` at each θ, compiled; see `AbstractModel.log_likelihood_at`."""
    deviations, mean = _compiled_log_likelihood_at(model, thetas, erased, weights)
    if not bool(jnp.isfinite(deviations).all()):
        raise RetrainingNeeded(
            "the erased records are impossible, or overflow, at parameters that the posterior allows, so "
            "that 1/p(D_e|θ) is infinite there"
        )
    return deviations, mean


@eqx.filter_jit
def _compiled_log_likelihood_at(model: AbstractModel, thetas, erased, weights):
    return shared(
        lambda fixed, *records: fixed[0].log_likelihood_at(fixed[1], *records),
        (model, thetas),
        erased,
        weights,
    )


@eqx.filter_jit
def _draw(posterior: AbstractPosterior, key, draws: int):
    return posterior.sample_and_log_prob(key, (draws,))
