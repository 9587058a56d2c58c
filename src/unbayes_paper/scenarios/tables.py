"""Tables that ship with scikit-learn or come from a seed, each with its model."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine

import unbayes as ub
from unbayes_paper.base import Records

# Synthetic tables have one size where they can, so that compiled programs serve again.
ROWS = 400


class Table(NamedTuple):
    """Records and the model that is trained on them."""

    model: ub.LinearModel
    records: Records


def standardise(x: np.ndarray) -> np.ndarray:
    """Columns with mean zero and variance one, but for those that are constant."""
    spread = x.std(0)
    return (x - x.mean(0)) / np.where(spread > 0, spread, 1)


def common_tables(banknote: Records | None) -> dict[str, Table]:
    """Well-behaved tables, on which every erasure is tried."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, 3))
    noisy = draw_labels(rng, x @ [1.5, -1.0, 0.5])
    counts = rng.poisson(np.exp(x @ [0.6, -0.4, 0.2] + 0.5))
    cancer_x, cancer_y = _shipped(load_breast_cancer)
    iris_x, iris_y = _shipped(load_iris)
    wine_x, wine_y = _shipped(load_wine)
    digits_x, digits_y = map(np.asarray, load_digits(n_class=4, return_X_y=True))
    tables = {
        "noisy classes": Table(ub.logistic_regression(3, prior_scale=10.0), (x, noisy)),
        "counts": Table(ub.poisson_regression(3, prior_scale=3.0), (x, counts)),
        "breast cancer": Table(
            ub.logistic_regression(10, prior_scale=5.0),
            (standardise(cancer_x[:, :10]), cancer_y),
        ),
        "iris": Table(ub.softmax_regression(4, 3, prior_scale=3.0), (standardise(iris_x), iris_y)),
        "wine": Table(ub.softmax_regression(13, 3, prior_scale=2.0), (standardise(wine_x), wine_y)),
        "digits": Table(
            ub.softmax_regression(16, 4, prior_scale=2.0),
            (standardise(digits_x[:, 18:34]), digits_y),
        ),
    }
    if banknote is not None:
        tables["banknote"] = Table(ub.logistic_regression(4, prior_scale=100.0), banknote)
    return tables


def further_tables() -> dict[str, Table]:
    """Other likelihoods, more columns, fewer rows than columns, classes that hardly overlap."""
    rng = np.random.default_rng(2)
    x, wider = rng.normal(size=(ROWS, 3)), rng.normal(size=(ROWS, 8))
    weights = np.array([0.6, -0.4, 0.2])
    logits = x @ rng.normal(size=(3, 3))
    cancer_x, cancer_y = _shipped(load_breast_cancer)
    diabetes_x, diabetes_y = _shipped(load_diabetes)
    digits_x, digits_y = _shipped(load_digits)
    # The inner six by six pixels: those at the edge are nearly constant.
    pixels = digits_x.reshape(-1, 8, 8)[:1000, 1:7, 1:7].reshape(-1, 36)
    poisson, logistic = ub.poisson_regression, ub.logistic_regression
    return {
        "rare events": Table(poisson(3, prior_scale=3.0), (x, rng.poisson(np.exp(x @ weights - 1.5)))),
        "many events": Table(poisson(3, prior_scale=3.0), (x, rng.poisson(np.exp(x @ weights + 2.5)))),
        "eight rates": Table(
            poisson(8, prior_scale=3.0),
            (wider, rng.poisson(np.exp(wider @ rng.normal(scale=0.3, size=8)))),
        ),
        "three classes": Table(
            ub.softmax_regression(3, 3, prior_scale=3.0),
            (x, (logits + rng.gumbel(size=logits.shape)).argmax(1)),
        ),
        "probit": Table(
            probit_regression(3, 5.0), (x, (x @ (2 * weights) + rng.normal(size=ROWS) > 0).astype(int))
        ),
        "near-separable": Table(logistic(3, prior_scale=10.0), (x, draw_labels(rng, x @ (20 * weights)))),
        "30 columns": Table(logistic(30, prior_scale=3.0), (standardise(cancer_x), cancer_y)),
        "diabetes": Table(
            logistic(10, prior_scale=3.0),
            (standardise(diabetes_x), (diabetes_y > np.median(diabetes_y)).astype(int)),
        ),
        "odd digits": Table(logistic(36, prior_scale=1.0), (standardise(pixels), digits_y[:1000] % 2)),
        "wide, 30 × 39": _wide(30, 39),
        "wide, 20 × 24": _wide(20, 24),
    }


def draw_labels(rng: np.random.Generator, log_odds: np.ndarray) -> np.ndarray:
    """Labels 0 and 1 with the given log-odds."""
    return (rng.random(len(log_odds)) < 1 / (1 + np.exp(-log_odds))).astype(int)


def _wide(rows: int, columns: int) -> Table:
    """Logistic regression on fewer rows than columns, of which five matter."""
    rng = np.random.default_rng(rows + columns)
    x = rng.normal(size=(rows, columns))
    y = draw_labels(rng, 1.5 * x[:, :5].sum(1))
    return Table(ub.logistic_regression(columns, prior_scale=1.0), (x, y))


def probit_regression(columns: int, prior_scale: float) -> ub.LinearModel:
    """Classes 0 and 1 by a threshold on a linear predictor with Gaussian noise."""
    features = ub.RawFeatures(columns)
    prior = ub.DiagonalGaussian(jnp.zeros(features.size), jnp.full(features.size, prior_scale))
    return ub.LinearModel(features, ub.ProbitLikelihood(), prior)


def _shipped(load) -> Records:
    x, y = load(return_X_y=True)
    return np.asarray(x), np.asarray(y)
