"""What training keeps: an unbiased sample of records, found again when they are erased."""

import jax
import numpy as np
import pytest

import unbayes as ub
from moon import moon
from problems import KEY, linear_gaussian, logistic, take, trained
from unbayes.memory.coreset import draw_coreset


def test_weighted_sums_over_coresets_are_those_over_all_records_on_average():
    rng = np.random.default_rng(0)
    influence, values = rng.gamma(0.3, size=200), rng.normal(size=200)
    sums, sizes = [], []
    for seed in range(2000):
        rows, weights = draw_coreset(influence, 20, jax.random.key(seed))
        assert len(set(rows)) == len(rows)
        sums.append(weights @ values[rows])
        sizes.append(len(rows))
    assert abs(np.mean(sums) - values.sum()) < 4 * np.std(sums) / np.sqrt(2000)
    assert set(sizes) <= {19, 20, 21}


def test_influential_records_are_kept_for_certain():
    influence = np.r_[np.full(5, 100.0), np.ones(500)]
    rows, weights = draw_coreset(influence, 20, KEY)
    assert set(range(5)) <= set(rows)
    np.testing.assert_allclose(weights[:5], 1)


def test_a_coreset_of_everything_is_everything():
    rows, weights = draw_coreset(np.ones(7), 10, KEY)
    np.testing.assert_array_equal(rows, np.arange(7))
    np.testing.assert_array_equal(weights, 1)


@pytest.mark.parametrize("batch", [1, 3, 50])
def test_erased_records_are_found_whatever_batch_they_come_in(batch, dtype):
    problem = moon("moon")
    model = ub.logistic_regression(2)
    memory = ub.fit(model, problem.full, memory=60, key=KEY).memory
    rows = problem.full[0][:batch]
    matches = memory.matches(model.encode((rows, problem.full[1][:batch])))
    inputs = np.asarray(memory.coreset.design[:, 1:])
    expected = [np.isclose(rows, row, rtol=1e-6).all(1).sum() for row in inputs]
    np.testing.assert_array_equal(matches, expected)
    assert sum(expected) > 0 or batch == 1


def test_matches_add_up_and_are_dropped():
    problem = logistic()
    fitted = ub.fit(problem.model, problem.full, memory=50, key=KEY)
    memory = fitted.memory
    evidence = problem.model.encode(problem.erased)
    parts = [take(problem.erased, slice(0, 7)), take(problem.erased, slice(7, None))]
    together = sum(memory.matches(problem.model.encode(part)) for part in parts)
    np.testing.assert_array_equal(together, memory.matches(evidence))
    result = ub.unlearn(fitted.posterior, problem.model, problem.erased, memory=memory, key=KEY)
    assert result.memory.records == memory.records - 20
    assert result.memory.size == memory.size - int((together > 0).sum()) < memory.size
    assert not np.any(np.asarray(result.memory.matches(evidence)))


def test_whatever_the_method_erased_records_leave_the_memory():
    problem = linear_gaussian()
    memory = ub.fit(problem.model, problem.full, memory=200, key=KEY).memory
    full = trained(linear_gaussian)
    for method in (ub.Exact(), ub.BankReverseKL(draws=500)):
        result = ub.unlearn(full, problem.model, problem.erased, memory=memory, method=method, key=KEY)
        assert result.memory.size == 180


def test_what_is_kept():
    problem = logistic()
    light = ub.fit(problem.model, problem.full, key=KEY).memory
    assert (light.records, light.size, light.curvature) == (150, 0, None)
    assert light.stationarity < 1e-11
    dense = ub.fit(problem.model, problem.full, family=ub.DiagonalGaussian, memory=0, key=KEY)
    assert dense.memory.size == 0
    # The diagonal Gaussian nearest to the dense one is the posterior itself.
    nearest = ub.DiagonalGaussian.from_natural(dense.memory.curvature)
    np.testing.assert_allclose(nearest.mean, dense.posterior.mean, atol=1e-6)
    np.testing.assert_allclose(nearest.scale, dense.posterior.scale, rtol=1e-6)
    assert "dense curvature" in str(dense.memory)


def test_a_memory_that_cannot_be_kept_is_refused():
    problem = logistic()
    with pytest.raises(ValueError, match="memory must be a number of records"):
        ub.fit(problem.model, problem.full, memory=-1, key=KEY)
    with pytest.raises(ValueError, match="memory must be left out"):
        ub.fit(ub.BetaBernoulli(ub.Beta(1.0, 1.0)), np.array([1, 0]), memory=2, key=KEY)


def test_influence_is_the_share_of_precision():
    problem, full = logistic(), trained(logistic)
    evidence = problem.model.encode(problem.full)
    influence = problem.model.influence(full, evidence, problem.model.nodes())
    gave = problem.model.site(full, evidence, problem.model.nodes()).precision
    assert float(influence.sum()) == pytest.approx(float(gave.trace_with(full)), rel=1e-10)
    assert influence.shape == (150,)
