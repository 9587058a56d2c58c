"""Unlearning by minimising the evidence upper bound, equations (5) and (8)."""

from typing import Any

import equinox as eqx
import jax.random as jr
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from unbayes._numerics.records import count, minibatch
from unbayes.inference.objectives import eubo
from unbayes.inference.stochastic import ADAM
from unbayes.models import AbstractModel
from unbayes.posteriors import AbstractPosterior
from unbayes.unlearning.methods.descent import AbstractAdjustedObjective, AbstractDescent


class EUBO(AbstractDescent):
    """Minimise E_q̃[log p_adj(D_e|θ; λ)] + KL[q̃‖q(θ|D)], starting at q(θ|D).

    Parameters
    ----------
    lam
        Threshold λ in [0, 1]: 1 unlearns nothing, 0 uses the plain likelihood.
    iterations
        Number of steps.
    draws
        Draws of θ ~ q̃ in each step.
    batch_size
        Erased records in each step, drawn with replacement and scaled up; None takes all of them.
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
    batch_size: int | None = None
    whiten: bool = True
    optimizer: optax.GradientTransformation = eqx.field(default=ADAM, repr=False)
    early_stop: bool = False

    def objective(self, posterior, model, erased, lam, log_max):
        """The evidence upper bound with an adjusted likelihood, equation (8)."""
        return AdjustedEubo(
            full=posterior,
            model=model,
            erased=erased,
            lam=lam,
            log_max=log_max,
            draws=self.draws,
            batch_size=self.batch_size,
        )


class AdjustedEubo(AbstractAdjustedObjective):
    """Equation (8), estimated from one batch."""

    full: AbstractPosterior
    model: AbstractModel
    erased: Any
    lam: Float[Array, "..."]
    log_max: Float[Array, ""]
    draws: int = eqx.field(static=True)
    batch_size: int | None = eqx.field(static=True)

    def __call__(self, candidate: AbstractPosterior, key: PRNGKeyArray):
        """Estimate from one batch of erased records."""
        batch_key, draw_key = jr.split(key)
        batch = minibatch(self.erased, self.batch_size, batch_key)
        return eubo(
            candidate,
            self.full,
            self.model,
            batch,
            lam=self.lam,
            log_max=self.log_max,
            key=draw_key,
            draws=self.draws,
            scale=count(self.erased) / count(batch),
        )
