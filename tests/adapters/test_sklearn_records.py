"""Which records an estimator was trained on, and which are gone."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from adapters.sklearn_cases import ESTIMATORS, data, fitted, prediction
from unbayes.adapters.sklearn import BayesianLinearRegression, SparseGPRegressor, unlearn


@pytest.mark.parametrize("name", ["linear", "logistic"])
def test_records_that_are_gone_are_noticed_in_every_later_call(name):
    X, y = data(name)
    estimator = fitted(name)
    for first in (0, 5, 10):
        estimator.unlearn(X[first : first + 5], y[first : first + 5])
    for first in (0, 5, 10):
        before = pickle.dumps(estimator)
        with pytest.raises(ValueError, match="training records that are left; 5 of 5 are not: row 0"):
            estimator.unlearn(X[first : first + 5], y[first : first + 5])
        assert pickle.dumps(estimator) == before
    # Those that are left of a request come out, and are counted.
    estimator.unlearn(X[:20], y[:20], missing="skip")
    assert estimator.last_unlearning_.records == 20
    expected = fitted(name).unlearn(X[:20], y[:20])
    np.testing.assert_allclose(prediction(estimator, X), prediction(expected, X), rtol=1e-6)


def test_more_than_is_left_may_be_asked_for_if_the_rest_is_skipped():
    X, y = data("linear")
    estimator = fitted("linear").unlearn(X[:100], y[:100])
    assert estimator.unlearn(X[50:], y[50:], missing="skip").last_unlearning_.records == 120


def test_identifiers_tell_records_apart():
    X, y = data("linear")
    names = [f"customer {i}" for i in range(120)]
    estimator = clone(ESTIMATORS["linear"]).fit(X, y, ids=names)
    for rows in (slice(0, 3), slice(3, 5)):
        # Digits may have been lost on the way.
        estimator.unlearn(X[rows].round(6), y[rows], ids=names[rows])
    assert estimator.last_unlearning_.records == 5
    with pytest.raises(ValueError, match="1 of 2 are not: 'customer 4'"):
        estimator.unlearn(X[4:6], y[4:6], ids=names[4:6])
    with pytest.raises(ValueError, match="ids must"):
        estimator.unlearn(X[5:6], y[5:6])


def test_identifiers_go_through_a_pipeline():
    X, y = data("linear")
    pipeline = make_pipeline(StandardScaler(), clone(ESTIMATORS["linear"]))
    pipeline.fit(X, y, bayesianlinearregression__ids=range(120))
    assert unlearn(pipeline, X[:3], y[:3], ids=range(3)).result.records == 3
    assert unlearn(pipeline, X[:5], y[:5], ids=range(5), missing="skip").result.records == 5


def test_inducing_inputs_that_are_erased_records_are_named_over_several_calls():
    X, y = data("process")
    estimator = clone(ESTIMATORS["process"]).set_params(inducing_inputs=X[:8]).fit(X, y)
    estimator.unlearn(X[:2], y[:2]).unlearn(X[2:3], y[2:3]).unlearn(X[50:60], y[50:60])
    assert "stay in the model: 3 of 8" in estimator.last_unlearning_.caveats[0]


def test_what_was_chosen_with_the_records_in_sight_is_named():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = X @ [1.0, 2.0] + 0.1 * rng.normal(size=60)
    sentence = "chosen with the erased records in sight, until `refit` chooses anew: "
    automatic = BayesianLinearRegression().fit(X, y).unlearn(X[:3], y[:3])
    names = "the centre of the inputs, noise_scale, prior_scale"
    assert automatic.last_unlearning_.caveats == (sentence + names,)
    # Parameters that change after `fit` chose nothing.
    fixed = BayesianLinearRegression(noise_scale=0.1, prior_scale=1.0, fit_intercept=False).fit(X, y)
    fixed.set_params(noise_scale="auto")
    assert fixed.unlearn(X[:3], y[:3]).last_unlearning_.caveats == ()
    process = SparseGPRegressor(n_inducing=10, lengthscale=1.0, signal_scale=1.0, noise_scale=0.1).fit(X, y)
    assert process.unlearn(X[:3], y[:3]).last_unlearning_.caveats[-1] == sentence + "the inducing inputs"


def test_a_request_may_be_repeated():
    X, y = data("logistic")
    estimator = fitted("logistic").unlearn(X[:5], y[:5])
    before = pickle.dumps(estimator)
    assert estimator.unlearn(X[:5], y[:5], missing="skip") is estimator
    assert pickle.dumps(estimator) == before
    with pytest.raises(ValueError, match="erased holds none of the training records that are left"):
        fitted("logistic").unlearn(X[:5] + 1, y[:5], missing="skip")
