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
# Fiftieths of the work that are compared with as many before them to tell whether an objective is flat.
FLAT_REPORTS = 5

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
    until_flat: bool = False,
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
    until_flat
        Let go of each problem once a tenth of the iterations differs from the tenth before it, up or down, by
        no more than noise.
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
    in_one_go = progress.silent and not early_stop and not until_flat
    report = iterations if in_one_go else max(iterations // REPORTS, 1)
    pieces: list[list[np.ndarray]] = [[] for _ in range(width)]
    ends: dict[int, Any] = {}
    # Problems that each row of `state` belongs to; those that have ended may run along for a while.
    rows = np.arange(width)
    with progress.track(description, iterations) as advance:
        for first in range(0, iterations, report):
            part = keys[first : first + report]
            state, values = _advance(objective, lanes, state, rest, part, optimizer)
            for row, lane in enumerate(rows):
                if lane not in ends:
                    pieces[lane].append(np.asarray(values[row]))
                    if _has_ended(pieces[lane], early_stop, until_flat):
                        ends[lane] = jax.tree.map(lambda leaf, row=row: leaf[row], state[0])
            advance(len(part), f"{np.mean(values):.5g}")
            if len(ends) == width:
                break
            left = [row for row, lane in enumerate(rows) if lane not in ends]
            # Every number of problems is compiled anew, so that few of them are let go one by one.
            if len(left) <= len(rows) // 2:
                rows, state, objective = rows[left], *_rows(left, state, objective, lanes)
    ends |= {
        lane: jax.tree.map(lambda leaf, row=row: leaf[row], state[0])
        for row, lane in enumerate(rows)
        if lane not in ends
    }
    return [(eqx.combine(ends[lane], rest), np.concatenate(pieces[lane])) for lane in range(width)]


def _rows(left: list[int], state, objective, lanes):
    """Some of several problems."""
    chosen = np.asarray(left)
    return jax.tree.map(lambda leaf: leaf[chosen], state), jax.tree.map(
        lambda axis, leaf: leaf if axis is None else leaf[chosen],
        lanes,
        objective,
        is_leaf=lambda axis: axis is None,
    )


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


def _has_ended(pieces: list[np.ndarray], early_stop: bool, until_flat: bool) -> bool:
    if until_flat and len(pieces) >= 2 * FLAT_REPORTS:
        change, noise = _improvement(
            np.concatenate(pieces[-2 * FLAT_REPORTS : -FLAT_REPORTS]), np.concatenate(pieces[-FLAT_REPORTS:])
        )
        if abs(change) <= noise:
            return True
    return early_stop and len(pieces) > 2 and _no_better(*pieces[-3:-1]) and _no_better(*pieces[-2:])


def _no_better(before: np.ndarray, after: np.ndarray) -> bool:
    change, noise = _improvement(before, after)
    return bool(change < noise)


def _improvement(before: np.ndarray, after: np.ndarray) -> tuple[float, float]:
    """By how much the mean fell, and the standard error of that."""
    noise = np.sqrt(before.var() / before.size + after.var() / after.size)
    return before.mean() - after.mean(), noise
