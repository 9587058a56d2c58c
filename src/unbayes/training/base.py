"""What training methods share: their shape, and what they return."""

import abc
import dataclasses
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unbayes._validation import require_settings
from unbayes.memory import Memory
from unbayes.models import AbstractModel
from unbayes.posteriors import AbstractGaussian, AbstractPosterior, gaussian_kl
from unbayes.progress import AbstractProgress


@dataclasses.dataclass(frozen=True)
class Trained:
    """A trained posterior and how well it was trained.

    Attributes
    ----------
    posterior
        q(θ|D).
    method
        What trained it, with its settings.
    elbo
        Evidence lower bound at the end, equation (1).
    stationarity
        KL, in nats, from the posterior to its own full natural-gradient step: zero where the ELBO is
        stationary, which unlearning relies on. None where it was not measured.
    converged
        Whether training ended by itself; None where it was told how long to run.
    trace
        ELBO at every iteration.
    passes
        Passes over the data, those that found a start included; None where they are not counted.
    memory
        What unlearning may use besides the posterior.
    seconds
        Wall-clock time, compilation included.
    """

    posterior: AbstractPosterior
    method: Any
    elbo: float
    stationarity: float | None
    converged: bool | None
    trace: np.ndarray
    passes: int | None = None
    memory: Memory | None = None
    seconds: float = float("nan")

    def __str__(self) -> str:
        gap = "not measured" if self.stationarity is None else f"{self.stationarity:.2g} nats"
        ending = {True: "converged", False: "did not converge", None: "ran its course"}[self.converged]
        return (
            f"{type(self.posterior).__name__} of {self.posterior.dim} parameters by {self.method}\n"
            f"  ELBO          {self.elbo:.6g}\n"
            f"  stationarity  {gap}\n"
            f"  {ending} after {len(self.trace)} iterations, {self.seconds:.2f} s"
        )


class AbstractTraining(eqx.Module):
    """A way to find q(θ|D): settings, and nothing else."""

    def __check_init__(self):
        require_settings(self)

    @abc.abstractmethod
    def run(
        self,
        model: AbstractModel,
        evidence: Any,
        start: Any,
        *,
        key: PRNGKeyArray,
        progress: AbstractProgress | None = None,
    ) -> Trained:
        """Train from `start`, a member of the family to fit."""


def require_finite(trained: Trained) -> None:
    """Refuse training that came to nothing."""
    if not np.isfinite(trained.elbo):
        raise ValueError(
            f"training ended at an ELBO of {trained.elbo}: check the scales of the prior, of the likelihood "
            "and of the inputs, or give a smaller learning rate"
        )


def deviance_of(trained: Trained, model: AbstractModel, most: Float[Array, ""] | None) -> float | None:
    """Of all records, whose log-likelihood is `most` at most: E_q[log p(D|θ)] is the ELBO and KL[q‖prior]."""
    prior = model.gaussian_prior
    if most is None or prior is None or not isinstance(trained.posterior, AbstractGaussian):
        return None
    return max(float(most) - trained.elbo - float(gaussian_kl(trained.posterior, prior)), 0.0)
