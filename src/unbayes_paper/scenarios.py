"""Erasures of many kinds, to test verdicts on: data set × what is erased × family of the posterior."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine

import unbayes as ub
from unbayes.posteriors import AbstractGaussian
from unbayes_paper.base import Problem, Records, split
from unbayes_paper.moon import moon

MOON_SCENARIOS = ("moon", "random", "yellow 30", "yellow 40", "yellow 50")


class Scenario(NamedTuple):
    """A problem, what it is called, and the family of the posterior."""

    name: str
    problem: Problem
    family: type[AbstractGaussian]


def scenarios(banknote: Records | None = None) -> Iterator[Scenario]:
    """All of them; those on the banknote data where these are given, inputs standardised."""
    for family in (ub.FullGaussian, ub.DiagonalGaussian):
        for seed in (0, 1, 2) if family is ub.FullGaussian else (0,):
            for scenario in MOON_SCENARIOS:
                yield Scenario(f"{scenario}, seed {seed}", moon(scenario, seed), family)
        for data, (model, records) in _tables(banknote).items():
            for erasure, rows in _erasures(records).items():
                yield Scenario(f"{data}, {erasure}", split(model, records, rows), family)


def standardise(x: np.ndarray) -> np.ndarray:
    """Columns with mean zero and variance one, but for those that are constant."""
    spread = x.std(0)
    return (x - x.mean(0)) / np.where(spread > 0, spread, 1)


def _tables(banknote: Records | None) -> dict[str, tuple[ub.LinearModel, Records]]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 3))
    noisy = (rng.random(400) < 1 / (1 + np.exp(-(x @ [1.5, -1.0, 0.5])))).astype(int)
    counts = rng.poisson(np.exp(x @ [0.6, -0.4, 0.2] + 0.5))
    cancer_x, cancer_y = map(np.asarray, load_breast_cancer(return_X_y=True))
    iris_x, iris_y = map(np.asarray, load_iris(return_X_y=True))
    wine_x, wine_y = map(np.asarray, load_wine(return_X_y=True))
    digits_x, digits_y = map(np.asarray, load_digits(n_class=4, return_X_y=True))
    tables = {
        "noisy classes": (ub.logistic_regression(3, prior_scale=10.0), (x, noisy)),
        "counts": (ub.poisson_regression(3, prior_scale=3.0), (x, counts)),
        "breast cancer": (
            ub.logistic_regression(10, prior_scale=5.0),
            (standardise(cancer_x[:, :10]), cancer_y),
        ),
        "iris": (ub.softmax_regression(4, 3, prior_scale=3.0), (standardise(iris_x), iris_y)),
        "wine": (ub.softmax_regression(13, 3, prior_scale=2.0), (standardise(wine_x), wine_y)),
        "digits": (
            ub.softmax_regression(16, 4, prior_scale=2.0),
            (standardise(digits_x[:, 18:34]), digits_y),
        ),
    }
    if banknote is not None:
        tables["banknote"] = (ub.logistic_regression(4, prior_scale=100.0), banknote)
    return tables


def _erasures(records: Records) -> dict[str, np.ndarray]:
    """Rows to erase, by what they have in common."""
    x, y = records
    order = np.random.default_rng(1).permutation(len(y))
    far = np.argsort(-np.abs(x).max(1))
    low = np.argsort(x[:, 0])
    largest = y == np.bincount(y).argmax()
    return {
        "one record": order[:1],
        "random tenth": order[: len(y) // 10],
        "random third": order[: len(y) // 3],
        "outliers": far[: len(y) // 20],
        "cluster": low[: len(y) // 6],
        "cluster of a class": low[largest[low]][-len(y) // 6 :],
        "half a class": np.flatnonzero(largest)[::2],
        "whole class": np.flatnonzero(largest),
        "nine tenths": order[len(y) // 10 :],
    }
