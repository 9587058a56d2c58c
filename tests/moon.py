"""The moon data, with the kernel and the inducing inputs of the paper's authors."""

import numpy as np
from sklearn.datasets import make_moons

import unbayes as ub
from problems import Problem, remaining_first, split

SCENARIOS = ("moon", "random", "yellow 30", "yellow 40", "yellow 50")


def moon(scenario: str = "moon", seed: int = 0) -> Problem:
    """Two moons of 50 points each, and a sparse GP with 20 inducing inputs.

    Erased are the 20 points furthest right ("moon"), 20 random points ("random"), or the n points of class 1
    furthest right ("yellow n").
    """
    x, y = make_moons(100, noise=0.2, random_state=seed)
    from_left = np.argsort(x[:, 0], kind="stable")
    if scenario == "moon":
        erased = from_left[-20:]
    elif scenario == "random":
        erased = np.arange(80, 100)
    else:
        erased = from_left[y[from_left] == 1][-int(scenario.removeprefix("yellow ")) :]
    inducing, _ = make_moons(20, noise=0.2, random_state=seed)
    kernel = ub.SquaredExponential(4.7432, np.array([2.4232, 1.8230]) ** -0.5)
    model = ub.sparse_gp(inducing, kernel, ub.BernoulliLikelihood())
    return remaining_first(split(model, (x, y), erased))
