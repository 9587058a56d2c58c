"""Unlearning by natural gradients, which goes past the paper.

A trained posterior is stationary, so the gradient of the *retraining* objective at q(θ|D) is known from the
erased records alone. In natural parameters a full step of retraining is η − Σ_{D_e} s_i(q), with s_i the site
of record i: the gradient of E_q[log p(y_i|θ)] with respect to the mean parameters of q.
"""

from typing import Any, ClassVar

import equinox as eqx
import jax

from unbayes._numerics.quadrature import QUASI_RANDOM_NODES
from unbayes._numerics.records import padded
from unbayes.memory import Memory
from unbayes.models import AbstractModel
from unbayes.posteriors import (
    AbstractGaussian,
    AbstractPosterior,
    DensePrecision,
    DiagonalGaussian,
    GaussianNatural,
)
from unbayes.unlearning.base import AbstractMethod
from unbayes.unlearning.methods.coreset_correction import coreset_correction
from unbayes.unlearning.methods.step import Sites, natural_gradient_step
from unbayes.unlearning.result import Solution


class NaturalGradient(AbstractMethod):
    """Subtract the erased records' sites from the natural parameters of a Gaussian posterior.

    Exact for a Gaussian likelihood. For a log-concave likelihood and a full covariance, the precision that is
    left is the prior's plus that of the remaining records, hence positive definite; elsewhere the step is
    held back, see `unbayes.unlearning.methods.step`, and the result says so. Nothing about it is random.

    With a coreset in the memory, the remaining records answer: see
    `unbayes.unlearning.methods.coreset_correction`.

    Parameters
    ----------
    nodes
        Number of quasi-random nodes, where the predictor has several outputs or the model is general; that
        of training unless there is reason for another.
    """

    measures_evidence: ClassVar[bool] = True

    nodes: int = QUASI_RANDOM_NODES

    def check(self, posterior: AbstractPosterior, model: AbstractModel, memory: Memory | None) -> None:
        """Refuse a posterior that is not Gaussian, or a memory that does not fit."""
        if not isinstance(posterior, AbstractGaussian):
            raise TypeError(
                f"method NaturalGradient needs a Gaussian, got {type(posterior).__name__}; "
                "use ReverseKL or BankReverseKL for flows, Exact for conjugate posteriors and tables"
            )
        curvature = None if memory is None else memory.curvature
        if curvature is not None and curvature.linear.shape != (posterior.dim,):
            raise ValueError(
                f"memory must fit a posterior of {posterior.dim} parameters, got {len(curvature.linear)}"
            )

    def is_exact(self, posterior: AbstractPosterior, model: AbstractModel) -> bool:
        """Whether the likelihood is Gaussian and the covariance full: one step is then all there is."""
        return model.is_conjugate_to(posterior)

    @property
    def summary_settings(self) -> tuple:
        """The number of nodes, at which sites are computed."""
        return (self.nodes,)

    def summarise(self, posterior, model, erased, *, key) -> Sites:
        """Sums of sites and, where affordable, of third derivatives, at the trained posterior."""
        assert isinstance(posterior, AbstractGaussian)
        return _sites(posterior, model, *padded(erased, posterior.dtype), self.nodes)

    def site(self, value: Sites) -> GaussianNatural:
        """The sum of the sites."""
        return value.natural

    def solve(self, posterior, model, statistics, *, memory, key, progress=None) -> Solution:
        """Subtract the sites, as far as the belief stays proper, and let the remaining records correction."""
        assert isinstance(posterior, AbstractGaussian)
        curvature = None if memory is None else memory.curvature
        step = natural_gradient_step(posterior, model, curvature, statistics.value)
        info = jax.device_get(step.info)
        measured: dict[str, Any] = {
            "share_removed": float(info.share),
            "least_share_removed": float(info.least_share),
            "keeps_width": bool(info.keeps_width),
            "step": float(info.taken),
            "change": float(info.change),
            "evidence_left": None if info.evidence_left is None else float(info.evidence_left),
            "second_term": None if info.second_term is None else float(info.second_term),
            "knows_curvature": curvature is not None or not isinstance(posterior, DiagonalGaussian),
        }
        found, natural = step.posterior, step.natural
        coreset = None if memory is None else memory.remaining_coreset(statistics.matches)
        if coreset is not None and isinstance(natural.precision, DensePrecision) and not info.keeps_width:
            correction = coreset_correction(posterior, model, step, *coreset, model.nodes(self.nodes))
            measured["unsettled"] = correction.stationarity
            if correction.is_settled:
                found, natural = correction.posterior, correction.natural
                measured |= {
                    "change": correction.change,
                    "second_term": correction.second_term,
                    "coverage": correction.coverage,
                    "uncertainty": correction.uncertainty,
                }
        return Solution(found, measured=measured, curvature=None if curvature is None else natural)


@eqx.filter_jit
def _sites(posterior: AbstractGaussian, model: AbstractModel, erased, weights, nodes: int) -> Sites:
    """Dense where that is affordable, for diagonal beliefs too: it tells how far parameters pull together."""
    around = posterior.to_full() if model.has_dense_sites else posterior
    points = model.nodes(nodes)
    natural = model.site(around, erased, points, weights)
    third = None
    if model.has_third_derivatives:
        third = model.third_derivatives(posterior.to_full(), erased, points, weights)
    return Sites(natural, third)
