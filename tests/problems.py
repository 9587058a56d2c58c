"""Small problems with known answers, shared by the tests."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import unbayes as ub

KEY = jax.random.key(0)


class Problem(NamedTuple):
    model: object
    full: object
    erased: object
    remaining: object


def take(records, rows):
    return jax.tree.map(lambda a: a[rows], records)


def assert_same(left, right):
    """Two trees of arrays are the same but for rounding in double precision."""
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for one, other in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        scale = np.abs(np.asarray(other, float)).max(initial=0)
        np.testing.assert_allclose(one, other, 1e-12, 1e-12 * scale)


def split(model, records, erased_rows) -> Problem:
    total = len(jax.tree.leaves(records)[0])
    kept = np.setdiff1d(np.arange(total), erased_rows)
    return Problem(model, records, take(records, np.asarray(erased_rows)), take(records, kept))


def remaining_first(problem: Problem) -> Problem:
    """The same problem, with the remaining records before the erased ones in `full`."""
    full = jax.tree.map(lambda *parts: np.concatenate(parts), problem.remaining, problem.erased)
    return problem._replace(full=full)


def linear_gaussian(erased: int = 20) -> Problem:
    """Linear regression with known noise: every method can be compared with the exact answer."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3))
    y = x @ [1.0, -2.0, 0.5] + 0.3 + 0.5 * rng.normal(size=200)
    return split(
        ub.linear_regression(3, noise_scale=0.5, prior_scale=2.0), (x, y), np.arange(200 - erased, 200)
    )


def logistic(erased: int = 20) -> Problem:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(150, 2))
    y = (rng.random(150) < 1 / (1 + np.exp(-(x @ [2.0, -1.0] + 0.5)))).astype(int)
    return split(ub.logistic_regression(2, prior_scale=3.0), (x, y), np.arange(150 - erased, 150))


def bimodal():
    """Appendix of the paper: a Gaussian belief, a model, and the record that made a second mode."""
    model = ub.DensityModel(
        lambda theta: jnp.zeros(()), lambda theta, record: jnp.logaddexp(0.0, 2 * theta[0] - 2), dim=1
    )
    return ub.DiagonalGaussian(jnp.array([1.004]), jnp.array([1.390])), model, np.zeros(1)


@functools.cache
def trained(make, part: str = "full", family=ub.FullGaussian):
    problem = make()
    return ub.fit(problem.model, getattr(problem, part), family=family, key=KEY).posterior
