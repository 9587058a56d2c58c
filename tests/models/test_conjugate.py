"""Conjugate models: likelihoods, sufficient statistics, and the evidence log p(D) that scipy knows."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats
from scipy.special import comb

from unbayes.models import (
    AbstractConjugateModel,
    BetaBernoulli,
    DirichletCategorical,
    GammaPoisson,
    RawFeatures,
    UnknownNoiseRegression,
)
from unbayes.posteriors import Beta, Dirichlet, Gamma, NormalInverseGamma, Table

OUTCOMES = np.array([1, 0, 1, 1, 0])
CLASSES = np.array([0, 2, 1, 2, 2])
COUNTS = np.array([3, 0, 5, 2, 1])
X, Y = np.array([[0.5], [-1.0], [2.0], [0.1], [-0.4]]), np.array([1.0, -0.7, 2.5, 0.0, 0.3])


def gamma_poisson_evidence():
    """Chain rule over negative binomial predictive distributions."""
    shape, rate, total = 3.0, 2.0, 0.0
    for y in COUNTS:
        total += stats.nbinom.logpmf(y, shape, rate / (rate + 1))
        shape, rate = shape + y, rate + 1
    return total


def regression_evidence():
    """y is a multivariate t: N(0, σ²(I + AAᵀ)) under σ² ~ InverseGamma(2, 1)."""
    design = np.c_[np.ones(5), X]
    return stats.multivariate_t(np.zeros(5), (np.eye(5) + design @ design.T) / 2, df=4).logpdf(Y)


class Row(NamedTuple):
    model: AbstractConjugateModel
    records: Any
    thetas: list
    log_likelihood: Callable
    log_evidence: float
    log_predictive: Any
    statistics: Any


ROWS = {
    "beta": Row(
        BetaBernoulli(Beta(2.0, 3.0)),
        OUTCOMES,
        [[0.3], [0.8]],
        lambda theta: stats.bernoulli.logpmf(OUTCOMES, theta[0]),
        stats.betabinom.logpmf(3, 5, 2, 3) - np.log(comb(5, 3)),
        np.log(np.where(OUTCOMES, 0.4, 0.6)),
        (3, 2),
    ),
    "dirichlet": Row(
        DirichletCategorical(Dirichlet([2.0, 1.0, 3.0])),
        CLASSES,
        [[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]],
        lambda theta: np.log(np.take(theta, CLASSES)),
        stats.dirichlet_multinomial.logpmf([1, 1, 3], [2, 1, 3], 5) - np.log(20),
        np.log(np.array([2, 1, 3])[CLASSES] / 6),
        [1, 1, 3],
    ),
    "gamma": Row(
        GammaPoisson(Gamma(3.0, 2.0)),
        COUNTS,
        [[0.5], [3.0]],
        lambda theta: stats.poisson.logpmf(COUNTS, theta[0]),
        gamma_poisson_evidence(),
        stats.nbinom.logpmf(COUNTS, 3, 2 / 3),
        (11, 5),
    ),
    "normal inverse gamma": Row(
        UnknownNoiseRegression(RawFeatures(1), NormalInverseGamma(np.zeros(2), np.eye(2), 2.0, 1.0)),
        (X, Y),
        [[0.1, 0.9, 0.5], [-1.0, 0.3, 2.0]],
        lambda theta: stats.norm.logpdf(Y, theta[0] + theta[1] * X[:, 0], np.sqrt(theta[2])),
        regression_evidence(),
        stats.t.logpdf(Y, 4, scale=np.sqrt((2 + X[:, 0] ** 2) / 2)),
        None,
    ),
}
over_rows = pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())


def posterior_of(row, evidence):
    prior = row.model.conjugate_prior
    return prior.with_natural(jax.tree.map(jnp.add, prior.natural, row.model.sufficient_statistics(evidence)))


@over_rows
def test_log_likelihood_is_that_of_scipy(row):
    evidence = row.model.encode(row.records)
    for theta in row.thetas:
        own = row.model.log_likelihood(jnp.asarray(theta), evidence)
        np.testing.assert_allclose(own, row.log_likelihood(theta), rtol=1e-10)


@over_rows
def test_prior_times_likelihood_over_posterior_is_the_evidence(row):
    """At every θ: log p(θ) + log p(D|θ) − log p(θ|D) = log p(D)."""
    evidence = row.model.encode(row.records)
    posterior = posterior_of(row, evidence)
    for theta in map(jnp.asarray, row.thetas):
        joint = row.model.log_prior(theta) + row.model.log_likelihood(theta, evidence).sum()
        assert float(joint - posterior.log_prob(theta)) == pytest.approx(row.log_evidence, rel=1e-9)


@over_rows
def test_sufficient_statistics_add_up(row):
    model, split = row.model, 2
    whole = model.sufficient_statistics(model.encode(row.records))
    parts = [
        model.sufficient_statistics(model.encode(jax.tree.map(lambda a, part=part: a[part], row.records)))
        for part in (slice(split), slice(split, None))
    ]
    together = jax.tree.map(jnp.add, *parts)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), together, whole)
    if row.statistics is not None:
        np.testing.assert_array_equal(jnp.stack(jax.tree.leaves(whole)).ravel(), row.statistics)
    assert {leaf.dtype for leaf in jax.tree.leaves(whole)} == {model.dtype}


def test_statistics_of_a_regression():
    row = ROWS["normal inverse gamma"]
    own = row.model.sufficient_statistics(row.model.encode(row.records))
    design = np.c_[np.ones(5), X]
    np.testing.assert_allclose(own.gaussian.linear, design.T @ Y, rtol=1e-12)
    np.testing.assert_allclose(own.gaussian.precision.matrix, design.T @ design, rtol=1e-12)
    assert float(own.shape) == 2.5
    assert float(own.energy) == pytest.approx(0.5 * Y @ Y)


@over_rows
def test_log_predictive_is_exact(row):
    """Of each record alone under the prior, where scipy knows the distribution."""
    own = row.model.log_predictive(row.model.conjugate_prior, row.records)
    np.testing.assert_allclose(own, row.log_predictive, rtol=1e-9)


def test_log_predictive_of_another_posterior_is_sampled():
    model, table = ROWS["beta"].model, Table([[0.2], [0.7]], np.log([0.5, 0.5]))
    own = model.log_predictive(table, [1], key=jr.key(0), draws=20_000)
    assert float(np.exp(own[0])) == pytest.approx(0.45, abs=4 * 0.25 / np.sqrt(20_000))
    with pytest.raises(ValueError, match="key must be given: this predictive density is sampled"):
        model.log_predictive(table, [1])


def test_rate_zero_allows_no_counts_but_zero():
    model = GammaPoisson(Gamma(1.0, 1.0))
    np.testing.assert_array_equal(model.log_likelihood(jnp.zeros(1), model.encode([0, 1])), [0.0, -np.inf])


def test_prior_of_the_wrong_length_is_refused():
    with pytest.raises(ValueError, match="prior must hold 3 weights, got 1"):
        UnknownNoiseRegression(RawFeatures(2), NormalInverseGamma([0.0], [[1.0]], 1.0, 1.0))
