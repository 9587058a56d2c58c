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
from unbayes.posteriors import AbstractPosterior, AbstractVariational
from unbayes.unlearning.base import AbstractAdjustedMethod, AbstractIterativeMethod, AbstractMethod
from unbayes.unlearning.result import Solution

DIAGNOSIS_DRAWS = 4000


class AbstractAdjustedObjective(eqx.Module):
    """A function of q̃ and of a key, for one λ or, within a sweep, several."""

    lam: eqx.AbstractVar[Float[Array, "..."]]

    @abc.abstractmethod
    def __call__(self, candidate: AbstractPosterior, key: PRNGKeyArray) -> Float[Array, ""]:
        """Estimate the objective."""


class AbstractDescent(AbstractAdjustedMethod, AbstractIterativeMethod):
    """A method that moves q̃ from q(θ|D) by stochastic gradients of an objective in which λ is a leaf."""

    iterations: eqx.AbstractVar[int]
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
        """Descend once for every λ, on the same random numbers."""
        loop_key, mode_key, diagnosis_key = jr.split(key, 3)
        log_max = posterior.max_log_prob(mode_key)
        objective = self.objective(posterior, model, erased, jnp.asarray(lams, posterior.dtype), log_max)
        lanes = eqx.tree_at(
            lambda o: o.lam, jax.tree.map(lambda _: None, objective), 0, is_leaf=lambda leaf: leaf is None
        )
        found = minimise_each(
            objective,
            lanes,
            posterior,
            optimizer=self.optimizer,
            iterations=self.iterations,
            key=loop_key,
            progress=progress,
            description=f"unlearning by {type(self).__name__}",
        )
        thetas, log_full = posterior.sample_and_log_prob(diagnosis_key, (DIAGNOSIS_DRAWS,))
        likelihood = log_likelihood_at(model, thetas, erased)
        return [
            _solution(
                posterior if lam == 1 else candidate,
                trace,
                diagnose_weights(removal_log_weights(*likelihood, log_full, log_max, lam)),
            )
            for lam, (candidate, trace) in zip(lams, found, strict=True)
        ]


def require_variational(method: AbstractMethod, posterior: AbstractPosterior) -> None:
    """Refuse a posterior that is neither Gaussian nor a flow."""
    if not isinstance(posterior, AbstractVariational):
        raise TypeError(
            f"method {type(method).__name__} needs a Gaussian or a flow, got {type(posterior).__name__}; "
            "use Exact for conjugate posteriors and tables"
        )


def _solution(candidate: AbstractPosterior, trace: np.ndarray, diagnosis: WeightDiagnosis) -> Solution:
    return Solution(
        candidate, trace, diagnosis.effective_sample_size, diagnosis.khat, doubts_about(diagnosis)
    )


def doubts_about(diagnosis: WeightDiagnosis) -> tuple[str, ...]:
    """Sentences that the weights give rise to."""
    if diagnosis.khat <= LARGEST_TRUSTED_KHAT:
        return ()
    return (
        f"the weights 1/p(D_e|θ) are too uneven (k-hat {diagnosis.khat:.2f} > {LARGEST_TRUSTED_KHAT}): "
        "the erased records are too informative for this method; retrain, or erase less",
    )


@eqx.filter_jit
def log_likelihood_at(model: AbstractModel, thetas, erased):
    """Log-likelihood of `erased` at each θ, compiled; see `AbstractModel.log_likelihood_at`."""
    return model.log_likelihood_at(thetas, erased)
