"""Conjugate beliefs against scipy."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from unbayes.posteriors import AbstractExponentialFamily, Beta, Dirichlet, Gamma, NormalInverseGamma, Table

PRECISION = np.array([[2.0, 0.3], [0.3, 1.0]])
MEAN = np.array([0.5, -1.0])
SHAPE, SCALE = 3.0, 2.0
REGRESSION = NormalInverseGamma(PRECISION @ MEAN, PRECISION, SHAPE, SCALE + 0.5 * MEAN @ PRECISION @ MEAN)


def regression_log_prob(theta):
    variance = theta[-1]
    weights = stats.multivariate_normal(MEAN, variance * np.linalg.inv(PRECISION)).logpdf(theta[:-1])
    return weights + stats.invgamma(SHAPE, scale=SCALE).logpdf(variance)


def regression_entropy():
    noise = stats.invgamma(SHAPE, scale=SCALE)
    weights = stats.multivariate_normal(MEAN, np.linalg.inv(PRECISION)).entropy()
    return noise.entropy() + weights + noise.expect(np.log)


class Case(NamedTuple):
    posterior: AbstractExponentialFamily
    inside: list
    outside: list
    log_prob: Callable
    entropy: Callable


CASES = {
    "beta": Case(
        Beta(3, 2.5),
        [[0.1], [0.9]],
        [[-0.1], [1.1]],
        lambda t: stats.beta(3, 2.5).logpdf(t[0]),
        stats.beta(3, 2.5).entropy,
    ),
    "dirichlet": Case(
        Dirichlet([2, 3, 0.5]),
        [[0.2, 0.3, 0.5], [0.7, 0.2, 0.1]],
        [[0.2, 0.3, 0.6], [-0.1, 0.6, 0.5]],
        stats.dirichlet([2, 3, 0.5]).logpdf,
        stats.dirichlet([2, 3, 0.5]).entropy,
    ),
    "gamma": Case(
        Gamma(3, 2.5),
        [[0.1], [4.0]],
        [[-1.0]],
        lambda t: stats.gamma(3, scale=1 / 2.5).logpdf(t[0]),
        stats.gamma(3, scale=1 / 2.5).entropy,
    ),
    "normal inverse gamma": Case(
        REGRESSION,
        [[0.3, -0.5, 0.7], [1.0, 0.0, 2.0]],
        [[0.0, 0.0, -1.0], [0.0, 0.0, 0.0]],
        regression_log_prob,
        regression_entropy,
    ),
    "table": Case(
        Table([[0], [1], [5]], np.log([0.2, 0.3, 0.5]) + 7),
        [[1.0], [5.0]],
        [[0.5]],
        lambda t: np.log(0.3 if t[0] == 1 else 0.5),
        lambda: stats.entropy([0.2, 0.3, 0.5]),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_density_and_entropy_are_those_of_scipy(case):
    theta = np.array([*case.inside, *case.outside])
    expected = [case.log_prob(np.asarray(row)) for row in case.inside] + [-np.inf] * len(case.outside)
    own, entropy = jax.jit(lambda: (case.posterior.log_prob(theta), case.posterior.entropy()))()
    np.testing.assert_allclose(own, expected, rtol=1e-10)
    assert float(entropy) == pytest.approx(float(case.entropy()), rel=1e-7)


@pytest.mark.parametrize(
    ("posterior", "mode"),
    [
        (Beta(3.0, 2.0), [2 / 3]),
        (Beta(3.0, 1.0), [1.0]),
        (Beta(0.5, 2.0), [0.0]),
        (Gamma(3.0, 2.0), [1.0]),
        (Gamma(0.5, 2.0), [0.0]),
        (Dirichlet([2.0, 3.0, 1.0]), [1 / 3, 2 / 3, 0.0]),
        (Dirichlet([1.0, 1.0]), [0.5, 0.5]),
        (REGRESSION, [*MEAN, SCALE / (SHAPE + 2)]),
        (Table([[0.0], [5.0]], [0.0, 1.0]), [5.0]),
    ],
)
def test_mode(posterior, mode):
    np.testing.assert_allclose(posterior.mode(), mode, rtol=1e-12)


def test_parts_of_the_normal_inverse_gamma():
    assert float(REGRESSION.scale) == pytest.approx(SCALE)
    np.testing.assert_allclose(REGRESSION.unit_noise.mean, MEAN, rtol=1e-12)
    np.testing.assert_allclose(REGRESSION.unit_noise.covariance, np.linalg.inv(PRECISION), rtol=1e-12)
    assert NormalInverseGamma([0], [[1]], 1, 1).dtype == jnp.float64


def test_more_evidence_than_prior_and_data_hold_is_negative_not_nan():
    """Where the precision is no longer positive definite, the noise that is left has no value."""
    natural = REGRESSION.natural
    indefinite = eqx.tree_at(lambda n: n.gaussian.precision, natural, natural.gaussian.precision * -1)
    prior = NormalInverseGamma([0.0, 0.0], 0.1 * np.eye(2), 1.0, 1.0)
    assert float(REGRESSION.evidence_left(indefinite, prior)) < -1


def test_table_is_updated_by_multiplication():
    table = CASES["table"].posterior
    assert table.dtype == jnp.float64
    np.testing.assert_allclose(table.probabilities, [0.2, 0.3, 0.5], rtol=1e-12)
    likelihood = np.array([0.9, 0.5, 0.1])
    updated = table.with_natural(table.natural + np.log(likelihood))
    bayes = np.array([0.2, 0.3, 0.5]) * likelihood
    np.testing.assert_allclose(updated.probabilities, bayes / bayes.sum(), rtol=1e-12)
    assert float(table.evidence_left(updated.natural, None)) == 1


def test_impossible_values_of_a_table_carry_no_entropy():
    table = Table([[0.0], [1.0]], [0.0, -jnp.inf])
    assert float(table.entropy()) == 0
    assert float(table.log_prob(np.array([1.0]))) == -np.inf
