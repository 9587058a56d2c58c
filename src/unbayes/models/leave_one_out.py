"""Records of a linear model seen from the belief without them."""

from typing import TYPE_CHECKING

import jax.numpy as jnp

from unbayes._numerics.quadrature import Nodes
from unbayes.models.evidence import LinearEvidence
from unbayes.models.predictive import Surprise
from unbayes.posteriors import AbstractGaussian

if TYPE_CHECKING:
    from unbayes.models.linear import LinearModel

# Share of its precision that a belief keeps, at least, when a single record is left out of it.
LEAST_LEFT_OUT = 1e-6


def surprise(
    model: "LinearModel", gaussian: AbstractGaussian, evidence: LinearEvidence, nodes: Nodes
) -> Surprise | None:
    """How improbable targets are under the belief from which each record's own site was taken away.

    Exact for a Gaussian likelihood. Where f has several outputs, to first order: the mean moves, the width
    stays.
    """
    likelihood, targets = model.likelihood, model.likelihood.outcomes(evidence.targets)
    mean, root = model._predictor_moments(gaussian, evidence, nodes)
    integrals = model._integrals(mean, root, evidence.targets, nodes)
    spread = gaussian.output_covariance(evidence.design, likelihood.outputs)
    if likelihood.outputs > 1:
        moved = mean - jnp.einsum("noq,nq->no", spread, integrals.slope)
        return likelihood.joint_predictive(moved, root, nodes).surprise(targets)
    spread, slope, curvature = spread[:, 0, 0], integrals.slope[:, 0], integrals.curvature[:, 0, 0]
    wider = spread / jnp.maximum(1 - curvature * spread, LEAST_LEFT_OUT)
    left_open = model.open_variance(evidence)
    variance = wider if left_open is None else wider + left_open
    return likelihood.gaussian_predictive(mean[:, 0] - wider * slope, variance).surprise(targets)
