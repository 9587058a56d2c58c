"""Tables that something happened to: wrong labels, copies, outliers, a drift. What happened is erased."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

import unbayes as ub
from unbayes_paper.scenarios.tables import ROWS, Table, draw_labels

# How many times each of the duplicated records is in the table.
COPIES = 5
# By how much the weights of the drifting series turn, in radians, from the first row to the last.
TURN = np.pi / 2
# How much further out than the others planted outliers are.
STRETCH = 4.0


class Altered(NamedTuple):
    """A table, and the rows of it to erase."""

    name: str
    table: Table
    rows: np.ndarray


def altered_tables(tables: dict[str, Table]) -> Iterator[Altered]:
    """All of them; `tables` are those of `common_tables`."""
    for data in ("noisy classes", "breast cancer", "iris"):
        for percent in (5, 15):
            yield _mislabelled(data, tables[data], percent)
    for data in ("noisy classes", "counts", "iris"):
        yield from _duplicated(data, tables[data])
    for data in ("noisy classes", "counts"):
        yield _with_outliers(data, tables[data])
    for kind in ("classes", "counts"):
        yield from _drifting(kind)


def _mislabelled(data: str, table: Table, percent: int) -> Altered:
    """Labels moved to the next class in some rows, which are erased."""
    x, y = table.records
    rows = np.random.default_rng(3).permutation(len(y))[: percent * len(y) // 100]
    wrong = y.copy()
    wrong[rows] = (y[rows] + 1) % (y.max() + 1)
    return Altered(f"{data}, {percent}% mislabelled", Table(table.model, (x, wrong)), rows)


def _duplicated(data: str, table: Table) -> Iterator[Altered]:
    """A twentieth of the records in the table several times; all copies are erased, or all but one."""
    x, y = table.records
    chosen = np.random.default_rng(4).permutation(len(y))[: len(y) // 20]
    rows = np.concatenate([np.arange(len(y)), np.tile(chosen, COPIES - 1)])
    copied = Table(table.model, (x[rows], y[rows]))
    added = np.arange(len(y), len(rows))
    yield Altered(f"{data}, all copies", copied, np.concatenate([chosen, added]))
    yield Altered(f"{data}, some copies", copied, added)


def _with_outliers(data: str, table: Table) -> Altered:
    """A twentieth of the rows far out, with the targets of other rows; they are erased."""
    x, y = table.records
    rng = np.random.default_rng(5)
    rows = rng.permutation(len(y))[: len(y) // 20]
    moved, other = x.copy(), y.copy()
    moved[rows] *= STRETCH
    other[rows] = rng.permutation(y)[: len(rows)]
    return Altered(f"{data}, planted outliers", Table(table.model, (moved, other)), rows)


def _drifting(kind: str) -> Iterator[Altered]:
    """A series whose weights turn as time goes by; its first seventh or its last fifth is erased."""
    rng = np.random.default_rng(6)
    x, angle = rng.normal(size=(ROWS, 3)), np.linspace(0, TURN, ROWS)
    predictor = x[:, 0] * np.cos(angle) + x[:, 1] * np.sin(angle)
    if kind == "classes":
        table = Table(ub.logistic_regression(3, prior_scale=10.0), (x, draw_labels(rng, 2 * predictor)))
    else:
        counts = rng.poisson(np.exp(0.6 * predictor + 0.5))
        table = Table(ub.poisson_regression(3, prior_scale=3.0), (x, counts))
    yield Altered(f"drifting {kind}, first seventh", table, np.arange(ROWS // 7))
    yield Altered(f"drifting {kind}, last fifth", table, np.arange(ROWS - ROWS // 5, ROWS))
