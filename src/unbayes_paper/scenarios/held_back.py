"""Tables on which no limit was set: what verdicts and predictions are checked on, and never tuned to."""

import importlib.util
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.datasets import make_blobs, make_circles, make_classification, make_friedman1

import unbayes as ub
from unbayes_paper.base import Records
from unbayes_paper.flights import new_york
from unbayes_paper.scenarios.tables import Table, probit_regression, standardise

ROWS = 300
# Arrival delays, in minutes: from where a flight is late, and what is counted of them.
LATE, QUARTER = 15, 15
# Of the surveys that come with statsmodels.
SURVEYED = 400


def held_back_tables() -> Iterator[tuple[str, Table]]:
    """Flights, designs of scikit-learn's generators, and surveys of statsmodels where that is installed."""
    yield from _flights()
    yield from _generated()
    yield from _surveys()


def _flights() -> Iterator[tuple[str, Table]]:
    try:
        source = new_york(2 * ROWS)
    except ModuleNotFoundError as error:
        warnings.warn(f"scenarios on flights are left out: {error}", stacklevel=2)
        return
    x, delays = (np.concatenate(parts) for parts in zip(*source.batches(), strict=True))
    x = standardise(x)
    yield "late flights", Table(ub.logistic_regression(8, prior_scale=3.0), (x, (delays > LATE).astype(int)))
    # More uneven than a Poisson distribution has it: the model is wrong.
    quarters = np.maximum(delays, 0).astype(int) // QUARTER
    yield "quarters of an hour late", Table(ub.poisson_regression(8, prior_scale=3.0), (x, quarters))


def _generated() -> Iterator[tuple[str, Table]]:
    x, y = _arrays(make_circles(ROWS, noise=0.2, factor=0.6, random_state=0))
    curved = np.column_stack([x, x**2, x[:, 0] * x[:, 1]])
    yield "rings", Table(ub.logistic_regression(5, prior_scale=5.0), (standardise(curved), y))
    settings: Any = {"n_informative": 4, "n_redundant": 1, "n_classes": 3, "class_sep": 0.8}
    x, y = _arrays(make_classification(ROWS, 6, **settings, random_state=0))
    yield "three kinds", Table(ub.softmax_regression(6, 3, prior_scale=3.0), (standardise(x), y))
    x, y = _arrays(make_blobs(ROWS, 2, centers=4, cluster_std=2.0, random_state=0))
    yield "blobs", Table(ub.softmax_regression(2, 4, prior_scale=3.0), (standardise(x), y))
    x, y = _arrays(make_friedman1(ROWS, 7, noise=3.0, random_state=0))
    above = (y > np.median(y)).astype(int)
    yield "friedman", Table(probit_regression(7, 5.0), (standardise(x), above))


def _arrays(generated: Any) -> Records:
    """What a generator of scikit-learn returned."""
    return np.asarray(generated[0]), np.asarray(generated[1])


def _surveys() -> Iterator[tuple[str, Table]]:
    if importlib.util.find_spec("statsmodels") is None:
        warnings.warn("scenarios on surveys are left out: pip install statsmodels", stacklevel=2)
        return
    datasets: Any = importlib.import_module("statsmodels.datasets")
    fair = datasets.fair.load_pandas()
    x, y = _every(fair.exog, fair.endog)
    yield "affairs", Table(ub.logistic_regression(x.shape[1], prior_scale=3.0), (x, (y > 0).astype(int)))
    visits = datasets.randhie.load_pandas()
    x, y = _every(visits.exog, visits.endog)
    yield "visits to doctors", Table(ub.poisson_regression(x.shape[1], prior_scale=3.0), (x, y.astype(int)))


def _every(inputs: Any, targets: Any) -> tuple[np.ndarray, np.ndarray]:
    """Evenly spaced rows of a survey."""
    rows = np.linspace(0, len(targets) - 1, SURVEYED).astype(int)
    return standardise(np.asarray(inputs, float)[rows]), np.asarray(targets)[rows]
