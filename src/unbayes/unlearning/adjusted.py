"""What the methods with an adjusted likelihood share."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from unbayes.diagnostics import LARGEST_TRUSTED_KHAT, WeightDiagnosis, diagnose_weights
from unbayes.loop import minimise_each
from unbayes.models import AbstractModel
from unbayes.objectives import removal_log_weights
from unbayes.posteriors import (
    AbstractGaussian,
    AbstractPosterior,
    AbstractVariational,
    gaussian_kl,
    matched_gaussian,
)
from unbayes.unlearning.base import AbstractAdjustedMethod, AbstractIterativeMethod, AbstractMethod
from unbayes.unlearning.result import RetrainingNeeded, Solution
from unbayes.unlearning.trust import Doubt, Measures, Verdict

DIAGNOSIS_DRAWS = 4000
# Root mean square distance from the trained mean, in standard deviations of q(θ|D), where a draw of q(θ|D)
# itself has 1, beyond which a descent has run away.
LARGEST_SHIFT = 3.0
# Beyond this Pareto shape the weights have no mean to converge to.
LARGEST_KHAT_WITH_A_MEAN = 1.0


class AbstractAdjustedObjective(eqx.Module):
    """A function of q̃ and of a key, for one λ or, within a sweep, several."""

    lam: eqx.AbstractVar[Float[Array, "..."]]

    @abc.abstractmethod
    def __call__(self, candidate: AbstractPosterior, key: PRNGKeyArray) -> Float[Array, ""]:
        """Estimate the objective."""


class AbstractDescent(AbstractAdjustedMethod, AbstractIterativeMethod):
    """A method that moves q̃ from q(θ|D) by stochastic gradients of an objective in which λ is a leaf."""

    iterations: eqx.AbstractVar[int]
    whiten: eqx.AbstractVar[bool]
    optimizer: eqx.AbstractVar[optax.GradientTransformation]

    @abc.abstractmethod
    def objective(
        self,
        posterior: AbstractPosterior,
        model: AbstractModel,
        erased: Any,
        lam: Float[Array, "..."],
        log_max: Float[Array, ""],
    ) -> AbstractAdjustedObjective:
        """What to minimise."""

    def check(self, posterior: AbstractPosterior, model: AbstractModel) -> None:
        """Refuse a posterior that gradients cannot move."""
        require_variational(self, posterior)

    def run_each(self, posterior, model, erased, lams, *, key, progress=None) -> list[Solution]:
        """Descend once for every λ below one, on the same random numbers."""
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
            doubts = (
                *doubts_about_weights(diagnosis),
                *_doubts_about_trace(trace),
                *_doubts_about_shift(posterior, candidate, diagnosis_key),
            )
            measures = Measures(diagnosis.effective_sample_size, diagnosis.khat)
            solutions.append(Solution(candidate, trace, measures, doubts))
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


def doubts_about_weights(diagnosis: WeightDiagnosis) -> tuple[Doubt, ...]:
    """Sentences that the weights give rise to."""
    if diagnosis.khat <= LARGEST_TRUSTED_KHAT:
        return ()
    return (
        Doubt(
            f"the weights 1/p(D_e|θ) are too uneven (k-hat {diagnosis.khat:.2f} > {LARGEST_TRUSTED_KHAT}): "
            "the erased records are too informative for this method, or the draws too few; retrain, or erase "
            "less",
            Verdict.DOUBTFUL if diagnosis.khat < LARGEST_KHAT_WITH_A_MEAN else Verdict.RETRAIN,
        ),
    )


def _doubts_about_trace(trace: np.ndarray) -> tuple[Doubt, ...]:
    """Doubt a descent that ended, beyond noise, higher than it began, which is without unlearning."""
    end = trace[-max(len(trace) // 50, 10) :]
    if not trace.size or end.mean() <= trace[0] + 3 * end.std():
        return ()
    return (
        Doubt("the objective rose instead of falling: give a smaller learning rate, more draws or another λ"),
    )


def _doubts_about_shift(full: AbstractPosterior, candidate: AbstractPosterior, key) -> tuple[Doubt, ...]:
    """Doubt a belief that left where q(θ|D) says anything, as it does where EUBO has no minimum."""
    before, after = (
        belief if isinstance(belief, AbstractGaussian) else matched_gaussian(belief, key)
        for belief in (full, candidate)
    )
    wider = after.entropy() - before.entropy()
    shift = float(jnp.sqrt(1 + 2 * (gaussian_kl(after, before) + wider) / full.dim))
    if shift <= LARGEST_SHIFT:
        return ()
    return (
        Doubt(
            f"the belief moved by {shift:.1f} standard deviations per parameter, to where the trained "
            "posterior says nothing: retrain, or give a larger λ",
            Verdict.RETRAIN,
        ),
    )


def log_likelihood_at(model: AbstractModel, thetas, erased):
    """Log-likelihood of `erased` at each θ, compiled; see `AbstractModel.log_likelihood_at`."""
    deviations, mean = _compiled_log_likelihood_at(model, thetas, erased)
    if not bool(jnp.isfinite(deviations).all()):
        raise RetrainingNeeded(
            "the erased records are impossible, or overflow, at parameters that the posterior allows, so "
            "that 1/p(D_e|θ) is infinite there"
        )
    return deviations, mean


@eqx.filter_jit
def _compiled_log_likelihood_at(model: AbstractModel, thetas, erased):
    return model.log_likelihood_at(thetas, erased)


@eqx.filter_jit
def _draw(posterior: AbstractPosterior, key, draws: int):
    return posterior.sample_and_log_prob(key, (draws,))
