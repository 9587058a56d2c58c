"""Unlearning by one natural-gradient step, which goes past the paper.

A trained posterior is stationary, so the gradient of the *retraining* objective at q(θ|D) is known from the
erased records alone. In natural parameters a full step of retraining is η − Σ_{D_e} s_i(q), with s_i the site
of record i: the gradient of E_q[log p(y_i|θ)] with respect to the mean parameters of q.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from unbayes.models import AbstractModel
from unbayes.posteriors import AbstractGaussian, AbstractPosterior, DiagonalGaussian
from unbayes.unlearning.base import AbstractAdditiveMethod
from unbayes.unlearning.result import Solution

# Share of its own precision that a belief keeps in every direction, where a full step would leave none.
LEAST_SHARE_KEPT = 1e-3
# Where more than this share is taken away in some direction, the sites of the remaining records, which the
# step supposes to stay as they were, were seen to move enough to matter.
LARGEST_TRUSTED_SHARE = 0.7


class NaturalGradient(AbstractAdditiveMethod):
    """Subtract the erased records' sites from the natural parameters of a Gaussian posterior.

    Exact for a Gaussian likelihood. For a log-concave likelihood and a full covariance, the precision that is
    left is the prior's plus that of the remaining records, hence positive definite; elsewhere the step is
    shortened until it is, and the result says so. Deterministic where the predictor is a scalar.

    Parameters
    ----------
    nodes
        Number of common random numbers, where the predictor has several outputs or the model is general.
    """

    nodes: int = 1024

    def check(self, posterior: AbstractPosterior, model: AbstractModel) -> None:
        """Refuse a posterior that is not Gaussian."""
        if not isinstance(posterior, AbstractGaussian):
            raise TypeError(
                f"method NaturalGradient needs a Gaussian, got {type(posterior).__name__}; "
                "use ReverseKL or BankReverseKL for flows, Exact for conjugate posteriors and tables"
            )

    @property
    def summary_settings(self) -> tuple:
        """The number of nodes."""
        return (self.nodes,)

    def summarise(self, posterior, model, erased, *, key):
        """Sum of the sites at the trained posterior."""
        return _sites(posterior, model, erased, key, self.nodes)

    def solve(self, posterior, model, value, *, key, progress=None) -> Solution:
        """Subtract it, as far as the belief stays proper."""
        assert isinstance(posterior, AbstractGaussian)
        share = float(posterior.largest_share(value.precision))
        proper = share < 1 - 100 * float(jnp.finfo(posterior.dtype).eps)
        step = 1.0 if proper else (1 - LEAST_SHARE_KEPT) / share
        natural = jax.tree.map(lambda full, erased: full - step * erased, posterior.natural, value)
        return Solution(
            posterior.with_natural(natural), np.empty(0), doubts=_doubts(posterior, model, share, step)
        )


@eqx.filter_jit
def _sites(posterior, model: AbstractModel, erased, key: PRNGKeyArray, nodes: int):
    return model.site(posterior, erased, model.nodes(key, nodes))


def _doubts(posterior: AbstractGaussian, model: AbstractModel, share: float, step: float) -> tuple[str, ...]:
    if type(posterior) is type(model.conjugate_prior):
        return ()
    doubts = []
    if step < 1:
        doubts.append(
            f"only {step:.0%} of the erased evidence could be taken away before the belief lost its "
            "precision in some direction; retrain"
        )
    elif share > LARGEST_TRUSTED_SHARE:
        doubts.append(
            f"{share:.0%} of the belief's precision in some direction came from the erased records; the "
            "remaining ones may answer in ways that one step does not see"
        )
    if isinstance(posterior, DiagonalGaussian):
        doubts.append(
            "a diagonal posterior hides how parameters depend on each other: the step may fall short"
        )
    return tuple(doubts)
