"""What estimators hold for the rest of unbayes: `model_`, `posterior_` and `memory_`."""

import pickle

import jax
import numpy as np
import pytest
from sklearn.base import clone

import unbayes as ub
from adapters.sklearn_cases import ESTIMATORS, data, erase, fitted, prediction
from unbayes.adapters.sklearn.classification import MIXING, NODES
from unbayes.models import ClassPredictive

QUICK, LONG = ("linear", "logistic", "process"), ("softmax", "process classes")
# Far from the origin of the inputs, where a centre that is left out shows.
SHIFT = np.array([3.0, -50.0])


def shifted(name):
    """An estimator trained on inputs and, in regression, targets that are not centred, and its records."""
    X, y = data(name)
    return clone(ESTIMATORS[name]).fit(X + SHIFT, y), X + SHIFT, y


def as_predicted(model, posterior, X):
    """The same numbers as `prediction`, by the core alone."""
    predictive = model.predictive(posterior, X)
    if isinstance(predictive, ClassPredictive):
        return predictive.probabilities
    return np.stack([predictive.mean, np.sqrt(predictive.variance)])


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in ESTIMATORS]
)
def test_model_and_posterior_take_inputs_as_the_user_has_them(name, tmp_path):
    trained, X, y = shifted(name)
    gone, _ = erase(name)
    for estimator in (trained, pickle.loads(pickle.dumps(trained)).unlearn(X[gone], y[gone])):
        expected = prediction(estimator, X)
        found = as_predicted(estimator.model_, estimator.posterior_, X)
        np.testing.assert_allclose(found, expected, rtol=1e-10)
        ub.save(tmp_path / "file.unbayes", estimator.posterior_, estimator.model_, memory=estimator.memory_)
        saved = ub.load(tmp_path / "file.unbayes")
        np.testing.assert_allclose(as_predicted(saved.model, saved.posterior, X), expected, rtol=1e-10)


def _model_of_centred_records(name, estimator, y):
    """As the documentation of the linear estimators has it, for records that were centred beforehand."""
    if name == "linear":
        likelihood = ub.GaussianLikelihood(estimator.noise_scale_)
        scales = [10 * max(y.std(), estimator.noise_scale_), *[estimator.prior_scale_] * 2]
    else:
        likelihood = ub.CategoricalLikelihood(3) if name == "softmax" else ub.BernoulliLikelihood()
        scales = [10.0, 1.0, 1.0] * likelihood.outputs
    prior = ub.DiagonalGaussian(np.zeros(len(scales)), np.array(scales))
    return ub.LinearModel(ub.RawFeatures(2), likelihood, prior)


@pytest.mark.parametrize("name", ["linear", "logistic", pytest.param("softmax", marks=pytest.mark.long)])
def test_results_are_those_of_records_that_were_centred_beforehand(name):
    estimator, X, y = shifted(name)
    gone, _ = erase(name)
    model = _model_of_centred_records(name, estimator, y)
    inputs, offset = X - X.mean(0), np.zeros((2, 1))
    if name == "linear":
        offset[0], training, method, memory = y.mean(), None, ub.Exact(), None
        targets = y - y.mean()
    else:
        nodes = NODES[model.integral_dim]
        training = ub.NaturalGradientVI(200, 1e-5, nodes, MIXING)
        method, memory, targets = ub.NaturalGradient(nodes=nodes), 30, np.unique(y, return_inverse=True)[1]
        offset = 0.0
    key = jax.random.key(estimator._state.seed)
    trained = ub.fit(model, (inputs, targets), method=training, memory=memory, key=key)
    expected = as_predicted(model, trained.posterior, inputs) + offset
    np.testing.assert_allclose(prediction(estimator, X), expected, rtol=1e-10)
    result = ub.unlearn(
        trained.posterior,
        model,
        (inputs[gone], targets[gone]),
        memory=trained.memory,
        method=method,
        key=key,
    )
    expected = as_predicted(model, result.posterior, inputs) + offset
    np.testing.assert_allclose(prediction(estimator.unlearn(X[gone], y[gone]), X), expected, rtol=1e-10)


def test_memory_is_what_is_kept_beside_the_posterior():
    X, y = data("logistic")
    gone, _ = erase("logistic")
    estimator = fitted("logistic")
    assert (estimator.memory_.records, estimator.memory_.size) == (120, 30)
    estimator.unlearn(X[gone], y[gone])
    assert estimator.memory_.records == 108
    # Rows of the memory that were erased are gone from it, and not only blank.
    assert estimator.memory_.coreset.design.all()
    assert fitted("linear").memory_.size == 0


@pytest.mark.parametrize("name", ["linear", "logistic"])
def test_parameters_that_are_set_after_training_change_nothing(name):
    """They are for the next `fit`."""
    X, y = data(name)
    gone, _ = erase(name)
    estimator = fitted(name).set_params(fit_intercept=False, prior_scale=17.0, random_state=5)
    estimator.unlearn(X[gone], y[gone])
    expected = fitted(name).unlearn(X[gone], y[gone])
    np.testing.assert_array_equal(estimator.coef_, expected.coef_)
    np.testing.assert_array_equal(estimator.intercept_, expected.intercept_)
    np.testing.assert_array_equal(prediction(estimator, X), prediction(expected, X))
