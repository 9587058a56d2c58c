"""Records that are too far from the rest to compute with."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unbayes._numerics.records import padded
from unbayes.models import AbstractModel
from unbayes.posteriors import AbstractPosterior

# Draws of θ at which far records are looked at.
DRAWS = 16
# Far records that are looked at, at most: one is enough to refuse.
MOST_LOOKED_AT = 128


def require_reach(
    posterior: AbstractPosterior, model: AbstractModel, evidence: Any, name: str = "erased"
) -> None:
    """Refuse a record beside whose log-likelihood a whole nat is lost in rounding, and name its row.

    That is a log-likelihood beyond 1/ε at a draw of the posterior: nothing can be told of any other record
    then. Refused as well are numbers whose third powers overflow, since derivatives up to the third are
    summed. Only numbers beyond 1/√ε, whose squares exceed 1/ε, are looked at, so that the check costs nothing
    where none is.

    Parameters
    ----------
    posterior
        q(θ|D), of which a few draws are taken.
    model
        Prior and likelihood.
    evidence
        The records, as `model.encode` returned them.
    name
        What the sentence calls them.
    """
    limits = jnp.finfo(model.dtype)
    nat_is_lost, cube_overflows = 1 / float(limits.eps), float(limits.max) ** (1 / 3)
    if _largest(evidence) <= nat_is_lost**0.5:
        return
    sizes = _sizes(evidence)
    rows = np.flatnonzero(sizes > nat_is_lost**0.5)[:MOST_LOOKED_AT]
    far, _ = padded(jax.tree.map(lambda leaf: np.asarray(leaf)[rows], evidence), model.dtype)
    values = np.abs(np.asarray(_log_likelihoods(posterior, model, far)))[:, : rows.size].max(0)
    beyond = ~(values <= nat_is_lost) | (sizes[rows] > cube_overflows)
    if beyond.any():
        row, value = rows[np.argmax(beyond)], values[np.argmax(beyond)]
        is_far = nat_is_lost < value < np.inf
        effect = f"make a log-likelihood of size {value:.2g}" if is_far else "overflow"
        raise ValueError(
            f"{name} must hold records that {model.dtype} can compute with beside others, got numbers up to "
            f"{sizes[row]:.3g} in row {row}, which {effect}; is it in the units of the training data, and "
            "was it part of them?"
        )


def _largest(evidence: Any) -> float:
    """Largest absolute number of all."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(evidence)]
    return max(max(float(leaf.max(initial=0)), -float(leaf.min(initial=0))) for leaf in leaves)


def _sizes(evidence: Any) -> Float[np.ndarray, " n"]:
    """Largest absolute number of each record."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(evidence)]
    return np.max(
        [np.abs(leaf.astype(np.float64)).reshape(len(leaf), -1).max(1, initial=0) for leaf in leaves], 0
    )


@eqx.filter_jit
def _log_likelihoods(posterior: AbstractPosterior, model: AbstractModel, evidence) -> Float[Array, "s n"]:
    thetas = posterior.sample(jax.random.key(0), (DRAWS,))
    return jax.vmap(model.log_likelihood, (0, None))(thetas, evidence)
