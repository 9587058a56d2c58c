"""What estimators keep of their training records: sums, records, both or nothing."""

import pickle

import jax
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import unbayes as ub
from adapters.sklearn_cases import ESTIMATORS, data, erase, fitted, prediction
from reachable import rows_found
from unbayes.adapters.sklearn import BayesianLogisticRegression
from unbayes.adapters.sklearn.classification import FEW_DIRECTIONS, LARGEST_WITH_MEMORY, _affordable
from unbayes.adapters.sklearn.state import in_use


def logistic(**settings):
    return BayesianLogisticRegression(random_state=0, **settings)


def test_unless_told_otherwise_sums_are_kept_and_no_record():
    X, y = data("sums")
    gone, _ = erase("sums")
    estimator = fitted("sums")
    assert (estimator.memory_.size, estimator.memory_.sums.derivatives.order) == (0, 4)
    estimator.unlearn(X[gone], y[gone])
    design = estimator.model_.encode((X, np.zeros(len(X)))).design
    for rows in (X, X - X.mean(0), np.asarray(design)):
        assert rows_found(vars(estimator), rows) == 0
    assert estimator.last_unlearning_.trust.measures.order == 4


def test_requests_in_any_order_and_number_end_where_one_does():
    X, y = data("sums")
    gone, _ = erase("sums")
    at_once = fitted("sums").unlearn(X[gone], y[gone])
    for parts in ([gone[:5], gone[5:6], gone[6:]], [gone[9:], gone[:9]], gone[:, None]):
        apart = fitted("sums")
        for part in parts:
            # As between two processes.
            apart = pickle.loads(pickle.dumps(apart)).unlearn(X[part], y[part])
        np.testing.assert_allclose(prediction(apart, X), prediction(at_once, X), rtol=1e-9)
        kept, expected = apart.memory_.sums, at_once.memory_.sums
        np.testing.assert_allclose(kept.derivatives.third, expected.derivatives.third, atol=1e-9)
        np.testing.assert_allclose(kept.derivatives.fourth, expected.derivatives.fourth, atol=1e-9)
        # For later requests there are the sums that training kept, and those over what was erased since.
        np.testing.assert_array_equal(
            apart._state.memory.sums.derivatives.third, fitted("sums").memory_.sums.derivatives.third
        )


@pytest.mark.long
def test_the_public_memory_is_that_of_the_remaining_records(tmp_path):
    X, y = data("sums")
    gone, left = erase("sums")
    estimator = fitted("sums").unlearn(X[gone], y[gone])
    path = tmp_path / "file.unbayes"
    with jax.enable_x64(True):
        ub.save(path, estimator.posterior_, estimator.model_, memory=estimator.memory_)
        saved = ub.load(path)
        posterior, model, kept = in_use((saved.posterior, saved.model, saved.memory.sums))
        records = {
            name: (X[rows], estimator._targets(y[rows])) for name, rows in (("left", left), ("all", ...))
        }
        found = {
            name: kept.of(posterior, model, model.encode(each), model.nodes(), None)
            for name, each in records.items()
        }

    def off(name):
        return np.abs(kept.derivatives.third - found[name].third).max()

    assert saved.memory.records == len(left)
    assert off("left") < 0.1 * off("all")
    # It serves the posterior beside it, and whoever loads both.
    with jax.enable_x64(True):
        more = X[left[:5]], estimator._targets(y[left[:5]])
        result = ub.unlearn(saved.posterior, saved.model, more, memory=saved.memory, key=jax.random.key(0))
    estimator.unlearn(X[left[:5]], y[left[:5]])
    np.testing.assert_allclose(result.posterior.mean, estimator.posterior_.mean, atol=5e-3)


KEPT = {
    "sums": ("sums", 4, 3, 0),
    "settings": (ub.Sums(order=3), 3, 3, 0),
    "directions": (ub.Sums(directions=2), 4, 2, 0),
    "both": (("sums", ub.Coreset(20)), 4, 3, 20),
    "a list": ([20, ub.Sums()], 4, 3, 20),
    "records": (ub.Coreset(20), None, None, 20),
    "NumPy's number": (np.int64(20), None, None, 20),
    "curvature": ("curvature", None, None, 0),
    "nothing": (None, None, None, 0),
}


@pytest.mark.parametrize("case", KEPT)
def test_what_fit_takes(case):
    memory, order, directions, size = KEPT[case]
    estimator = pickle.loads(pickle.dumps(clone(logistic(memory=memory)).fit(*data("logistic"))))
    assert estimator.get_params()["memory"] == memory
    kept = estimator.memory_
    assert kept.size == size
    assert (kept.sums is not None) == (order is not None)
    if order is not None:
        assert (kept.sums.derivatives.order, kept.sums.derivatives.directions) == (order, directions)


@pytest.mark.parametrize("memory", ["all", ("sums", "all"), (3, -1), 2.5, True])
def test_what_no_memory_is_is_refused(memory):
    with pytest.raises(ValueError, match=r"memory.* parameter .*Got|memory must be 'sums'"):
        logistic(memory=memory).fit(*data("logistic"))


def test_a_search_may_try_memories():
    X, y = data("logistic")
    search = GridSearchCV(logistic(), {"memory": ["sums", ub.Sums(order=3), np.arange(5, 6)[0]]}, cv=2)
    search.fit(X, y)
    # Beliefs do not depend on what is kept beside them.
    assert np.ptp(search.cv_results_["mean_test_score"]) == 0


@pytest.mark.parametrize(
    ("records", "directions"), [(100, 40), (2000, 40), (2001, 20), (10**6, FEW_DIRECTIONS)]
)
def test_fewer_directions_of_more_records(records, directions):
    model = ub.logistic_regression(features=60)
    assert _affordable(model, records) == ub.Sums(directions=directions)
    assert _affordable(ub.logistic_regression(features=LARGEST_WITH_MEMORY), records) is None
    assert _affordable(ub.softmax_regression(features=2, classes=3), records) == ub.Coreset(100)


@pytest.mark.long
def test_weights_count_in_sums():
    """A record of weight two is two records."""
    X, y = data("logistic")
    twice = np.concatenate([np.arange(len(X)), np.arange(30)])
    weights = 1.0 + (np.arange(len(X)) < 30)
    weighted = clone(ESTIMATORS["sums"]).fit(X, y, sample_weight=weights)
    repeated = clone(ESTIMATORS["sums"]).fit(X[twice], y[twice])
    np.testing.assert_allclose(
        np.abs(weighted.memory_.sums.derivatives.third).sum(),
        np.abs(repeated.memory_.sums.derivatives.third).sum(),
        rtol=1e-6,
    )
    weighted.unlearn(X[:10], y[:10], sample_weight=weights[:10])
    repeated.unlearn(X[twice][[*range(10), *range(120, 130)]], y[twice][[*range(10), *range(120, 130)]])
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-6)
