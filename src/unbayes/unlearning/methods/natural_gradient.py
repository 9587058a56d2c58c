"""Unlearning by natural gradients, which goes past the paper.

A trained posterior is stationary, so the gradient of the *retraining* objective at q(θ|D) is known from the
erased records alone. In natural parameters a full step of retraining is η − Σ_{D_e} s_i(q), with s_i the site
of record i: the gradient of E_q[log p(y_i|θ)] with respect to the mean parameters of q.
"""

import math
from typing import Any, ClassVar

import jax

from unbayes._numerics.programs import compiled, kept
from unbayes._numerics.quadrature import QUASI_RANDOM_NODES
from unbayes.inference.passes import shared
from unbayes.memory import Memory
from unbayes.memory.sums import KeptSums
from unbayes.models import AbstractModel
from unbayes.posteriors import (
    AbstractGaussian,
    AbstractPosterior,
    DensePrecision,
    DiagonalGaussian,
    GaussianNatural,
)
from unbayes.trust.limits import DOUBTED_STATIONARITY_ALONE
from unbayes.unlearning.base import AbstractMethod
from unbayes.unlearning.methods.coreset_correction import coreset_correction
from unbayes.unlearning.methods.few_records import few_records_step
from unbayes.unlearning.methods.series_correction import kl, series_correction
from unbayes.unlearning.methods.step import Sites, Step, StepInfo, natural_gradient_step
from unbayes.unlearning.result import Solution

# How many times the next term of the sums a coreset beside them may move the belief, in nats.
LARGEST_MULTIPLE = 3.0

# A belief, its natural parameters, dense also where it is diagonal, and what was measured on the way.
Correction = tuple[AbstractGaussian, GaussianNatural, dict[str, Any]]


class NaturalGradient(AbstractMethod):
    """Subtract the erased records' sites from the natural parameters of a Gaussian posterior.

    Exact for a Gaussian likelihood. For a log-concave likelihood and a full covariance, the precision that is
    left is the prior's plus that of the remaining records, hence positive definite; elsewhere the step is
    held back, see `unbayes.unlearning.methods.step`, and the result says so. Nothing about it is random.

    With sums or a coreset in the memory, the remaining records answer: see
    `unbayes.unlearning.methods.series_correction` and `coreset_correction`.

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

    def summarise(self, posterior, model, erased, weights, *, memory, key) -> Sites:
        """Sums of sites and, where the memory has sums or they cost little, of higher derivatives."""
        assert isinstance(posterior, AbstractGaussian)
        sums = None if memory is None else memory.sums
        return _sites(posterior, model, erased, weights, sums, self.nodes)

    def site(self, value: Sites) -> GaussianNatural:
        """The sum of the sites."""
        return value.natural

    def solve(self, posterior, model, statistics, *, memory, key, progress=None) -> Solution:
        """Subtract the sites, as far as the belief stays proper, and let the memory correct the step."""
        assert isinstance(posterior, AbstractGaussian)
        curvature = None if memory is None else memory.curvature
        knows_curvature = curvature is not None or not isinstance(posterior, DiagonalGaussian)
        if memory is None or (curvature is None and memory.sums is None and memory.coreset is None):
            few = few_records_step(posterior, model, statistics.value, statistics.records)
            if few is not None:
                return Solution(few.posterior, measured=_measured(few.info, knows_curvature))
        # A step asks a model for its prior alone, none of a user's functions.
        with kept(holds_functions=False):
            step = natural_gradient_step(posterior, model, curvature, statistics.value)
        info = jax.device_get(step.info)
        if memory is not None and _is_misled(memory, info, posterior.dim):
            return self.solve(posterior, model, statistics, memory=None, key=key)
        measured = _measured(info, knows_curvature)
        found, natural = step.posterior, step.natural
        if memory is not None and isinstance(natural.precision, DensePrecision) and not info.keeps_width:
            sums, coreset = memory.sums, memory.remaining_coreset(statistics.matches)
            corrected = None
            if sums is not None:
                sums = sums.without(statistics.value.derivatives)
                corrected = self._by_sums(posterior, model, step, sums, coreset)
            if coreset is not None and (corrected is None or corrected[-1]["order"] == 1):
                corrected = self._by_coreset(posterior, model, step, *coreset)
            if corrected is not None:
                found, natural, answered = corrected
                measured |= answered
        return Solution(found, measured=measured, curvature=None if curvature is None else natural)

    def _by_coreset(self, posterior, model, step: Step, coreset, weights) -> Correction:
        """What a coreset says, where it settles."""
        found = coreset_correction(posterior, model, step, coreset, weights, model.nodes(self.nodes))
        measured: dict[str, Any] = {"unsettled": found.stationarity}
        if not found.is_settled:
            return step.posterior, step.natural, measured
        measured |= {
            "change": found.change,
            "second_term": found.second_term,
            "coverage": found.coverage,
            "uncertainty": found.uncertainty,
        }
        return found.posterior, found.natural, measured

    def _by_sums(self, posterior, model, step: Step, sums: KeptSums, coreset) -> Correction:
        """What sums over the remaining records say and, beyond their order, a coreset beside them.

        Where the coreset moves the belief further than the next term of the sums can, that is the chance of
        its draw, and it is left out.
        """
        nodes = model.nodes(self.nodes)
        # Without records at hand, the model is not asked for anything.
        with kept(holds_functions=False):
            found = series_correction(posterior, model, step, sums, None, nodes)
        if coreset is not None and found.order > 1:
            both = series_correction(posterior, model, step, sums, coreset, nodes)
            limit = found.disagreement if found.next_term is None else found.next_term
            if both.order > 1 and kl(both.posterior, found.posterior) <= LARGEST_MULTIPLE * (limit or 0.0):
                found = both
        measured = {
            "order": found.order,
            "change": found.change,
            "second_term": found.second_term,
            "next_term": found.next_term,
            "knows_next_term": found.knows_next_term,
            "disagreement": found.disagreement,
            "damping": found.damping,
            "summed_share": sums.share,
        }
        return found.posterior, found.natural, measured


def _is_misled(memory: Memory, info: StepInfo, dim: int) -> bool:
    """Whether training left more undone than the erased records move, or what it kept allows no step.

    The memory is then of a place to which retraining would not come back. Without it, a step is held back as
    far as the erased records themselves tell.
    """
    undone, change = memory.stationarity or 0.0, float(info.change)
    return not math.isfinite(change) or undone > max(change, DOUBTED_STATIONARITY_ALONE * dim)


def _measured(info: StepInfo, knows_curvature: bool) -> dict[str, Any]:
    """What a step tells of itself, as fields of `Measures`."""
    return {
        "share_removed": float(info.share),
        "least_share_removed": float(info.least_share),
        "erased_evidence": float(info.erased_evidence),
        "evidence": float(info.evidence),
        "keeps_width": bool(info.keeps_width),
        "step": float(info.taken),
        "change": float(info.change),
        "answering": float(info.answering),
        "inflation": float(info.inflation),
        "evidence_left": None if info.evidence_left is None else float(info.evidence_left),
        "second_term": None if info.second_term is None else float(info.second_term),
        "knows_curvature": knows_curvature,
    }


@compiled
def _sites(
    posterior: AbstractGaussian, model: AbstractModel, erased, weights, sums: KeptSums | None, nodes: int
) -> Sites:
    """Dense where that is affordable, for diagonal beliefs too: it tells how far parameters pull together."""

    def part(fixed, erased, weights):
        posterior, model, sums = fixed
        around = posterior.to_full() if model.has_dense_sites else posterior
        points = model.nodes(nodes)
        if sums is not None:
            return Sites(*sums.site_and_sums(posterior, around, model, erased, points, weights))
        if not model.has_third_derivatives:
            return Sites(model.site(around, erased, points, weights))
        basis = posterior.to_full().scale_tril
        return Sites(*model.site_and_derivatives(around, basis, erased, points, weights, order=3))

    return shared(part, (posterior, model, sums), erased, weights)
