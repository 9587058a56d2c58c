"""Bernoulli expectations from narrow to very wide log-odds, where plain Gauss–Hermite fails."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import expit, log_expit

from unbayes.models import BernoulliLikelihood

BERNOULLI = BernoulliLikelihood()
pytestmark = pytest.mark.long


def _integral(function, mean, scale):
    f = np.linspace(mean - 12 * scale, mean + 12 * scale, 200_001)
    return integrate.simpson(function(f) * stats.norm.pdf(f, mean, scale), x=f)


@pytest.mark.parametrize("scale", [0.1, 1.0, 1.7, 1.9, 5.0, 30.0, 100.0])
@pytest.mark.parametrize("distance", [-3.0, -0.4, 0.0, 1.0, 3.0])
def test_value_slope_curvature_and_probability(scale, distance):
    mean = distance * scale
    arguments = (jnp.asarray(mean), jnp.asarray(scale**2), jnp.ones(()))
    assert float(BERNOULLI.expected_log_prob(*arguments)) == pytest.approx(
        _integral(log_expit, mean, scale), rel=1e-6
    )
    slope = jax.grad(BERNOULLI.expected_log_prob)
    assert float(slope(*arguments)) == pytest.approx(_integral(lambda f: expit(-f), mean, scale), rel=1e-6)
    curvature = _integral(lambda f: expit(f) * expit(-f), mean, scale)
    assert -float(jax.grad(slope)(*arguments)) == pytest.approx(curvature, rel=1e-5)
    predictive = BERNOULLI.gaussian_predictive(arguments[0][None], arguments[1][None])
    both = [_integral(lambda f: expit(-f), mean, scale), _integral(expit, mean, scale)]
    np.testing.assert_allclose(predictive.probabilities[0], both, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_predictive_probabilities_near_and_far(dtype):
    """Near ones from their own terms, all of them from logarithms beside one that is far: the same."""
    far = 2 * np.log(float(np.finfo(dtype).tiny))
    f = jnp.asarray(np.random.default_rng(0).normal(size=(5, 7), scale=4), dtype)
    weights = jnp.log(jnp.full(5, 0.2, dtype))
    near = BERNOULLI.predictive(f, weights).log_probabilities
    beside = BERNOULLI.predictive(jnp.hstack([f, jnp.full((5, 1), far, dtype)]), weights).log_probabilities
    np.testing.assert_allclose(near, beside[:-1], rtol=20 * np.finfo(dtype).eps)
    np.testing.assert_allclose(beside[-1], [0, far], rtol=1e-6)
    wanted = np.log([expit(-side * np.asarray(f, float)).mean(0) for side in (1, -1)]).T
    np.testing.assert_allclose(near, wanted, rtol=20 * np.finfo(dtype).eps)


def test_derivatives_of_many_records_at_once():
    """Narrow and wide in one batch, both labels: the same as the integrals."""
    scales = np.array([0.1, 1.0, 1.7, 1.9, 5.0, 30.0, 100.0])
    means, labels = np.array([0.3, -2.0, 4.0, 3.0, -4.0, 40.0, -150.0]), np.array([1.0, 0, 1, 1, 0, 1, 1])
    _, slope, curvature = BERNOULLI.integrals(*map(jnp.asarray, (means, scales**2, labels)))
    for row, (mean, scale, side) in enumerate(zip(means, scales, 2 * labels - 1, strict=True)):
        wrong = _integral(lambda f, side=side: expit(-side * f), mean, scale)
        assert float(slope[row]) == pytest.approx(side * wrong, rel=1e-5)
        spread = _integral(lambda f: expit(f) * expit(-f), mean, scale)
        assert float(curvature[row]) == pytest.approx(spread, rel=1e-5)


@pytest.mark.parametrize("records", [3, 7])
def test_values_of_many_records_at_once(records):
    """All narrow, or wide ones among them."""
    scales = np.array([0.1, 1.0, 1.7, 1.9, 5.0, 30.0, 100.0])[:records]
    means, labels = np.linspace(-3, 40, records), np.arange(records) % 2.0
    arguments = [*map(jnp.asarray, (means, scales**2, labels))]
    values = BERNOULLI.expected_log_probs(*arguments)
    np.testing.assert_allclose(BERNOULLI.integrals(*arguments).value, values, rtol=1e-12)
    for value, mean, scale, side in zip(values, means, scales, 2 * labels - 1, strict=True):
        expected = _integral(lambda f, side=side: log_expit(side * f), mean, scale)
        assert float(value) == pytest.approx(expected, rel=1e-5)


def test_gradients_are_finite_at_both_ends(dtype):
    for variance in (0.0, 1e6):
        gradient = jax.grad(BERNOULLI.expected_log_prob, (0, 1))(
            jnp.asarray(3.0, dtype), jnp.asarray(variance, dtype), jnp.ones((), dtype)
        )
        assert np.isfinite(gradient).all()
