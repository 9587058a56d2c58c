"""Where things stand in the page's charts: the templates draw them, in per cent of a width and in pixels."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from unbayes.ledger.entities import Version
from unbayes.ledger.report_page import number
from unbayes.ledger.states import RequestState

# Versions that a chart has room for on a phone, and those of them that it can name.
SHOWN, NAMED = 24, 8
# Per cent of the width that are left free on the left, for the numbers of an axis, and on the right.
LEFT, RIGHT = 14.0, 5.0
# The heights, in pixels, of the top and the bottom of the chart of errors.
TOP, BOTTOM = 16.0, 196.0
# Powers of ten that an axis names at most.
TICKS = 5


class Point(NamedTuple):
    """A version in a chart.

    Attributes
    ----------
    x
        Per cent of the width.
    y, low, high, nothing
        Pixels from the top; None where there is nothing to show.
    is_named
        Whether there is room to write its number.
    added
        Records taken out since the version before.
    """

    version: Version
    x: float
    is_named: bool
    added: int
    y: float | None = None
    low: float | None = None
    high: float | None = None
    nothing: float | None = None
    budget: float | None = None


class Line(NamedTuple):
    """A line between two versions, x in per cent of the width and y in pixels."""

    x1: float
    y1: float
    x2: float
    y2: float


class Tick(NamedTuple):
    """A named height on the axis of errors."""

    y: float
    label: str


class Errors(NamedTuple):
    """The predicted errors of versions beside what is good enough."""

    points: list[Point]
    ticks: list[Tick]
    errors: list[Line]
    budgets: list[Line]


class Bar(NamedTuple):
    """A part of a row: from where, and how wide, in per cent."""

    state: RequestState
    number: int
    x: float
    width: float


def timeline(versions: Sequence[Version]) -> list[Point]:
    """The last versions, at even distances."""
    last, before = versions[-SHOWN:], versions[-SHOWN - 1] if len(versions) > SHOWN else None
    step = (100 - LEFT - RIGHT) / max(len(last) - 1, 1)
    every = math.ceil(len(last) / NAMED)
    points = []
    for i, version in enumerate(last):
        is_derived = version.number != version.base
        same = before is not None and before.base == version.base
        added = version.erased - (before.erased if before is not None and same else 0) if is_derived else 0
        is_named = (len(last) - 1 - i) % every == 0
        x = LEFT + i * step if len(last) > 1 else 50.0
        points.append(Point(version, round(x, 2), is_named, added))
        before = version
    return points


def errors(versions: Sequence[Version]) -> Errors | None:
    """The chart of predicted errors, on a logarithmic axis; None where no version has one to be shown."""
    points = timeline(versions)
    found = {point.version.number: _numbers(point.version) for point in points}
    values = [value for each in found.values() for value in each.values() if value > 0]
    if not values:
        return None
    first, last = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    last = max(last, first + 1)

    def height(value: float | None) -> float | None:
        if value is None:
            return None
        share = (math.log10(value) - first) / (last - first) if value > 0 else 0.0
        return round(BOTTOM - share * (BOTTOM - TOP), 1)

    points = [
        point._replace(**{name: height(value) for name, value in found[point.version.number].items()})
        for point in points
    ]
    every = math.ceil((last - first) / TICKS)
    ticks = [
        Tick(height(10.0**exponent) or BOTTOM, number(10.0**exponent))
        for exponent in range(first, last + 1, every)
    ]
    return Errors(points, ticks, _lines(points, "y"), _lines(points, "budget"))


def shares(numbers: Mapping[RequestState, int]) -> list[Bar]:
    """Parts of one row, in the order of the states."""
    total, x, bars = sum(numbers.values()), 0.0, []
    for state in RequestState:
        if some := numbers.get(state, 0):
            width = 100 * some / total
            bars.append(Bar(state, some, round(x, 2), round(width, 2)))
            x += width
    return bars


def _numbers(version: Version) -> dict[str, float]:
    """The error of a version, its range, the budget, and what doing nothing would leave, where finite."""
    error = version.findings.get("error")
    if error is None:
        return {}
    budget = version.findings["tolerance"] * version.findings["parameters"]
    every = {
        "y": error["nats"],
        "low": error["low"],
        "high": error["high"],
        "nothing": error["nothing"],
        "budget": budget,
    }
    return {name: value for name, value in every.items() if value is not None and math.isfinite(value)}


def _lines(points: Sequence[Point], name: str) -> list[Line]:
    """From each version to the next of the same base."""
    found = []
    for one, other in itertools.pairwise(points):
        y1, y2 = getattr(one, name), getattr(other, name)
        if y1 is not None and y2 is not None and one.version.base == other.version.base:
            found.append(Line(one.x, y1, other.x, y2))
    return found
