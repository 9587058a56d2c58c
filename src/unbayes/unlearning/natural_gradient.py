"""Unlearning by natural gradients, which goes past the paper.

A trained posterior is stationary, so the gradient of the *retraining* objective at q(θ|D) is known from the
erased records alone. In natural parameters a full step of retraining is η − Σ_{D_e} s_i(q), with s_i the site
of record i: the gradient of E_q[log p(y_i|θ)] with respect to the mean parameters of q.
"""

import dataclasses
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unbayes.diagnostics import diagnose_weights
from unbayes.memory import Memory, draw_rows
from unbayes.metrics import parameter_kl
from unbayes.models import AbstractModel
from unbayes.posteriors import (
    AbstractGaussian,
    AbstractPosterior,
    DiagonalGaussian,
    GaussianNatural,
)
from unbayes.quadrature import QUASI_RANDOM_NODES
from unbayes.records import count, padded
from unbayes.unlearning.answer import answer
from unbayes.unlearning.base import AbstractAdditiveMethod
from unbayes.unlearning.result import Solution
from unbayes.unlearning.step import Step, change_of_pull, one_step
from unbayes.unlearning.trust import Doubt, Measures, doubts_about_step

# Erased records, at most, that are looked at again to tell how the remaining ones answer.
LARGEST_SAMPLE = 500
# Part of the change that may be missing where the remaining records' answer is cut short.
DOUBTED_UNREST = 0.01


class NaturalGradient(AbstractAdditiveMethod):
    """Subtract the erased records' sites from the natural parameters of a Gaussian posterior.

    Exact for a Gaussian likelihood. For a log-concave likelihood and a full covariance, the precision that is
    left is the prior's plus that of the remaining records, hence positive definite; elsewhere the step is
    held back, see `unbayes.unlearning.step`, and the result says so. Nothing about it is random.

    With a memory of the training set, the remaining records answer: see `unbayes.unlearning.answer`.

    Parameters
    ----------
    sampled
        Whether the erased records are a random sample of the training records, so that they tell how the
        remaining ones answer. Needs a memory, if only of the number of training records, and all the erased
        records in one call of `unlearn`.
    nodes
        Number of quasi-random nodes, where the predictor has several outputs or the model is general; that
        of training unless there is reason for another.
    memory
        What training kept; `unlearn` and its kind set it.
    """

    sampled: bool = False
    nodes: int = QUASI_RANDOM_NODES
    memory: Memory | None = eqx.field(default=None, repr=False)

    def with_memory(self, memory: Memory | None) -> Self:
        """The method with what training kept."""
        return self if memory is None else dataclasses.replace(self, memory=memory)

    def check(self, posterior: AbstractPosterior, model: AbstractModel) -> None:
        """Refuse a posterior that is not Gaussian, or a memory that does not fit."""
        if not isinstance(posterior, AbstractGaussian):
            raise TypeError(
                f"method NaturalGradient needs a Gaussian, got {type(posterior).__name__}; "
                "use ReverseKL or BankReverseKL for flows, Exact for conjugate posteriors and tables"
            )
        if self.sampled and self.memory is None:
            raise ValueError(
                "memory must be given with sampled=True: Memory(records=n) tells how many were trained on"
            )
        curvature = None if self.memory is None else self.memory.curvature
        if curvature is not None and curvature.linear.shape != (posterior.dim,):
            raise ValueError(
                f"memory must fit a posterior of {posterior.dim} parameters, got {len(curvature.linear)}"
            )

    @property
    def summary_settings(self) -> tuple:
        """The number of nodes; the memory counts by its arrays."""
        return (self.nodes,)

    def summarise(self, posterior, model, erased, *, key) -> GaussianNatural:
        """Sum of the sites at the trained posterior, dense where that is affordable."""
        assert isinstance(posterior, AbstractGaussian)
        rows, weights = padded(erased, posterior.dtype)
        return _sites(posterior, model, rows, weights, self.nodes)

    @property
    def gives_site(self) -> bool:
        """Always."""
        return True

    def site(self, value: GaussianNatural) -> GaussianNatural:
        """The sum of the sites."""
        return value

    def run(self, posterior, model, erased, *, key, progress=None) -> Solution:
        """Summarise, then solve; the rows tell more of what to expect of the remaining records."""
        rows = padded(erased, posterior.dtype)
        sample = draw_rows(erased, LARGEST_SAMPLE, key, posterior.dtype)
        coreset, weights = self._coreset
        if self.sampled and self.memory is not None:
            coreset, counts = sample
            weights = jnp.asarray(counts * (self.memory.records - count(erased)) / count(erased))
        asked = None if _counts(weights) else rows if count(erased) <= LARGEST_SAMPLE else sample
        value, step = _sites_and_step(posterior, self._curvature, model, rows, asked, self.nodes)
        return self._solve(posterior, model, value, step, coreset, weights)

    def solve(self, posterior, model, value: GaussianNatural, *, key, progress=None) -> Solution:
        """Subtract the sites, as far as the belief stays proper, and let the remaining records answer."""
        if self.sampled:
            raise ValueError("sampled must be False where batches are summarised apart: it needs the rows")
        assert isinstance(posterior, AbstractGaussian)
        step = one_step(posterior, model, self._curvature, value)
        return self._solve(posterior, model, value, step, *self._coreset)

    def _solve(self, posterior, model, value, step: Step, coreset, weights) -> Solution:
        found, natural, replied = step.posterior, step.natural, None
        told = jax.device_get(step.told)
        if _counts(weights) and natural.precision.ndim == 2 and not told.keeps_width:
            replied = answer(posterior, model, step.natural, coreset, weights, model.nodes(self.nodes))
            found, natural = replied.posterior, replied.natural
            change, second_term = (parameter_kl(found, other).value for other in (posterior, step.posterior))
        else:
            change, second_term = float(told.change), None if told.pull is None else float(told.pull)
        diagnosis = diagnose_weights(told.log_weights)
        measures = Measures(
            effective_sample_size=diagnosis.effective_sample_size,
            khat=diagnosis.khat,
            share_removed=float(told.share),
            least_share_removed=float(told.least_share),
            step=float(told.taken),
            second_term=second_term,
            coverage=None if replied is None else replied.coverage,
            uncertainty=None if replied is None else replied.uncertainty,
        )
        knows_curvature = self._curvature is not None or not isinstance(posterior, DiagonalGaussian)
        exact = type(posterior) is type(model.conjugate_prior)
        doubts = ()
        if not exact:
            doubts = doubts_about_step(
                measures,
                change,
                posterior.dim,
                knows_curvature=knows_curvature,
                keeps_width=bool(told.keeps_width),
            )
        if replied is not None and replied.stationarity > DOUBTED_UNREST * change:
            doubts = (*doubts, Doubt("the remaining records' answer did not settle; refine, or retrain"))
        return Solution(
            found,
            measures=measures,
            doubts=doubts,
            site=value,
            curvature=None if self._curvature is None else natural,
        )

    @property
    def _coreset(self) -> tuple[Any, Float[Array, " k"] | None]:
        return (None, None) if self.memory is None else (self.memory.coreset, self.memory.weights)

    @property
    def _curvature(self) -> GaussianNatural | None:
        return None if self.memory is None else self.memory.curvature


@eqx.filter_jit
def _sites(posterior: AbstractGaussian, model: AbstractModel, erased, weights, nodes: int):
    """Dense where that is affordable, for diagonal beliefs too: it tells how far parameters pull together."""
    around = posterior.to_full() if model.has_dense_sites else posterior
    return model.site(around, erased, model.nodes(nodes), weights)


@eqx.filter_jit
def _sites_and_step(
    posterior: AbstractGaussian, curvature, model: AbstractModel, erased, sample, nodes: int
) -> tuple[GaussianNatural, Step]:
    """Both in one call: of few records, calls are what takes the time."""
    rows, weights = erased
    site = _sites(posterior, model, rows, weights, nodes)
    step = one_step(posterior, model, curvature, site)
    if sample is None:
        return site, step
    rows, weights = sample
    pull = change_of_pull(posterior, step.posterior, model, rows, weights, model.nodes(nodes))
    return site, step._replace(told=step.told._replace(pull=pull))


def _counts(weights: Float[Array, " k"] | None) -> bool:
    """Whether there is a coreset of which anything remains."""
    return weights is not None and bool((np.asarray(weights) > 0).any())
