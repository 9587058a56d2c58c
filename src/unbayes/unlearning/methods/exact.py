"""Exact unlearning, equation (2): natural parameters minus sufficient statistics."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from unbayes.inference.passes import shared
from unbayes.memory import Memory
from unbayes.models import AbstractModel
from unbayes.posteriors import AbstractExponentialFamily, AbstractPosterior, Table
from unbayes.unlearning.base import AbstractMethod
from unbayes.unlearning.result import Solution


class Exact(AbstractMethod):
    """Retrained posterior itself, where the posterior is conjugate to the likelihood or a table of θ.

    Conjugate here are Beta–Bernoulli, Dirichlet–categorical, Gamma–Poisson, regression with a
    normal–inverse-gamma prior, and any linear model with Gaussian likelihood of known
    noise and a `FullGaussian` posterior.
    """

    def check(self, posterior: AbstractPosterior, model: AbstractModel, memory: Memory | None) -> None:
        """Refuse a posterior that is not conjugate to the model."""
        if not isinstance(posterior, Table) and not model.is_conjugate_to(posterior):
            raise TypeError(
                f"method Exact needs a posterior that is conjugate to the model, or a Table; "
                f"{type(posterior).__name__} is not conjugate to {type(model).__name__} here"
            )

    def is_exact(self, posterior: AbstractPosterior, model: AbstractModel) -> bool:
        """Whether the result is the retrained posterior itself, which it always is."""
        return True

    def summarise(self, posterior, model, erased, weights, *, memory, key):
        """What the records had added to the natural parameters."""
        return _sufficient_statistics(posterior, model, erased, weights)

    def site(self, value: Any) -> Any:
        """What the records had added to the natural parameters."""
        return value

    def solve(self, posterior, model, statistics, *, memory, key, progress=None) -> Solution:
        """Natural parameters minus what the records had added to them."""
        assert isinstance(posterior, AbstractExponentialFamily)
        return Solution(_subtract(posterior, statistics.value))


@eqx.filter_jit
def _subtract(posterior: AbstractExponentialFamily, value) -> AbstractExponentialFamily:
    return posterior.with_natural(jax.tree.map(jnp.subtract, posterior.natural, value))


@eqx.filter_jit
def _sufficient_statistics(posterior, model: AbstractModel, erased, weights):
    if isinstance(posterior, Table):
        # A table is normalised anyway, so the mean over its values may go.
        return model.log_likelihood_at(posterior.values, erased, weights)[0]
    return shared(lambda model, *records: model.sufficient_statistics(*records), model, erased, weights)
