"""Third and fourth derivatives of linear models: small integrals of each record, times products of a."""

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from unbayes._numerics.linalg import Half
from unbayes._numerics.quadrature import Nodes
from unbayes._numerics.records import accumulate, cached_chunk
from unbayes.models.derivatives import Derivatives, leading, of_outputs
from unbayes.models.evidence import LinearEvidence
from unbayes.posteriors import AbstractGaussian

if TYPE_CHECKING:
    from unbayes.models.linear import LinearModel


def derivatives(
    model: "LinearModel",
    gaussian: AbstractGaussian,
    directions: Float[Array, "d k"],
    evidence: LinearEvidence,
    nodes: Nodes,
    weights: Float[Array, " n"] | None,
    order: int,
) -> Derivatives:
    """As `AbstractModel.derivatives`."""
    outputs, count = model.likelihood.outputs, directions.shape[1]

    def part(weighted):
        evidence, weights = weighted
        each = _integrals(model, gaussian, evidence, nodes, order)
        if weights is not None:
            each = [weights.reshape(-1, *[1] * (tensor.ndim - 1)) * tensor for tensor in each]
        return of_outputs(_along(model, directions, evidence), each)

    per_record = outputs**2 * Half(count).size
    if order == 5:
        per_record = max(per_record, outputs**3 * Half(leading(count)).size * leading(count))
    if outputs > 1:
        per_record = max(per_record, nodes.count * outputs**order)
    return accumulate(part, (evidence, weights), cached_chunk(per_record))


def bending(
    model: "LinearModel",
    gaussian: AbstractGaussian,
    root: Float[Array, "d d"],
    evidence: LinearEvidence,
    nodes: Nodes,
    weights: Float[Array, " n"] | None,
) -> Float[Array, "d d"]:
    """Σ_n (|l‴| √c + |l⁗| c) b bᵀ with b = rootᵀ a and c = |b|², over the outputs of each record."""

    def part(weighted):
        evidence, weights = weighted
        along = _along(model, root, evidence)
        size = (along**2).sum(-1)
        if model.likelihood.outputs == 1:
            third, fourth = (
                jnp.abs(values).reshape(-1, 1) for values in _integrals(model, gaussian, evidence, nodes, 4)
            )
        else:
            # Of several outputs, the curvature itself bounds how fast it changes.
            moments = model._predictor_moments(gaussian, evidence, nodes)
            curvature = model._integrals(*moments, evidence.targets, nodes).curvature
            third = fourth = jnp.abs(jnp.diagonal(curvature, axis1=1, axis2=2))
        each = third * size**0.5 + fourth * size
        each = each if weights is None else weights[:, None] * each
        return jnp.einsum("no,noi,noj->ij", each, along, along)

    return accumulate(part, (evidence, weights), model._chunk(nodes))


def _along(
    model: "LinearModel", directions: Float[Array, "d k"], evidence: LinearEvidence
) -> Float[Array, "n o k"]:
    """How far f moves as θ moves by one along each direction."""
    roots = directions.reshape(model.likelihood.outputs, -1, directions.shape[1])
    return jnp.einsum("np,opk->nok", evidence.design, roots)


def _integrals(
    model: "LinearModel", gaussian: AbstractGaussian, evidence: LinearEvidence, nodes: Nodes, order: int
) -> list[Array]:
    """E[∇³ log p(y|f)] and so on up to `order`, of each record: shapes (n, o, o, o), (n, o, o, o, o), …."""
    mean, root = model._predictor_moments(gaussian, evidence, nodes)
    if model.likelihood.outputs == 1:
        each = model.likelihood.higher_derivatives(mean[:, 0], root[:, 0, 0] ** 2, evidence.targets, order)
        return [values.reshape(-1, *[1] * power) for power, values in enumerate(each, 3)]

    def curvature(shift):
        return model._integrals(mean + shift, root, evidence.targets, nodes).curvature

    functions = [jax.jacfwd(curvature)]
    for _ in range(3, order):
        functions.append(jax.jacfwd(functions[-1]))
    return [-function(jnp.zeros(mean.shape[1], mean.dtype)) for function in functions]
