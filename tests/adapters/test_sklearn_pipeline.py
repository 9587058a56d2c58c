"""Unlearning through pipelines and searches to the estimator at their end."""

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.ensemble import RandomForestRegressor
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    Normalizer,
    OneHotEncoder,
    PolynomialFeatures,
    StandardScaler,
    TargetEncoder,
)

from adapters.sklearn_cases import data
from unbayes.adapters.sklearn import BayesianLinearRegression, BayesianLogisticRegression, unlearn

X, Y = data("linear")
GONE = slice(0, 12)


def linear():
    return BayesianLinearRegression(random_state=0)


def by_hand(steps, X, y, gone):
    """The last of fitted steps, with what the others make of the records taken out of it."""
    *transformers, last = (step for _, step in steps)
    for transformer in transformers:
        X = transformer.transform(X)
    return last.unlearn(X[gone], y[gone]).coef_


def test_the_last_step_unlearns_what_the_others_make_of_the_records():
    found, expected = (make_pipeline(StandardScaler(), linear()).fit(X, Y) for _ in range(2))
    scale = found[0].scale_.copy()
    outcome = unlearn(found, X[GONE], Y[GONE])
    np.testing.assert_array_equal(found[-1].coef_, by_hand(expected.steps, X, Y, GONE))
    np.testing.assert_array_equal(found[0].scale_, scale)
    assert outcome.result is found[-1].last_unlearning_
    assert outcome.result.records == 12
    assert outcome.remembered == ("standardscaler (StandardScaler)",)
    sentence = "standardscaler (StandardScaler) was made with the erased records in sight"
    assert outcome.result.caveats[-1].startswith(sentence)
    assert sentence in str(outcome)


def test_steps_that_learn_nothing_remember_nothing():
    pipeline = make_pipeline(
        FunctionTransformer(np.cbrt), "passthrough", PolynomialFeatures(2), Normalizer(), None, linear()
    ).fit(X, Y)
    assert unlearn(pipeline, X[GONE], Y[GONE]).remembered == ()
    # An estimator by itself is a pipeline of one step.
    assert unlearn(linear().fit(X, Y), X[GONE], Y[GONE]).remembered == ()


def test_columns_unions_caches_and_targets_are_followed(tmp_path):
    frame = pd.DataFrame({"size": X[:, 0], "weight": X[:, 1], "place": np.where(X[:, 0] > 0, "in", "out")})
    columns = ColumnTransformer(
        [
            ("numbers", make_pipeline(StandardScaler(), FunctionTransformer()), ["weight"]),
            # Sparse, and so are the transformed columns.
            ("words", OneHotEncoder(), ["place"]),
            ("none", "drop", ["size"]),
        ],
        remainder="passthrough",
        sparse_threshold=1.0,
    )
    union = FeatureUnion([("same", "passthrough"), ("scaled", StandardScaler(with_mean=False))])
    steps = make_pipeline(columns, union, linear(), memory=str(tmp_path))
    found = TransformedTargetRegressor(steps, transformer=StandardScaler()).fit(frame, Y)
    expected = TransformedTargetRegressor(steps, transformer=StandardScaler()).fit(frame, Y)
    outcome = unlearn(found, frame[GONE], Y[GONE])
    targets = expected.transformer_.transform(Y[:, None])[:, 0]
    np.testing.assert_allclose(
        found.regressor_[-1].coef_, by_hand(expected.regressor_.steps, frame, targets, GONE), rtol=1e-9
    )
    assert outcome.remembered == (
        "transformer (StandardScaler)",
        "regressor__columntransformer__numbers__standardscaler (StandardScaler)",
        "regressor__columntransformer__words (OneHotEncoder)",
        "regressor__featureunion__scaled (StandardScaler)",
        "regressor__memory (Pipeline)",
    )


@pytest.mark.long
def test_searches_hand_on_to_their_best_estimator():
    inputs, labels = data("logistic")
    steps = make_pipeline(StandardScaler(), BayesianLogisticRegression(memory=30, random_state=0))
    grid = {"bayesianlogisticregression__prior_scale": [1e-3, 1.0]}
    search = GridSearchCV(steps, grid, cv=2).fit(inputs, labels)
    assert search.best_params_ == {"bayesianlogisticregression__prior_scale": 1.0}
    before = search.score(inputs, labels)
    gone = np.flatnonzero(labels == "spam")[:10]
    outcome = unlearn(search, inputs[gone], labels[gone])
    assert outcome.remembered == ("best_params_ (GridSearchCV)", "standardscaler (StandardScaler)")
    assert search.best_estimator_[-1].last_unlearning_ is outcome.result
    assert 0.7 < search.score(inputs, labels) <= before + 0.05
    assert search.predict_proba(inputs)[:, 1].mean() < 0.5
    search = GridSearchCV(steps, grid, cv=2, refit=False).fit(inputs, labels)
    with pytest.raises(ValueError, match=r"trained best_estimator_, got GridSearchCV with refit=False"):
        unlearn(search, inputs[gone], labels[gone])


def test_what_cannot_be_followed_is_named():
    with pytest.raises(NotFittedError):
        unlearn(make_pipeline(StandardScaler(), linear()), X, Y)
    forest = make_pipeline(StandardScaler(), RandomForestRegressor(2)).fit(X, Y)
    with pytest.raises(TypeError, match=r"got randomforestregressor \(RandomForestRegressor\)"):
        unlearn(forest, X[GONE], Y[GONE])
    # Encodes a record in training by the targets of others, later by all.
    coded = make_pipeline(TargetEncoder(cv=2), linear()).fit(np.round(X), Y)
    with pytest.raises(TypeError, match=r"targetencoder \(TargetEncoder\) must transform records in train"):
        unlearn(coded, np.round(X)[GONE], Y[GONE])
