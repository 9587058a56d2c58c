"""What is measured on, and how time is taken."""

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import unbayes as ub
from unbayes_paper import data
from unbayes_paper.base import Problem, Records, split
from unbayes_paper.moon import moon
from unbayes_paper.scenarios import standardise

KEY = jax.random.key(0)


def seconds(call: Callable[[], Any], repetitions: int = 5) -> float:
    """Median wall-clock time of a call whose compilation is behind it."""
    jax.block_until_ready(call())
    times = []
    for _ in range(repetitions):
        started = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - started)
    return float(np.median(times))


def banknote_records() -> Records | None:
    """UCI banknote authentication, standardised; None where it is not to be had."""
    try:
        x, y = data.banknote()
    except data.DataMissing:
        return None
    return standardise(x), y


def banknote() -> Problem | None:
    """412 records erased at random, as the paper's authors drew them."""
    records = banknote_records()
    if records is None:
        return None
    rows = np.random.RandomState(0).permutation(len(records[1]))[960:]
    return split(ub.logistic_regression(4, prior_scale=100.0), records, rows)


def many_rows(rows: int = 100_000, features: int = 50, erased: float = 0.01) -> Problem:
    """Logistic regression on synthetic records, the last of them erased."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, features))
    y = (rng.random(rows) < 1 / (1 + np.exp(-x @ rng.normal(size=features)))).astype(int)
    model = ub.logistic_regression(features, prior_scale=3.0)
    return split(model, (x, y), np.arange(rows - int(erased * rows), rows))


def many_columns(features: int, rows: int = 20_000, erased: int = 200) -> Problem:
    """Logistic regression on many features, each of which tells little; the last records erased."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, features))
    log_odds = x @ rng.normal(size=features) * 2 / features**0.5
    y = (rng.random(rows) < 1 / (1 + np.exp(-log_odds))).astype(int)
    model = ub.logistic_regression(features, bias=False)
    return split(model, (x, y), np.arange(rows - erased, rows))


def problems() -> dict[str, Problem]:
    """All problems whose data are here."""
    found = {"moon": moon("moon"), "banknote": banknote(), "100,000 rows": many_rows()}
    return {name: problem for name, problem in found.items() if problem is not None}
