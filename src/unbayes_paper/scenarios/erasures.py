"""Rows to erase, by what they have in common."""

import numpy as np

from unbayes_paper.base import Records

# Added to XᵀX, so that leverage also tells rows apart where these are fewer than the columns: a prior of
# scale one under noise of scale one.
RIDGE = 1.0


def common_erasures(records: Records) -> dict[str, np.ndarray]:
    """What is erased of tables of counts or classes."""
    x, y = records
    order = _shuffled(y)
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


def leverage_erasures(records: Records) -> dict[str, np.ndarray]:
    """The rows with the largest leverage."""
    order = np.argsort(-leverage(records[0]))
    rows = len(order)
    return {"leverage, top 5%": order[: max(rows // 20, 1)], "leverage, top 20%": order[: rows // 5]}


def few_erasures(records: Records) -> dict[str, np.ndarray]:
    """A few that differ much: at random, a cluster, and by leverage."""
    chosen = ("random tenth", "random third", "cluster")
    common = common_erasures(records)
    return {**{name: common[name] for name in chosen}, **leverage_erasures(records)}


def leverage(x: np.ndarray) -> np.ndarray:
    """aᵀ(AᵀA + I)⁻¹a of each row, where a has a one beside the inputs."""
    design = np.column_stack([np.ones(len(x)), x])
    gram = design.T @ design + RIDGE * np.eye(design.shape[1])
    return np.einsum("ni,in->n", design, np.linalg.solve(gram, design.T))


def _shuffled(y: np.ndarray) -> np.ndarray:
    return np.random.default_rng(1).permutation(len(y))
