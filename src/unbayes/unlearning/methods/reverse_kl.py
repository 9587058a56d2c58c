"""Unlearning by the reverse KL, equation (9), in the paper's stochastic form."""

from typing import Any

import equinox as eqx
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from unbayes.inference.objectives import cross_entropy, removal_log_weights
from unbayes.inference.stochastic import ADAM
from unbayes.models import AbstractModel
from unbayes.posteriors import AbstractPosterior
from unbayes.unlearning.methods.descent import AbstractAdjustedObjective, AbstractDescent


class ReverseKL(AbstractDescent):
    """Maximise E_q(θ|D)[log q̃(θ) / p_adj(D_e|θ; λ)], starting at q(θ|D).

    Every step takes fresh draws of q(θ|D) and normalises their weights among themselves, which caps the
    influence of any one draw: with few draws q̃ stays closer to q(θ|D), and closer to the optimum with many.

    Parameters
    ----------
    lam
        Threshold λ in [0, 1]: 1 unlearns nothing, 0 uses the plain likelihood.
    iterations
        Number of steps.
    draws
        Draws of θ ~ q(θ|D) in each step.
    whiten
        Whether a Gaussian moves in coordinates in which q(θ|D) is standard normal, so that the units of the
        data do not matter to the learning rate. False moves mean and factor as they are, as the authors did.
    optimizer
        Any optax gradient transformation.
    early_stop
        Stop before `iterations`, once a tenth of them changes the objective no more than noise does.
    """

    lam: float = 0.0
    iterations: int = 10_000
    draws: int = 1000
    whiten: bool = True
    optimizer: optax.GradientTransformation = eqx.field(default=ADAM, repr=False)
    early_stop: bool = False

    def objective(self, posterior, model, erased, lam, log_max):
        """The part of the reverse KL, equation (9), that depends on q̃."""
        return WeightedCrossEntropy(
            full=posterior, model=model, erased=erased, lam=lam, log_max=log_max, draws=self.draws
        )


class WeightedCrossEntropy(AbstractAdjustedObjective):
    """Equation (9), estimated from one set of draws."""

    full: AbstractPosterior
    model: AbstractModel
    erased: Any
    lam: Float[Array, "..."]
    log_max: Float[Array, ""]
    draws: int = eqx.field(static=True)

    def __call__(self, candidate: AbstractPosterior, key: PRNGKeyArray):
        """Estimate from fresh draws of q(θ|D)."""
        thetas, log_full = self.full.sample_and_log_prob(key, (self.draws,))
        deviations, mean = self.model.log_likelihood_at(thetas, self.erased)
        log_weights = removal_log_weights(deviations, mean, log_full, self.log_max, self.lam)
        return cross_entropy(candidate, thetas, log_weights)
