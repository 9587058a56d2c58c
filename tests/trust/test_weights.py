"""Importance weights: effective sample size, and the Pareto shape of weights whose shape is known."""

import numpy as np
import pytest

from unbayes.trust.weights import diagnose_weights


@pytest.mark.parametrize("size", [1, 10, 1000])
def test_equal_weights_count_in_full(size):
    diagnosis = diagnose_weights(np.full(size, -745.3))
    assert diagnosis.effective_sample_size == pytest.approx(size)
    assert diagnosis.khat == -np.inf
    np.testing.assert_allclose(np.exp(diagnosis.log_weights), 1 / size)


@pytest.mark.parametrize("shape", [0.2, 0.5, 0.7, 1.0])
def test_khat_is_the_shape_of_pareto_weights(shape):
    """w = U^(−k) has Pareto shape k; the tolerance is the scatter over seeds."""
    seeds = map(np.random.default_rng, range(12))
    found = [diagnose_weights(shape * rng.exponential(size=10_000)).khat for rng in seeds]
    # The fit's prior, ten draws at a half beside a tail of three hundred, pulls by a thirtieth.
    pull = abs(shape - 0.5) / 31
    assert abs(np.mean(found) - shape) < 4 * np.std(found) / np.sqrt(12) + pull
    assert np.std(found) < 0.2


def test_bounded_weights_have_a_negative_shape():
    """w = U is bounded: its shape is −1."""
    weights = np.random.default_rng(0).uniform(size=10_000)
    assert diagnose_weights(np.log(weights)).khat == pytest.approx(-1, abs=0.3)


def test_few_weights_are_left_alone_and_not_trusted():
    weights = np.array([0.5, 0.3, 0.2])
    diagnosis = diagnose_weights(np.log(weights) + 900)
    np.testing.assert_allclose(np.exp(diagnosis.log_weights), weights, rtol=1e-10)
    assert diagnosis.effective_sample_size == pytest.approx(1 / (weights**2).sum())
    assert diagnosis.khat == np.inf


def test_smoothed_weights_are_normalised_and_counted():
    raw = 2 * np.random.default_rng(0).normal(size=2000)
    diagnosis = diagnose_weights(raw)
    weights = np.exp(diagnosis.log_weights)
    assert weights.sum() == pytest.approx(1)
    assert diagnosis.effective_sample_size == pytest.approx(1 / (weights**2).sum())
    assert 1 <= diagnosis.effective_sample_size <= 2000
    # Smoothing keeps the order, and touches the tail of 3√S alone.
    order = np.argsort(raw)
    assert (np.diff(weights[order]) >= 0).all()
    body = order[: 2000 - int(3 * 2000**0.5)]
    np.testing.assert_allclose(np.diff(diagnosis.log_weights[body]), np.diff(raw[body]), atol=1e-9)


def test_a_constant_factor_changes_nothing():
    raw = np.random.default_rng(0).normal(size=500)
    one, other = diagnose_weights(raw), diagnose_weights(raw + 1234.5)
    np.testing.assert_allclose(one.log_weights, other.log_weights, atol=1e-9)
    assert one.khat == pytest.approx(other.khat, abs=1e-6)


@pytest.mark.parametrize(
    ("raw", "size", "khat"),
    [
        # An adjusted likelihood cuts the weights off: the largest are all equal.
        (np.r_[np.full(500, 3.0), np.linspace(-9, -1, 500)], 500, -np.inf),
        # One draw carries everything, and the rest underflows.
        (np.r_[0.0, np.full(999, -800.0)], 1, np.inf),
        # Ten draws stand out of many that are equal.
        (np.r_[np.zeros(990), np.full(10, 20.0)], 10, np.inf),
    ],
)
def test_tails_without_a_pareto_fit(raw, size, khat):
    diagnosis = diagnose_weights(raw)
    assert diagnosis.effective_sample_size == pytest.approx(size, rel=0.1)
    assert diagnosis.khat == pytest.approx(khat)
    assert np.exp(diagnosis.log_weights).sum() == pytest.approx(1)


@pytest.mark.parametrize("bad", [[0.0, np.nan], [0.0, np.inf], [-np.inf, -np.inf], []])
def test_weights_without_a_finite_maximum_are_refused(bad):
    with pytest.raises(ValueError, match="erased holds records that overflow"):
        diagnose_weights(bad)
