"""With a memory of the training set, the remaining records answer."""

import jax
import numpy as np
import pytest

import unbayes as ub
from moon import moon
from problems import KEY, linear_gaussian, logistic, split, take
from unbayes.metrics import parameter_kl, predictive_kl
from unbayes.unlearning.methods import natural_gradient
from unbayes.unlearning.methods.coreset_correction import coreset_correction


def poisson(erased: int = 20):
    rng = np.random.default_rng(2)
    x = rng.normal(size=(120, 2))
    return split(
        ub.poisson_regression(2), (x, rng.poisson(np.exp(x @ [0.5, -0.4]))), np.arange(120 - erased, 120)
    )


def correlated(erased: int = 150):
    """Features that nearly coincide: a diagonal step overshoots."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(600, 1)) + 0.2 * rng.normal(size=(600, 5))
    y = (rng.random(600) < 1 / (1 + np.exp(-x @ [1.0, -0.5, 0.5, 0.3, 0.2]))).astype(int)
    return split(ub.logistic_regression(5, prior_scale=3.0), (x, y), np.argsort(x[:, 0])[-erased:])


def _train(problem, memory=None, family=ub.FullGaussian):
    full = ub.fit(problem.model, problem.full, family=family, memory=memory, key=KEY)
    retrained = ub.fit(problem.model, problem.remaining, family=family, key=KEY).posterior
    return full, retrained


@pytest.mark.parametrize("family", [ub.FullGaussian, ub.DiagonalGaussian])
@pytest.mark.parametrize(
    "make", [logistic, *(pytest.param(make, marks=pytest.mark.long) for make in (poisson, correlated))]
)
def test_a_memory_of_all_records_gives_retraining(make, family):
    problem = make()
    full, retrained = _train(problem, memory=1000, family=family)
    result = ub.unlearn(full.posterior, problem.model, problem.erased, memory=full.memory, key=KEY)
    assert parameter_kl(result.posterior, retrained).value < 1e-6
    assert result.trust.measures.coverage == pytest.approx(1, abs=0.02)
    assert result.trust.measures.uncertainty == 0


def test_no_memory_changes_what_is_exact():
    problem = linear_gaussian()
    full, retrained = _train(problem, memory=30)
    result = ub.unlearn(
        full.posterior,
        problem.model,
        problem.erased,
        memory=full.memory,
        method=ub.NaturalGradient(),
        key=KEY,
    )
    np.testing.assert_allclose(result.posterior.mean, retrained.mean, atol=1e-9)
    np.testing.assert_allclose(result.posterior.covariance, retrained.covariance, atol=1e-9)


@pytest.mark.parametrize("scenario", [pytest.param("moon", marks=pytest.mark.long), "yellow 50"])
def test_most_of_the_records_are_better_than_one_step(scenario):
    problem = moon(scenario)
    full, retrained = _train(problem, memory=80)
    one, answered = (
        ub.unlearn(full.posterior, problem.model, problem.erased, memory=memory, key=KEY).posterior
        for memory in (None, full.memory)
    )
    for inputs in (problem.erased[0], problem.remaining[0]):
        after, before = (
            predictive_kl(q, retrained, problem.model, inputs).backward.mean for q in (answered, one)
        )
        assert after < 0.7 * before


@pytest.mark.long
def test_curvature_points_a_diagonal_posterior_in_the_right_direction():
    problem = correlated()
    full, retrained = _train(problem, memory=0, family=ub.DiagonalGaussian)
    plain, dense = (
        ub.unlearn(full.posterior, problem.model, problem.erased, memory=memory, key=KEY)
        for memory in (None, full.memory)
    )
    for inputs in (problem.erased[0], problem.remaining[0]):
        nothing, without, with_curvature = (
            predictive_kl(q, retrained, problem.model, inputs).backward.mean
            for q in (full.posterior, plain.posterior, dense.posterior)
        )
        assert with_curvature < 0.2 * min(nothing, without)
    assert dense.memory.curvature is not None


@pytest.mark.long
def test_a_softmax_layer_with_curvature_improves_on_doing_nothing():
    rng = np.random.default_rng(0)
    hidden = np.maximum(rng.normal(size=(400, 3)) @ rng.normal(size=(3, 12)), 0)
    y = (hidden @ rng.normal(size=(12, 4)) + rng.gumbel(size=(400, 4))).argmax(1)
    problem = split(ub.softmax_regression(12, 4, prior_scale=1.0), (hidden, y), np.arange(300, 400))
    full, retrained = _train(problem, memory=0, family=ub.DiagonalGaussian)
    result = ub.unlearn(full.posterior, problem.model, problem.erased, memory=full.memory, key=KEY)
    for inputs in (problem.erased[0], problem.remaining[0]):
        after, before = (
            predictive_kl(q, retrained, problem.model, inputs, key=KEY).backward.mean
            for q in (result.posterior, full.posterior)
        )
        assert after < 0.5 * before


def test_a_random_sample_is_its_own_memory():
    problem = logistic(erased=60)
    full, retrained = _train(problem)
    one = ub.unlearn(full.posterior, problem.model, problem.erased, key=KEY).posterior
    memory = full.memory.with_sample(problem.model, problem.erased, key=KEY)
    sampled = ub.unlearn(full.posterior, problem.model, problem.erased, memory=memory, key=KEY)
    before, after = (parameter_kl(q, retrained).value for q in (one, sampled.posterior))
    assert after < 0.5 * before
    assert sampled.trust.measures.second_term > 0
    assert sampled.trust.measures.coverage is not None
    # What is handed on holds none of the erased records.
    assert (memory.size, sampled.memory.size, sampled.memory.records) == (60, 0, 90)
    with pytest.raises(ValueError, match="erased must be among the 10 training records, got 60"):
        ub.Memory(records=10).with_sample(problem.model, problem.erased, key=KEY)


def test_batches_with_a_memory_give_the_same():
    problem = logistic(erased=40)
    full, _ = _train(problem, memory=60)
    settings = {"memory": full.memory, "key": KEY}
    at_once = ub.unlearn(full.posterior, problem.model, problem.erased, **settings)
    parts = [
        take(problem.erased, part) for part in np.array_split(np.random.default_rng(0).permutation(40), 3)
    ]
    total = sum(ub.summarise(full.posterior, problem.model, part, **settings) for part in parts)
    solved = ub.solve(full.posterior, problem.model, total, **settings)
    np.testing.assert_allclose(solved.posterior.mean, at_once.posterior.mean, atol=1e-9)
    np.testing.assert_allclose(solved.posterior.covariance, at_once.posterior.covariance, atol=1e-9)
    assert solved.memory.size == at_once.memory.size
    with pytest.raises(ValueError, match="statistics must come from"):
        ub.solve(full.posterior, problem.model, total, key=KEY)


def test_more_records_than_were_trained_on_are_refused():
    problem = logistic()
    full, _ = _train(problem)
    with pytest.raises(ValueError, match="erased must be among the 10 training records"):
        ub.unlearn(full.posterior, problem.model, problem.erased, memory=ub.Memory(10), key=KEY)
    with pytest.raises(TypeError, match="memory must be what fit kept"):
        ub.unlearn(full.posterior, problem.model, problem.erased, memory=3, key=KEY)


@pytest.mark.long
def test_single_precision():
    with jax.enable_x64(False):
        problem = logistic(erased=40)
        full, retrained = _train(problem, memory=60)
        one = ub.unlearn(full.posterior, problem.model, problem.erased, key=KEY).posterior
        answered = ub.unlearn(full.posterior, problem.model, problem.erased, memory=full.memory, key=KEY)
        after, before = (parameter_kl(q, retrained).value for q in (answered.posterior, one))
        assert after < 0.5 * before


@pytest.mark.parametrize("stationarity", [np.inf, 1e3])
def test_an_answer_that_does_not_settle_leaves_one_step_with_a_doubt(monkeypatch, stationarity):
    problem = logistic(erased=40)
    full, _ = _train(problem, memory=60)
    one = ub.unlearn(full.posterior, problem.model, problem.erased, key=KEY)

    def wandering(*arguments):
        return coreset_correction(*arguments)._replace(stationarity=stationarity)

    monkeypatch.setattr(natural_gradient, "coreset_correction", wandering)
    result = ub.unlearn(full.posterior, problem.model, problem.erased, memory=full.memory, key=KEY)
    np.testing.assert_allclose(result.posterior.mean, one.posterior.mean, atol=1e-12)
    np.testing.assert_allclose(result.posterior.covariance, one.posterior.covariance, atol=1e-12)
    assert result.verdict == "doubtful"
    assert any("this is one step without them" in doubt for doubt in result.doubts)
