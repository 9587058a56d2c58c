"""Records that count more or less than once."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import unbayes as ub
from adapters.sklearn_cases import ESTIMATORS, data, erase, prediction
from unbayes.adapters.sklearn import BayesianLogisticRegression, unlearn

QUICK, LONG = ("linear", "logistic"), ("process", "softmax", "process classes")
TIMES = np.random.default_rng(3).integers(0, 4, 120)


def estimator(name):
    """Without a memory, which would draw other records, and inducing inputs that do not depend on chance."""
    X, _ = data(name)
    found = clone(ESTIMATORS[name])
    if "memory" in found.get_params():
        found.set_params(memory=None)
    if name.startswith("process"):
        found.set_params(inducing_inputs=X[:8])
    return found


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.long) for name in LONG)])
def test_a_record_of_weight_two_is_two_records(name):
    """In training, and in what is chosen by it; and when it is unlearned."""
    X, y = data(name)
    gone, _ = erase(name)
    weighted = estimator(name).fit(X, y, sample_weight=TIMES)
    repeated = estimator(name).fit(np.repeat(X, TIMES, 0), np.repeat(y, TIMES))
    np.testing.assert_allclose(prediction(weighted, X), prediction(repeated, X), rtol=1e-6)
    weighted.unlearn(X[gone], y[gone], sample_weight=TIMES[gone])
    repeated.unlearn(np.repeat(X[gone], TIMES[gone], 0), np.repeat(y[gone], TIMES[gone]))
    np.testing.assert_allclose(prediction(weighted, X), prediction(repeated, X), rtol=1e-6)


def test_weights_of_one_change_nothing():
    X, y = data("linear")
    plain, weighted = estimator("linear").fit(X, y), estimator("linear").fit(X, y, np.ones(120))
    np.testing.assert_allclose(weighted.coef_, plain.coef_, rtol=1e-12)
    assert weighted.noise_scale_ == pytest.approx(plain.noise_scale_, rel=1e-12)
    assert weighted.log_evidence_ == pytest.approx(plain.log_evidence_, rel=1e-12)


@pytest.mark.parametrize(
    "class_weight", [pytest.param("balanced", marks=pytest.mark.long), {"ham": 0.2, "spam": 3.0}]
)
def test_class_weights_are_those_of_scikit_learn(class_weight):
    """Where there are many records, the mean of the belief is the point that scikit-learn finds."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 2))
    y = np.where(X @ [1.0, -1.0] + rng.logistic(size=4000) > 1.5, "spam", "ham")
    ours = BayesianLogisticRegression(class_weight=class_weight, memory=None).fit(X, y)
    theirs = LogisticRegression(class_weight=class_weight).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=0.01)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=0.01)
    # Erased records counted as often as their class did, whatever is set by now.
    ours.set_params(class_weight=None).unlearn(X[:400], y[:400])
    weights = dict(zip(ours.classes_, ours.class_weight_, strict=True))
    again = LogisticRegression(class_weight=weights).fit(X[400:], y[400:])
    np.testing.assert_allclose(ours.coef_, again.coef_, rtol=0.01)


def test_weights_have_to_be_given_as_they_were():
    X, y = data("linear")
    weighted, plain = estimator("linear").fit(X, y, TIMES), estimator("linear").fit(X, y)
    with pytest.raises(ValueError, match="sample_weight must be an array, as it was in fit"):
        weighted.unlearn(X[:2], y[:2])
    with pytest.raises(ValueError, match="sample_weight must be None, as it was in fit"):
        plain.unlearn(X[:2], y[:2], [1.0, 2.0])
    with pytest.raises(ValueError, match=r"[Nn]egative"):
        weighted.unlearn(X[:2], y[:2], [1.0, -2.0])
    pipeline = make_pipeline(StandardScaler(), estimator("linear"))
    pipeline.fit(X, y, bayesianlinearregression__sample_weight=TIMES)
    assert unlearn(pipeline, X[:2], y[:2], TIMES[:2]).result.records == 2


def test_a_weighted_model_can_be_saved(tmp_path):
    X, y = data("linear")
    weighted = estimator("linear").fit(X, y, TIMES)
    ub.save(tmp_path / "file.unbayes", weighted.posterior_, weighted.model_)
    found = ub.load(tmp_path / "file.unbayes")
    np.testing.assert_allclose(found.model.predictive(found.posterior, X).mean, weighted.predict(X))
