"""KL between distributions of counts, from small rates to rates whose counts no float can hold."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln, logsumexp

from unbayes.metrics import predictive_kl
from unbayes.models import CountPredictive, LogNormalCountPredictive, poisson_regression
from unbayes.models.count_predictive import LARGEST_SUMMED_RATE
from unbayes.posteriors import FullGaussian, Table

# Means and standard deviations of the log-rate, on both sides.
ORDINARY = {
    "small rates": (-3.0, 0.3, -2.9, 0.4),
    "few counts": (1.0, 0.5, 1.2, 0.6),
    "around the last single count": (5.5, 0.01, 5.53, 0.02),
    "large rates": (8.0, 0.02, 8.01, 0.03),
    "wide": (3.0, 1.5, 3.3, 1.8),
}


def log_normal(mean, scale, dtype=jnp.float64):
    return LogNormalCountPredictive(jnp.atleast_1d(jnp.asarray(mean, dtype)), jnp.full(1, scale**2, dtype))


def log_probabilities(mean, scale, counts):
    """Log ∫ Poisson(y|exp f) N(f) df by the trapezoidal rule, on nodes closer than any Poisson is wide."""
    z = np.linspace(-9, 9, 1501)
    f = mean + scale * z
    each = np.multiply.outer(counts, f) - np.exp(f) - gammaln(counts + 1)[:, None]
    return logsumexp(each + stats.norm.logpdf(z), axis=1) + np.log(z[1] - z[0])


def normal_kl(mean, scale, other_mean, other_scale):
    ratio = (scale / other_scale) ** 2
    return 0.5 * (ratio - 1 - np.log(ratio) + ((mean - other_mean) / other_scale) ** 2)


@pytest.mark.parametrize("moments", ORDINARY.values(), ids=ORDINARY)
def test_sum_over_all_counts_at_ordinary_rates(moments, dtype):
    counts = np.arange(5000.0 if moments[0] > 5 else 1500.0)
    if moments == ORDINARY["wide"]:
        counts = np.concatenate([counts, np.round(np.geomspace(1500, 3e6, 3001))[1:]])
    p, q = log_probabilities(*moments[:2], counts), log_probabilities(*moments[2:], counts)
    widths = np.gradient(counts) if moments == ORDINARY["wide"] else np.ones_like(counts)
    expected = widths @ (np.exp(p) * (p - q))
    found = log_normal(*moments[:2], dtype).kl(log_normal(*moments[2:], dtype))
    tolerance = 1e-6 if dtype == jnp.float64 and moments != ORDINARY["wide"] else 5e-4
    assert float(found[0]) == pytest.approx(expected, rel=tolerance)


@pytest.mark.parametrize("log_rate", [20.0, 50.0, 100.0, 300.0])
@pytest.mark.parametrize(("scale", "other"), [(0.02, 0.025), (0.3, 0.35), (4.0, 4.5)])
@pytest.mark.long
def test_kl_of_the_log_rates_where_they_are_huge(log_rate, scale, other, dtype):
    """Poisson noise adds the variance exp(−log-rate) to the logarithm of a count: next to nothing."""
    moments = log_rate, scale, log_rate + 0.5 * scale, other
    found = log_normal(*moments[:2], dtype).kl(log_normal(*moments[2:], dtype))
    # The last digits of a log-rate of 300 in float32 are a thousandth of the smallest scale.
    assert float(found[0]) == pytest.approx(normal_kl(*moments), rel=1e-5 if dtype == jnp.float64 else 1e-2)


@pytest.mark.parametrize("log_rate", [4.0, 8.0, 13.0, 20.0, 30.0])
@pytest.mark.parametrize("difference", [1e-3, 0.1])
@pytest.mark.long
def test_certain_rates_are_poisson(log_rate, difference):
    """KL between Poisson distributions, λ (eᵈ − 1 − d)."""
    found = log_normal(log_rate, 0.0).kl(log_normal(log_rate + difference, 0.0))
    expected = np.exp(log_rate) * (np.expm1(difference) - difference)
    assert float(found[0]) == pytest.approx(expected, rel=1e-6)


def test_no_jump_where_counts_become_smooth(dtype):
    """On either side of the count from which the normal limit serves, and of the one without a sum."""
    for limit in (np.log(255.5), np.log(0.1 / np.finfo(dtype).eps)):
        for scale in (1e-3, 0.1, 3.0):
            near = [limit + step * scale for step in (-0.1, 0.0, 0.1, 6.9, 7.1)]
            found = [
                float(log_normal(m, scale, dtype).kl(log_normal(m + scale, 1.2 * scale, dtype))[0])
                for m in near
            ]
            # The variance of the noise falls slowly with the rate; all else stays.
            noisy = [
                normal_kl(
                    m, np.hypot(scale, np.exp(-m / 2)), m + scale, np.hypot(1.2 * scale, np.exp(-m / 2))
                )
                for m in near
            ]
            ratios = np.divide(found, noisy)
            assert np.ptp(ratios[:3]) < 5e-3
            assert np.ptp(ratios[3:]) < 5e-3


@pytest.mark.parametrize(("mean", "scale"), [(0.0, 1.0), (1.0, 3.0), (30.0, 10.0), (20.0, 3.0)])
def test_few_counts_of_a_wide_rate(mean, scale):
    """With Newton's method from the mean down, log p(0) was too low by twenty thousand at (30, 10)."""
    f, counts = np.linspace(-60, 60, 200_001), np.array([0.0, 1.0, 10.0, 200.0])
    each = np.multiply.outer(counts, f) - np.exp(f) - gammaln(counts + 1)[:, None]
    expected = logsumexp(each + stats.norm.logpdf(f, mean, scale), axis=1) + np.log(f[1] - f[0])
    own = log_normal(mean, scale).log_prob(counts[None])[0]
    np.testing.assert_allclose(own, expected, rtol=0, atol=1e-4)


@pytest.mark.long
def test_probabilities_keep_their_digits_at_large_counts(dtype):
    """The terms of y f − eᶠ − log y! are 10⁷ here; in float32 their sum would be off by one."""
    log_rates = np.log(np.array([[1e6]])).astype(dtype)
    counts = np.array([[998_000.0, 1_000_000.0, 1_003_000.0]])
    expected = stats.poisson.logpmf(counts, np.exp(np.float64(log_rates)))
    mixture = CountPredictive(jnp.asarray(log_rates), jnp.zeros(1, dtype))
    assert mixture.log_prob(counts).dtype == dtype
    for own in (mixture, LogNormalCountPredictive(mixture.log_rates[:, 0], jnp.zeros(1, dtype))):
        tolerance = 1e-8 if dtype == jnp.float64 else 5e-2
        np.testing.assert_allclose(own.log_prob(counts), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("log_rate", [20.0, 50.0, 100.0])
@pytest.mark.long
def test_mixtures_of_huge_rates_are_matched(log_rate, dtype):
    """Their draws no longer overlap; the answer is that of log-normal rates of the same moments."""
    z = np.random.default_rng(0).normal(size=1000)
    z = (z - z.mean()) / z.std()
    rates = np.stack([log_rate + 0.4 * z, 1.0 + 0.4 * z])
    log_weights = jnp.full(1000, -np.log(1000.0), dtype)
    p, q = (CountPredictive(jnp.asarray(each, dtype), log_weights) for each in (rates, rates + 0.1))
    far, near = p.kl(q)
    assert float(far) == pytest.approx(normal_kl(log_rate, 0.4, log_rate + 0.1, 0.4), rel=2e-3)
    alone = CountPredictive(p.log_rates[1:], log_weights).kl(CountPredictive(q.log_rates[1:], log_weights))
    np.testing.assert_allclose(near, alone[0], rtol=1e-3)
    smooth = LogNormalCountPredictive(q.log_rates.mean(1), q.log_rates.var(1))
    np.testing.assert_allclose(p.kl(smooth)[0], far, rtol=2e-3)


def test_mixtures_are_matched_beyond_a_stated_rate():
    weights = jnp.log(jnp.array([0.5, 0.5]))
    rates = [np.log(share * LARGEST_SUMMED_RATE * np.array([[0.5, 1.0]])) for share in (0.99, 1.01)]
    found = [
        CountPredictive(r, weights).kl(CountPredictive(r + 0.01, weights)) for r in map(jnp.asarray, rates)
    ]
    # Two peaks far apart, shifted together: λ (eᵈ − 1 − d) of each.
    assert float(found[0][0]) == pytest.approx(0.75 * 0.99 * LARGEST_SUMMED_RATE * 5.0167e-5, rel=1e-3)
    assert float(found[1][0]) == pytest.approx(normal_kl(0, np.log(2) / 2, 0.01, np.log(2) / 2), rel=0.05)


@pytest.mark.parametrize("reach", [1.0, 20.0, 50.0, 200.0])
def test_poisson_regression_far_from_its_data(reach):
    """Took eleven seconds at an input of 15, and at 50 ended in a TypeError out of XLA."""
    first = FullGaussian([0.1, 0.3, 0.2], 0.1 * np.eye(3))
    second = FullGaussian([0.15, 0.28, 0.2], 0.12 * np.eye(3))
    inputs = np.array([[reach, reach], [0.5, -0.2], [-reach, 1.0]])
    found = predictive_kl(first, second, poisson_regression(2), inputs)
    design = np.c_[np.ones(3), inputs]
    scales = [s * np.linalg.norm(design, axis=1) for s in (0.1, 0.12)]
    bound = normal_kl(design @ first.mean, scales[0], design @ second.mean, scales[1])
    # Counts say less than rates: their KL is no larger.
    p, q = (poisson_regression(2).predictive(each, inputs) for each in (first, second))
    values = np.asarray(p.kl(q))
    assert (values >= 0).all()
    assert (values <= bound * (1 + 1e-6)).all()
    assert found.forward.mean == pytest.approx(float(values.mean()))
    if reach >= 50:
        assert float(values[0]) == pytest.approx(float(bound[0]), rel=0.01)


def test_a_sampled_posterior_far_from_its_data():
    thetas = np.random.default_rng(0).normal([0.1, 0.3], 0.1, (50, 2))
    first, second = (Table(thetas + shift, np.zeros(50)) for shift in (0.0, [0.0, 0.01]))
    found = predictive_kl(first, second, poisson_regression(1), [[200.0]], key=jr.key(1))
    # Both sides draw the same rows, whose log-rates differ by 200 × 0.01, a tenth of their spread.
    assert found.forward.mean == pytest.approx(0.5 * 0.1**2, rel=0.5)
