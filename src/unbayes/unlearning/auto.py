"""The default: the method that suits the posterior and the model."""

import dataclasses
from typing import Self

import equinox as eqx

from unbayes.memory import Memory
from unbayes.models import AbstractModel
from unbayes.posteriors import AbstractGaussian, AbstractPosterior, AutoregressiveFlow, Table
from unbayes.unlearning.bank import BankReverseKL
from unbayes.unlearning.base import AbstractMethod
from unbayes.unlearning.exact import Exact
from unbayes.unlearning.natural_gradient import NaturalGradient
from unbayes.unlearning.result import Solution
from unbayes.unlearning.transport import Transport


class Auto(AbstractMethod):
    """Exact where the posterior is conjugate, natural gradients for Gaussians and flows, else reverse KL.

    All of them are additive, so that `summarise`, add and `solve` work whatever the posterior is.

    Parameters
    ----------
    sampled
        As for `NaturalGradient`.
    memory
        What training kept; `unlearn` and its kind set it.
    """

    sampled: bool = False
    memory: Memory | None = eqx.field(default=None, repr=False)

    def with_memory(self, memory: Memory | None) -> Self:
        """The choice, with what training kept."""
        return self if memory is None else dataclasses.replace(self, memory=memory)

    def choose(self, posterior: AbstractPosterior, model: AbstractModel) -> tuple[AbstractMethod, str]:
        """The method, and a sentence on why."""
        name = type(posterior).__name__
        if isinstance(posterior, Table):
            return Exact(), "a table of θ is divided by the likelihood, value by value"
        if type(posterior) is type(model.conjugate_prior):
            return Exact(), f"{name} is conjugate to the likelihood"
        if isinstance(posterior, AbstractGaussian) and model.has_affordable_sites:
            return NaturalGradient(self.sampled, memory=self.memory), f"{name} has natural parameters"
        if isinstance(posterior, AbstractGaussian):
            reason = f"{posterior.dim} parameters are too many for the second derivatives of this model"
            return BankReverseKL(), reason
        if isinstance(posterior, AutoregressiveFlow) and model.has_affordable_sites:
            reason = (
                f"{name} has no natural parameters of its own: it moves as a Gaussian with its moments does"
            )
            return Transport(self.sampled, memory=self.memory), reason
        return BankReverseKL(), f"{name} has no natural parameters to subtract from"

    def run(self, posterior, model, erased, *, key, progress=None) -> Solution:
        """Unlearn by the method chosen."""
        method, _ = self.choose(posterior, model)
        return method.run(posterior, model, erased, key=key, progress=progress)
