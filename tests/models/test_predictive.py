"""Predictive distributions of linear models against scipy, and of any posterior against exact mixtures."""

import jax.random as jr
import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import expit, softmax

from unbayes.models import NormalPredictive
from unbayes.posteriors import FullGaussian, Table

from .rows import INPUTS, MODELS, gaussians, over_models, predictor_moments

DRAWS = 20_000


def test_normal_for_a_gaussian_likelihood():
    model, _ = MODELS["linear"]
    for gaussian in gaussians(2):
        predictive = model.predictive(gaussian, INPUTS)
        mean, scale = predictor_moments(model, gaussian)
        np.testing.assert_allclose(predictive.mean, mean, rtol=1e-10)
        np.testing.assert_allclose(predictive.variance, scale**2 + 0.25, rtol=1e-10)


@pytest.mark.parametrize("name", ["logistic", "poisson", "dtc", "svgp", "probit"])
def test_integral_for_a_scalar_predictor(name):
    model, targets = MODELS[name]

    def probability(f, y):
        if name == "poisson":
            return stats.poisson.pmf(y, np.exp(f))
        return (stats.norm.cdf if name == "probit" else expit)((2 * y - 1) * f)

    for gaussian in gaussians(2):
        expected = [
            integrate.quad(lambda z, m=m, s=s, y=y: stats.norm.pdf(z) * probability(m + s * z, y), -9, 9)[0]
            for m, s, y in zip(*predictor_moments(model, gaussian), targets, strict=True)
        ]
        own = model.predictive(gaussian, INPUTS).log_prob(np.asarray(targets, float))
        np.testing.assert_allclose(np.exp(own), expected, rtol=1e-6)


def test_average_over_draws_for_softmax():
    model, _ = MODELS["softmax"]
    rng = np.random.default_rng(0)
    for gaussian in gaussians(3):
        weights = rng.multivariate_normal(gaussian.mean, gaussian.covariance, DRAWS)
        each = softmax(weights[:, None, :] * INPUTS, axis=2)
        own = model.predictive(gaussian, INPUTS, draws=DRAWS).probabilities
        error = each.std(0) * np.sqrt(2 / DRAWS)
        np.testing.assert_array_less(np.abs(own - each.mean(0)), 4.5 * error)
        np.testing.assert_allclose(own.sum(1), 1, rtol=1e-12)


@over_models
def test_any_posterior_by_its_draws(model, targets):
    """A table of three θ has an exact predictive, their mixture."""
    thetas, weights = np.random.default_rng(5).normal(size=(3, model.dim)), np.array([0.2, 0.5, 0.3])
    table = Table(thetas, np.log(weights))
    with pytest.raises(ValueError, match="key must be given: this predictive distribution is sampled"):
        model.predictive(table, INPUTS)
    sampled = model.predictive(table, INPUTS, key=jr.key(0), draws=DRAWS)
    if isinstance(sampled, NormalPredictive):
        means = np.c_[np.ones(5), INPUTS] @ thetas.T
        mean, spread = means @ weights, means**2 @ weights - (means @ weights) ** 2
        np.testing.assert_array_less(np.abs(sampled.mean - mean), 4.5 * np.sqrt(spread / DRAWS))
        np.testing.assert_allclose(sampled.variance, spread + 0.25, rtol=4.5 * np.sqrt(2 / DRAWS))
        return
    points = [FullGaussian(theta, 1e-9 * np.eye(model.dim)) for theta in thetas]
    y = np.asarray(targets, float)
    exact = weights @ np.exp(
        [model.predictive(q, INPUTS, key=jr.key(1), draws=2).log_prob(y) for q in points]
    )
    at_most = 0.5 / np.sqrt(DRAWS)  # no draw of a probability has a larger standard deviation than a half
    np.testing.assert_allclose(np.exp(sampled.log_prob(y)), exact, rtol=0, atol=4.5 * at_most)


@pytest.mark.long
@pytest.mark.parametrize("name", ["logistic", "svgp"])
def test_log_predictive_is_that_of_the_predictive_distribution(name):
    """Where θ leaves f open, the log-likelihood of θ is a bound, and its average over θ would be too low."""
    model, targets = MODELS[name]
    y = np.asarray(targets, float)
    for posterior in (gaussians(2)[1], Table(np.zeros((1, 2)), [0.0])):
        own = model.log_predictive(posterior, (INPUTS, targets), key=jr.key(0))
        expected = model.predictive(posterior, INPUTS, key=jr.key(0)).log_prob(y)
        np.testing.assert_allclose(own, expected, rtol=1e-10)
