"""Estimators for scikit-learn, each with data to train it on."""

import functools
import pickle

import numpy as np
from sklearn.base import clone, is_classifier

from unbayes.adapters.sklearn import (
    BayesianLinearRegression,
    BayesianLogisticRegression,
    SparseGPClassifier,
    SparseGPRegressor,
)

ESTIMATORS = {
    "linear": BayesianLinearRegression(random_state=0),
    "logistic": BayesianLogisticRegression(memory=30, random_state=0),
    "sums": BayesianLogisticRegression(random_state=0),
    "softmax": BayesianLogisticRegression(memory=30, random_state=0),
    "process": SparseGPRegressor(n_inducing=8, random_state=0),
    "process classes": SparseGPClassifier(n_inducing=8, memory=30, random_state=0),
}
REGRESSIONS = ("linear", "process")


@functools.cache
def data(name):
    """120 records of two columns with quite different scales; strings for classes."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2))
    f = 1.5 * X[:, 0] - X[:, 1] + 0.5 + 0.5 * rng.normal(size=120)
    if name in REGRESSIONS:
        return X * [1, 100], 10 + f
    classes = np.array(["ham", "spam"] if name != "softmax" else ["a", "b", "c"])
    return X * [1, 100], classes[np.digitize(f, [0.5] if name != "softmax" else [-0.5, 1.0])]


@functools.cache
def _fitted(name):
    return clone(ESTIMATORS[name]).fit(*data(name))


def fitted(name):
    """A trained estimator of one's own."""
    return pickle.loads(pickle.dumps(_fitted(name)))


def erase(name, count=12):
    """Indices of the erased and of the remaining records: a corner of the data, not a random sample."""
    order = np.argsort(data(name)[0][:, 0])
    return order[:count], order[count:]


def prediction(estimator, X):
    return estimator.predict_proba(X) if is_classifier(estimator) else np.stack(estimator.predict(X, True))
