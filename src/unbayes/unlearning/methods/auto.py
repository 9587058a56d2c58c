"""The default: the method that suits the posterior and the model."""

from unbayes.models import AbstractModel
from unbayes.posteriors import AbstractFlow, AbstractGaussian, AbstractPosterior, Table
from unbayes.unlearning.base import AbstractMethod
from unbayes.unlearning.methods.exact import Exact
from unbayes.unlearning.methods.natural_gradient import NaturalGradient
from unbayes.unlearning.result import Solution


class Auto(AbstractMethod):
    """Exact where the posterior is conjugate, natural gradients for Gaussians and flows, else reverse KL.

    All of them are additive, so that `summarise`, add and `solve` work whatever the posterior is.
    """

    def choose(self, posterior: AbstractPosterior, model: AbstractModel) -> tuple[AbstractMethod, str]:
        """The method, and a sentence on why."""
        name = type(posterior).__name__
        if isinstance(posterior, Table):
            return Exact(), "a table of θ is divided by the likelihood, value by value"
        if model.is_conjugate_to(posterior):
            return Exact(), f"{name} is conjugate to the likelihood"
        if isinstance(posterior, AbstractGaussian) and model.has_affordable_sites:
            return NaturalGradient(), f"{name} has natural parameters"
        if isinstance(posterior, AbstractGaussian):
            reason = f"{posterior.dim} parameters are too many for the second derivatives of this model"
            return _bank(), reason
        if isinstance(posterior, AbstractFlow) and model.has_affordable_sites:
            reason = (
                f"{name} has no natural parameters of its own: it moves as a Gaussian with its moments does"
            )
            return _transport(), reason
        return _bank(), f"{name} has no natural parameters to subtract from"

    def summarise(self, posterior, model, erased, weights, *, memory, key):
        """Sums by the method chosen."""
        method, _ = self.choose(posterior, model)
        return method.summarise(posterior, model, erased, weights, memory=memory, key=key)

    def solve(self, posterior, model, statistics, *, memory, key, progress=None) -> Solution:
        """Unlearn by the method chosen."""
        method, _ = self.choose(posterior, model)
        return method.solve(posterior, model, statistics, memory=memory, key=key, progress=progress)


# Imported where they are chosen: optax, which both need, takes a while.


def _bank() -> AbstractMethod:
    from unbayes.unlearning.methods.bank import BankReverseKL

    return BankReverseKL()


def _transport() -> AbstractMethod:
    from unbayes.unlearning.methods.transport import Transport

    return Transport()
