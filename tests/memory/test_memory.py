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
    matches = memory.sight(model.rows((rows, problem.full[1][:batch]))).matches
    inputs = np.asarray(memory.coreset.design[:, 1:])
    expected = [np.isclose(rows, row, rtol=1e-6).all(1).sum() for row in inputs]
    np.testing.assert_array_equal(matches, expected)
    assert sum(expected) > 0 or batch == 1


def test_matches_add_up_and_are_dropped():
    problem = logistic()
    fitted = ub.fit(problem.model, problem.full, memory=50, key=KEY)
    memory = fitted.memory
    rows = problem.model.rows(problem.erased)
    parts = [take(problem.erased, slice(0, 7)), take(problem.erased, slice(7, None))]
    together = sum(memory.sight(problem.model.rows(part)).matches for part in parts)
    np.testing.assert_array_equal(together, memory.sight(rows).matches)
    result = ub.unlearn(fitted.posterior, problem.model, problem.erased, memory=memory, key=KEY)
    assert result.memory.records == memory.records - 20
    assert result.memory.size == memory.size - int((together > 0).sum()) < memory.size
    assert not np.any(result.memory.sight(rows).matches)


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
    with pytest.raises(
        ValueError, match=r"memory must be .*, a number of records to keep, .*, or None, got -1"
    ):
        ub.fit(problem.model, problem.full, memory=-1, key=KEY)
    with pytest.raises(ValueError, match="memory must be left out"):
        ub.fit(ub.BetaBernoulli(ub.Beta(1.0, 1.0)), np.array([1, 0]), memory=2, key=KEY)


@pytest.mark.long
def test_influence_is_the_share_of_precision():
    problem, full = logistic(), trained(logistic)
    evidence = problem.model.encode(problem.full)
    influence = problem.model.influence(full, evidence, problem.model.nodes())
    gave = problem.model.site(full, evidence, problem.model.nodes()).precision
    assert float(influence.sum()) == pytest.approx(float(gave.trace_with(full)), rel=1e-10)
    assert influence.shape == (150,)


def categorical(rows: int = 1000):
    """Three columns of zeros and ones: every row is there a hundred times and more."""
    rng = np.random.default_rng(4)
    x = rng.integers(0, 2, (rows, 3)).astype(float)
    return x, (rng.random(rows) < 1 / (1 + np.exp(-(x @ [2.0, -1.0, 0.5])))).astype(int)


def test_of_equal_rows_as_many_stay_as_were_not_erased():
    x, y = categorical()
    model = ub.logistic_regression(3)
    fitted = ub.fit(model, (x, y), memory=100, key=KEY)
    copies = equal_rows(fitted.memory, x, y)
    np.testing.assert_array_equal(fitted.memory.copies, copies)
    result = ub.unlearn(fitted.posterior, model, (x[:50], y[:50]), memory=fitted.memory, key=KEY)
    assert result.memory.size == fitted.memory.size
    gone = equal_rows(fitted.memory, x[:50], y[:50])
    np.testing.assert_allclose(result.memory.weights, fitted.memory.weights * (1 - gone / copies), rtol=1e-6)
    np.testing.assert_array_equal(result.memory.copies, copies - gone)
    assert result.memory.records == 950
    # Once all equal ones are erased, none of them stays.
    same = (x == x[0]).all(1) & (y == y[0])
    result = ub.unlearn(fitted.posterior, model, (x[same], y[same]), memory=fitted.memory, key=KEY)
    design, targets = _rows(result.memory)
    assert not ((design[:, 1:] == x[0]).all(1) & (targets == y[0])).any()


def equal_rows(memory, x, y):
    """How many records equal each record of the coreset."""
    pairs = zip(*_rows(memory), strict=True)
    return np.array([((x == row[1:]).all(1) & (y == target)).sum() for row, target in pairs])


def _rows(memory):
    return np.asarray(memory.coreset.design), np.asarray(memory.coreset.targets)


@pytest.mark.parametrize("roster", [True, False])
def test_rows_from_a_table_with_six_decimals_leave_the_memory(roster, dtype):
    problem = logistic()
    fitted = ub.fit(problem.model, problem.full, memory=150, roster=roster, key=KEY)
    rounded = (problem.erased[0].round(6), problem.erased[1])
    result = ub.unlearn(fitted.posterior, problem.model, rounded, memory=fitted.memory, key=KEY)
    assert result.memory.size == 130
    kept = np.asarray(result.memory.coreset.design)[:, 1:]
    distance = np.abs(kept[:, None] - problem.erased[0]).max(2)
    assert distance.min() > 1e-3


@pytest.mark.long
def test_close_rows_are_not_mistaken_for_each_other(dtype):
    """Rows that agree to three digits, in single precision too: only the erased ones leave."""
    rng = np.random.default_rng(5)
    x = 1 + 1e-3 * rng.normal(size=(200, 2))
    y = rng.integers(0, 2, 200)
    model = ub.logistic_regression(2)
    fitted = ub.fit(model, (x, y), memory=200, key=KEY)
    result = ub.unlearn(fitted.posterior, model, (x[:7], y[:7]), memory=fitted.memory, key=KEY)
    assert result.memory.size == 193


def test_without_a_roster_a_coreset_too_small_to_hold_them_is_noticed():
    problem = logistic(60)
    fitted = ub.fit(problem.model, problem.full, memory=100, roster=False, key=KEY)
    assert fitted.memory.roster is None
    options = {"memory": fitted.memory, "key": KEY}
    honest = ub.unlearn(fitted.posterior, problem.model, problem.erased, **options)
    assert honest.trust.measures.expected_in_memory == 40
    assert 25 < honest.trust.measures.found_in_memory < 55
    x, y = problem.erased
    moved = (x + 0.1, y)
    wrong = ub.unlearn(fitted.posterior, problem.model, moved, **options)
    assert wrong.trust.measures.found_in_memory == 0
    assert wrong.verdict is ub.Verdict.RETRAIN
    assert any("0 of the erased records are in the memory" in doubt for doubt in wrong.doubts)


def test_a_memory_belongs_to_its_posterior_and_model():
    problem = logistic()
    fitted = ub.fit(problem.model, problem.full, memory=20, key=KEY)
    other = ub.fit(problem.model, problem.remaining, memory=20, key=KEY)
    wider = ub.logistic_regression(2, prior_scale=4.0)
    counts = ub.LinearModel(problem.model.features, ub.PoissonLikelihood(), problem.model.prior)
    cases = [
        (fitted.posterior, problem.model, other.memory, "memory must be what was kept for this posterior"),
        (other.posterior, problem.model, fitted.memory, "memory must be what was kept for this posterior"),
        (fitted.posterior, wider, fitted.memory, "model must be the one that posterior and memory"),
        (fitted.posterior, counts, fitted.memory, "model must be the one that posterior and memory"),
    ]
    for posterior, model, memory, sentence in cases:
        for call in (ub.unlearn, ub.summarise):
            with pytest.raises(ValueError, match=sentence):
                call(posterior, model, problem.erased, memory=memory, key=KEY)
    same = ub.logistic_regression(2, prior_scale=3.0)
    result = ub.unlearn(fitted.posterior, same, problem.erased, memory=fitted.memory, key=KEY)
    # What a result hands on belongs to what it found.
    result.memory.require_kin(result.posterior, same)
    with pytest.raises(ValueError, match="kept for this posterior"):
        result.memory.require_kin(fitted.posterior, same)


def test_a_memory_of_another_fit_is_not_saved(tmp_path):
    problem = logistic()
    fitted = ub.fit(problem.model, problem.full, key=KEY)
    other = ub.fit(problem.model, problem.remaining, key=KEY)
    with pytest.raises(ValueError, match="kept for this posterior"):
        ub.save(tmp_path / "model.unbayes", fitted.posterior, problem.model, memory=other.memory)
    refined = ub.refine(fitted.posterior, problem.model, problem.remaining, key=KEY)
    ub.save(tmp_path / "model.unbayes", refined.posterior, problem.model, memory=refined.memory)
    saved = ub.load(tmp_path / "model.unbayes")
    saved.memory.require_kin(saved.posterior, saved.model)
