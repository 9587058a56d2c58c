"""Mixing solves what is linear in as many steps as it has directions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unbayes.inference.mixing import History
from unbayes.posteriors import DensePrecision, FullGaussian, GaussianNatural

ROOT = np.array([0.7, -1.2])
SLOW = np.array([[0.9, 0.2], [-0.1, -0.8]])


def _step(natural: GaussianNatural) -> GaussianNatural:
    """Towards the root, slowly in one direction and past it in the other; the precision is never wrong."""
    return GaussianNatural(ROOT + SLOW @ (natural.linear - ROOT), natural.precision)


def test_a_linear_map_is_solved_by_two_steps_of_history(dtype):
    natural = GaussianNatural(jnp.array([5.0, 3.0], dtype), DensePrecision(2 * jnp.eye(2, dtype=dtype)))
    history = History.begin(natural, depth=2)
    for _ in range(3):
        target = jax.tree.map(lambda leaf: leaf.astype(dtype), _step(history.natural))
        proposed = history.propose(FullGaussian.from_natural(history.natural), target, jnp.ones((), dtype))
        history = history.after(proposed, target, jnp.asarray(True), jnp.asarray(True))
    np.testing.assert_allclose(history.natural.linear, ROOT, atol=1e-9 if dtype == jnp.float64 else 1e-3)
    np.testing.assert_allclose(history.natural.precision.matrix, 2 * np.eye(2), rtol=1e-5)


@pytest.mark.parametrize("step", [0.25, 1.0])
def test_without_history_a_plain_step(step):
    natural = GaussianNatural(jnp.array([5.0, 3.0]), DensePrecision(2 * jnp.eye(2)))
    target = GaussianNatural(jnp.array([1.0, 1.0]), DensePrecision(4 * jnp.eye(2)))
    proposed = History.begin(natural, depth=3).propose(
        FullGaussian.from_natural(natural), target, jnp.asarray(step)
    )
    np.testing.assert_allclose(proposed.linear, (1 - step) * natural.linear + step * target.linear)
    np.testing.assert_allclose(proposed.precision.matrix, (2 + 2 * step) * np.eye(2))


def test_what_is_not_accepted_begins_anew_where_it_was():
    natural = GaussianNatural(jnp.array([5.0, 3.0]), DensePrecision(2 * jnp.eye(2)))
    history = History.begin(natural, depth=2)
    target = _step(natural)
    history = history.after(target, target, jnp.asarray(True), jnp.asarray(True))
    assert int(history.taken) == 1
    refused = history.after(_step(target), _step(target), jnp.asarray(False), jnp.asarray(True))
    assert int(refused.taken) == 0
    np.testing.assert_array_equal(refused.natural.linear, target.linear)
