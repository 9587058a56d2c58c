"""Estimators that several threads share."""

import copy
import pickle
import threading

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from adapters.sklearn_cases import ESTIMATORS, data, fitted, prediction


def together(*calls):
    """Run calls in threads that begin at the same time; what they raise is raised here."""
    start, errors = threading.Barrier(len(calls)), []

    def run(call):
        start.wait()
        try:
            call()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.mark.parametrize("name", ["linear", "logistic"])
def test_no_request_is_lost(name):
    X, y = data(name)
    estimator = fitted(name)
    parts = [slice(first, first + 10) for first in range(0, 80, 10)]
    together(*(lambda part=part: estimator.unlearn(X[part], y[part]) for part in parts))
    assert estimator.last_unlearning_.records == 80
    expected = fitted(name).unlearn(X[:80], y[:80])
    np.testing.assert_allclose(prediction(estimator, X), prediction(expected, X), rtol=1e-6)


def test_training_and_unlearning_at_once_leave_one_of_both_orders():
    X, y = data("linear")
    estimator = fitted("linear")
    together(lambda: estimator.fit(X[:60], y[:60]), lambda: estimator.unlearn(X[:5], y[:5]))
    erased = hasattr(estimator, "last_unlearning_")
    expected = clone(estimator).fit(X[:60], y[:60])
    if erased:
        expected.unlearn(X[:5], y[:5])
    np.testing.assert_array_equal(prediction(estimator, X), prediction(expected, X))
    np.testing.assert_array_equal(estimator.coef_, expected.coef_)
    assert estimator.log_evidence_ == expected.log_evidence_
    assert estimator.memory_.records == (55 if erased else 60)


def test_copies_that_are_taken_meanwhile_are_whole():
    """Coefficients, predictions and diagnosis of a pickle belong together."""
    X, y = data("linear")
    estimator = fitted("linear")
    copies = []

    def unlearn():
        for row in range(40):
            estimator.unlearn(X[row : row + 1], y[row : row + 1])

    def take():
        copies.extend(pickle.loads(pickle.dumps(estimator)) for _ in range(40))

    together(unlearn, take)
    for each in copies:
        np.testing.assert_allclose(each.predict(X), X @ each.coef_ + each.intercept_, rtol=1e-9)
        erased = each.last_unlearning_.records if hasattr(each, "last_unlearning_") else 0
        assert each._state.remaining == 120 - erased


def test_a_used_estimator_can_be_copied_and_cloned():
    X, y = data("linear")
    estimator = fitted("linear").unlearn(X[:5], y[:5])
    for again in (copy.copy(estimator), copy.deepcopy(estimator), pickle.loads(pickle.dumps(estimator))):
        np.testing.assert_array_equal(again.predict(X), estimator.predict(X))
        check_is_fitted(again)
        # Copies are on their own.
        again.unlearn(X[5:10], y[5:10])
    assert estimator.last_unlearning_.records == 5
    with pytest.raises(NotFittedError):
        check_is_fitted(clone(estimator))
    assert clone(estimator).get_params() == ESTIMATORS["linear"].get_params()
