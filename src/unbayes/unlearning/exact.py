"""Exact unlearning, equation (2): natural parameters minus sufficient statistics."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from unbayes.models import AbstractModel
from unbayes.posteriors import AbstractExponentialFamily, AbstractPosterior, Table
from unbayes.unlearning.base import AbstractAdditiveMethod
from unbayes.unlearning.result import Solution
from unbayes.unlearning.trust import Doubt


class Exact(AbstractAdditiveMethod):
    """Retrained posterior itself, where the posterior is conjugate to the likelihood or a table of θ.

    Conjugate here are Beta–Bernoulli, Dirichlet–categorical, Gamma–Poisson, regression with a
    normal–inverse-gamma prior, and any linear model with Gaussian likelihood of known
    noise and a `FullGaussian` posterior.
    """

    def check(self, posterior: AbstractPosterior, model: AbstractModel) -> None:
        """Refuse a posterior that is not conjugate to the model."""
        if isinstance(posterior, Table):
            return
        if model.conjugate_prior is None or type(posterior) is not type(model.conjugate_prior):
            raise TypeError(
                f"method Exact needs a posterior that is conjugate to the model, or a Table; "
                f"{type(posterior).__name__} is not conjugate to {type(model).__name__} here"
            )

    def summarise(self, posterior, model, erased, *, key):
        """What the records had added to the natural parameters."""
        return _sufficient_statistics(posterior, model, erased)

    def solve(self, posterior, model, value, *, key, progress=None) -> Solution:
        """Subtract it."""
        assert isinstance(posterior, AbstractExponentialFamily)
        natural = jax.tree.map(jnp.subtract, posterior.natural, value)
        left = float(posterior.evidence_left(natural, model.conjugate_prior))
        rounding = float(jnp.finfo(posterior.dtype).eps) ** 0.4
        if not left > -rounding:
            raise ValueError(
                "erased holds more evidence than the posterior has beyond its prior; "
                "some of these records cannot have been part of its training data"
            )
        recovered = posterior.with_natural(natural)
        return Solution(recovered, doubts=_doubts_about_total_erasure(recovered, model, rounding))


def _doubts_about_total_erasure(
    recovered: AbstractExponentialFamily, model: AbstractModel, rounding: float
) -> tuple[Doubt, ...]:
    if model.conjugate_prior is None or isinstance(recovered, Table):
        return ()
    pairs = zip(
        jax.tree.leaves(recovered.natural), jax.tree.leaves(model.conjugate_prior.natural), strict=True
    )
    if not all(np.allclose(after, prior, rtol=rounding, atol=rounding) for after, prior in pairs):
        return ()
    return (Doubt("nothing is left beyond the prior: all the training data were erased"),)


@eqx.filter_jit
def _sufficient_statistics(posterior, model: AbstractModel, erased):
    if isinstance(posterior, Table):
        # A table is normalised anyway, so the mean over its values may go.
        return model.log_likelihood_at(posterior.values, erased)[0]
    return model.sufficient_statistics(erased)
