"""Erasures that are hard to judge, some of them harmful: a few of those that `make trust` runs."""

import numpy as np
from sklearn.datasets import load_iris

import unbayes as ub
from moon import moon
from problems import Problem, remaining_first, split


def scenarios() -> dict[str, Problem]:
    """Problems by what is erased."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 3))
    noisy = (rng.random(400) < 1 / (1 + np.exp(-(x @ [1.5, -1.0, 0.5])))).astype(int)
    counts = rng.poisson(np.exp(x @ [0.6, -0.4, 0.2] + 0.5))
    shuffled = np.random.default_rng(1).permutation(400)

    iris_x, iris_y = load_iris(return_X_y=True)
    iris = (iris_x - iris_x.mean(0)) / iris_x.std(0), iris_y
    softmax = ub.softmax_regression(4, 3, prior_scale=3.0)
    first_class = np.flatnonzero(iris_y == 0)
    from_left = np.argsort(iris[0][:, 0])

    tables = {
        "counts, random third": (ub.poisson_regression(3, prior_scale=3.0), (x, counts), shuffled[:133]),
        "iris, cluster of a class": (softmax, iris, from_left[iris_y[from_left] == 0][-25:]),
        "iris, half a class": (softmax, iris, first_class[::2]),
        "noisy classes, nine tenths": (
            ub.logistic_regression(3, prior_scale=10.0),
            (x, noisy),
            shuffled[40:],
        ),
    }
    return {
        "random, seed 1": moon("random", 1),
        "yellow 50, seed 2": moon("yellow 50", 2),
        **{name: remaining_first(split(*table)) for name, table in tables.items()},
    }
