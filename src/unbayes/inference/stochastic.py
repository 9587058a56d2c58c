"""The one compiled loop in which every stochastic method runs."""

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import paramax
from jaxtyping import Array, Float, PRNGKeyArray

from unbayes.posteriors import AbstractPosterior
from unbayes.progress import AbstractProgress, Silent

# Made once, so that calls with the default optimiser share one compilation.
ADAM = optax.adam(1e-3)
REPORTS = 50

Candidate = TypeVar("Candidate", bound=AbstractPosterior)
Objective = Callable[[Candidate, PRNGKeyArray], Float[Array, ""]]


def minimise(objective: Objective, start: Candidate, **settings) -> tuple[Candidate, Float[np.ndarray, " i"]]:
    """Minimise `objective(candidate, key)` from `start`, by stochastic gradients.

    Parameters
    ----------
    objective
        A pytree, so that calls with the same shapes share one compilation.
    start
        Where to begin; leaves that are not floating-point arrays, or marked non-trainable, stay as they are.
    **settings
        As for `minimise_each`.

    Returns
    -------
    candidate
        The last iterate.
    trace
        Value of the objective at every iteration.
    """
    lifted = jax.tree.map(lambda leaf: leaf[None] if eqx.is_array(leaf) else leaf, objective)
    lanes = jax.tree.map(lambda leaf: 0 if eqx.is_array(leaf) else None, objective)
    ((candidate, trace),) = minimise_each(lifted, lanes, start, **settings)
    return candidate, trace


def minimise_each(
    objective: Objective,
    lanes: Any,
    start: Candidate,
    *,
    optimizer: optax.GradientTransformation = ADAM,
    iterations: int,
    key: PRNGKeyArray,
    progress: AbstractProgress | None = None,
    description: str = "optimising",
    early_stop: bool = False,
) -> list[tuple[Candidate, Float[np.ndarray, " i"]]]:
    """Solve several problems that differ in some leaves of `objective`, on the same random numbers.

    Parameters
    ----------
    objective
        As for `minimise`; the leaves that differ carry a leading axis, one entry per problem.
    lanes
        A tree like `objective` with 0 at those leaves and None elsewhere.
    start
        Where all of them begin.
    optimizer
        Any optax gradient transformation.
    iterations
        Number of steps; the same random numbers are used however progress is reported.
    key
        Key of the draws.
    progress
        Told about every fiftieth of the work.
    description
        What the progress meter calls it.
    early_stop
        Stop once a fiftieth of the iterations no longer improves on the one before it beyond noise, twice.
    """
    progress = Silent() if progress is None else progress
    parameters, rest = eqx.partition(
        start, eqx.is_inexact_array, is_leaf=lambda leaf: isinstance(leaf, paramax.NonTrainable)
    )
    varying = jax.tree.map(
        lambda axis, leaf: None if axis is None else leaf, lanes, objective, is_leaf=lambda axis: axis is None
    )
    width = jax.tree.leaves(varying)[0].shape[0]
    state = jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf, (width, *leaf.shape)), (parameters, optimizer.init(parameters))
    )
    keys = jr.split(key, iterations)
    report = iterations if progress.silent and not early_stop else max(iterations // REPORTS, 1)
    pieces: list[np.ndarray] = []
    settled = 0
    with progress.track(description, iterations) as advance:
        for first in range(0, iterations, report):
            part = keys[first : first + report]
            state, values = _advance(objective, lanes, state, rest, part, optimizer)
            pieces.append(np.asarray(values))
            advance(len(part), f"{np.mean(pieces[-1]):.5g}")
            if early_stop and len(pieces) > 1:
                settled = settled + 1 if _no_better(*pieces[-2:]) else 0
                if settled == 2:
                    break
    trace = np.concatenate(pieces, axis=-1)
    return [
        (eqx.combine(jax.tree.map(lambda leaf, lane=lane: leaf[lane], state[0]), rest), trace[lane])
        for lane in range(width)
    ]


@eqx.filter_jit
def _advance(objective, lanes, state, rest, keys, optimizer):
    def run(objective, state):
        def step(state, key):
            parameters, memory = state

            def loss(parameters):
                return objective(eqx.combine(parameters, rest), key)

            value, gradient = eqx.filter_value_and_grad(loss)(parameters)
            # optax raises Python floats to integer counts, which strict promotion refuses.
            with jax.numpy_dtype_promotion("standard"):
                updates, memory = optimizer.update(gradient, memory, parameters)
            return (eqx.apply_updates(parameters, updates), memory), value

        return jax.lax.scan(step, state, keys)

    return eqx.filter_vmap(run, in_axes=(lanes, 0))(objective, state)


def _no_better(before: np.ndarray, after: np.ndarray) -> bool:
    noise = np.sqrt(before.var() / before.size + after.var() / after.size)
    return bool(before.mean() - after.mean() < noise)
