"""Errors are predicted, and verdicts follow from them."""

import numpy as np
import pytest

import unbayes as ub
from problems import KEY, linear_gaussian, logistic, split
from unbayes.metrics import parameter_kl
from unbayes.trust import Measures, judge
from unbayes.trust.error import Source, predict
from unbayes.trust.limits import CORESET_RANGE, SMALL_BESIDE_NOTHING, TOLERANCE, UNCERTAINTY_SCALE

DIM = 10
ALLOWED = TOLERANCE * DIM


def counts():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 3))
    y = rng.poisson(np.exp(x @ [0.6, -0.4, 0.2] + 0.5))
    return split(ub.poisson_regression(3, prior_scale=3.0), (x, y), np.arange(60))


@pytest.fixture(scope="module", params=[logistic, pytest.param(counts, marks=pytest.mark.long)])
def solved(request):
    """A problem, its trained model with every memory, and the retrained belief."""
    problem = request.param()
    full = ub.fit(problem.model, problem.full, memory=("sums", 60), key=KEY)
    retrained = ub.fit(problem.model, problem.remaining, key=KEY).posterior
    return problem, full, retrained


def _erase(problem, full, memory, **settings):
    return ub.unlearn(full.posterior, problem.model, problem.erased, memory=memory, key=KEY, **settings)


@pytest.mark.parametrize(("kinds", "factor"), [(("sums",), 3), (("coreset",), 10), ((), 12)])
def test_predictions_are_near_the_truth(solved, kinds, factor):
    problem, full, retrained = solved
    result = _erase(problem, full, full.memory.only(*kinds))
    true = parameter_kl(retrained, result.posterior).value
    assert true / factor < result.error.nats < factor * true
    assert result.error.low < true < result.error.high
    nothing = parameter_kl(retrained, full.posterior).value
    assert result.error.nothing == pytest.approx(nothing, rel=0.5)


def test_more_memory_brings_smaller_errors(solved):
    problem, full, _ = solved
    errors = [_erase(problem, full, full.memory.only(*kinds)).error.nats for kinds in ((), ("sums",))]
    assert errors[1] < 0.01 * errors[0]


def test_predicted_changes_of_predictions_are_of_the_right_size(solved):
    problem, full, retrained = solved
    result = _erase(problem, full, full.memory.only())
    own, other = (problem.model.predictive(q, problem.erased[0]) for q in (retrained, result.posterior))
    true = float(np.mean(own.kl(other)))
    assert true / 30 < result.error.predictive < 30 * true


def test_a_tolerance_decides(solved):
    problem, full, _ = solved
    memory = full.memory.only()
    predicted = _erase(problem, full, memory).error
    per_parameter = predicted.high / problem.model.dim
    assert _erase(problem, full, memory, tolerance=1.01 * per_parameter).trusted
    assert not _erase(problem, full, memory, tolerance=0.99 * per_parameter).trusted


@pytest.mark.parametrize("tolerance", [0.0, -1.0, np.nan])
def test_a_tolerance_must_be_positive(tolerance):
    problem = linear_gaussian()
    full = ub.fit(problem.model, problem.full, key=KEY)
    with pytest.raises(ValueError, match="tolerance must be positive"):
        _erase(problem, full, None, tolerance=tolerance)


def test_an_exact_result_has_no_error():
    problem = linear_gaussian()
    full = ub.fit(problem.model, problem.full, key=KEY)
    result = _erase(problem, full, full.memory)
    assert (result.error.nats, result.error.high, result.error.source) == (0.0, 0.0, Source.EXACT)
    assert result.trusted


@pytest.mark.parametrize(
    "method", [ub.BankReverseKL(draws=2000), ub.EUBO(lam=0.1, iterations=30), ub.ReverseKL(iterations=30)]
)
@pytest.mark.long
def test_the_papers_methods_are_compared_with_a_step(method):
    problem = logistic()
    full = ub.fit(problem.model, problem.full, key=KEY)
    retrained = ub.fit(problem.model, problem.remaining, key=KEY).posterior
    result = _erase(problem, full, full.memory, method=method)
    true = parameter_kl(retrained, result.posterior).value
    assert result.error.source in (Source.COMPARISON, Source.SAMPLING)
    assert true / 10 < result.error.nats < 10 * true


def test_a_descent_that_has_not_moved_is_as_far_as_doing_nothing():
    problem = logistic()
    full = ub.fit(problem.model, problem.full, key=KEY)
    result = _erase(problem, full, full.memory, method=ub.EUBO(lam=1.0))
    assert result.error.nats == pytest.approx(result.error.nothing, rel=0.6)
    assert result.verdict is ub.Verdict.RETRAIN


def _with_coreset(nats: float, nothing: float) -> Measures:
    return Measures(
        dim=DIM,
        records=5,
        change=nothing,
        share_removed=0.1,
        uncertainty=nats / UNCERTAINTY_SCALE,
        coverage=1.0,
    )


@pytest.mark.parametrize(
    ("nats", "nothing", "verdict"),
    [
        (0.99 * ALLOWED / CORESET_RANGE.high, 10.0, "trusted"),
        (1.01 * ALLOWED / CORESET_RANGE.high, 10.0, "doubtful"),
        (0.99 * ALLOWED, 2 * ALLOWED, "doubtful"),
        (1.01 * ALLOWED, 1.02 * ALLOWED / SMALL_BESIDE_NOTHING, "doubtful"),
        (1.01 * ALLOWED, 1.00 * ALLOWED / SMALL_BESIDE_NOTHING, "retrain"),
    ],
)
def test_the_table_of_verdicts(nats, nothing, verdict):
    measures = _with_coreset(nats, nothing)
    assert predict(measures).nats == pytest.approx(nats)
    assert str(judge(measures).verdict) == verdict


def test_what_cannot_be_predicted_is_doubtful_or_worse():
    for khat, verdict in ((0.1, "doubtful"), (None, "retrain")):
        trust = judge(Measures(dim=DIM, records=5, khat=khat))
        assert trust.error is None
        assert str(trust.verdict) == verdict
        assert "cannot be predicted" in str(trust.doubts[0])


def test_what_training_left_undone_counts():
    settled, short = (_with_coreset(0.01, 1.0)._replace(stationarity=left) for left in (0.0, 0.5))
    assert predict(short).nats == pytest.approx(predict(settled).nats + 0.5)
    assert predict(short).source is Source.TRAINING
    assert predict(settled).source is Source.CORESET


def test_a_diagonal_belief_without_curvature_predicts_little():
    measures = Measures(dim=DIM, change=1.0, share_removed=0.1, step=0.5, knows_curvature=False)
    error = predict(measures)
    assert error.source is Source.HELD_BACK
    assert error.high / error.low > 1e4
