"""The moon data: sparse GP classification with 20 inducing inputs, as the paper's authors ran it."""

from typing import Literal

import numpy as np
from sklearn.datasets import make_moons

import unbayes as ub
from unbayes_paper.base import Problem

Scenario = Literal["moon", "random", "yellow 30", "yellow 40", "yellow 50"]

# Precisions of the authors' kernel, 1/lengthscale² per input.
KERNEL_VARIANCE = 4.7432
KERNEL_PRECISIONS = (2.4232, 1.8230)


def moon(scenario: Scenario = "moon", seed: int = 0) -> Problem:
    """Two moons of 50 points each.

    Parameters
    ----------
    scenario
        What is erased: "moon", the 20 points furthest right; "random", 20 points at random; "yellow n", the n
        points of class 1 furthest right.
    seed
        Seed of the data and of the inducing inputs.
    """
    x, y = map(np.asarray, make_moons(100, noise=0.2, random_state=seed))
    order = np.argsort(x[:, 0], kind="stable")
    if scenario == "moon":
        erased = order[-20:]
    elif scenario == "random":
        erased = np.arange(80, 100)
    else:
        erased = order[y[order] == 1][-int(scenario.removeprefix("yellow ")) :]
    kept = np.setdiff1d(np.arange(100), erased)
    inducing, _ = make_moons(20, noise=0.2, random_state=seed)
    kernel = ub.SquaredExponential(KERNEL_VARIANCE, np.asarray(KERNEL_PRECISIONS) ** -0.5)
    model = ub.sparse_gp(inducing, kernel, ub.BernoulliLikelihood())
    return Problem(model, (x[erased], y[erased]), (x[kept], y[kept]))
