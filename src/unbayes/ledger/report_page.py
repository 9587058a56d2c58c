"""A verified report as one HTML page, to be read and printed: no scripts, nothing from the network."""

import math
from typing import NamedTuple

import jinja2

from unbayes.ledger.contents import Contents, ErrorEstimate
from unbayes.ledger.verify import VerifiedReport

_MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
# What a verdict means, for somebody who has not read the documentation.
_VERDICTS = {
    "trusted": "Nothing speaks against the new version.",
    "doubtful": "The new version may be off, for the reasons below.",
    "retrain": "The new version should not be used; the model must be retrained without the records.",
}
# Outside of these, numbers are written with powers of ten.
_SMALLEST_DECIMAL, _LARGEST_WHOLE = 1e-4, 1e7
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
# Per cent of the chart's width that are left free at either side.
_MARGIN = 3.0
# Powers of ten that the chart names at most, besides the first.
_TICKS = 5


class Tick(NamedTuple):
    """A power of ten on the axis, and where it stands in per cent of the chart's width."""

    at: float
    value: float


class Chart(NamedTuple):
    """Where things stand on a logarithmic axis, in per cent of the chart's width."""

    low: float
    value: float
    high: float
    tolerance: float | None
    nothing: float | None
    ticks: list[Tick]


def page(verified: VerifiedReport) -> str:
    """The whole page, with its style."""
    contents = verified.contents
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("unbayes.ledger"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"day": day, "number": number}
    return environment.get_template("report.html").render(
        report=verified,
        contents=contents,
        headline=headline(contents),
        meaning=_VERDICTS[contents.verdict],
        error=contents.predicted_error,
        error_sentence=None if contents.predicted_error is None else error_sentence(contents.predicted_error),
        chart=None if contents.predicted_error is None else chart(contents.predicted_error),
    )


def headline(contents: Contents) -> str:
    """What was done, in one sentence."""
    erased, when = contents.records.erased, day(contents.dates.applied)
    if not erased:
        return f"On {when}, no record had to be taken out of the model {contents.model}."
    records = "1 record was" if erased == 1 else f"{erased:,} records were"
    return (
        f"On {when}, {records} taken out of the model {contents.model}, "
        f"which since then is version {contents.into.version}."
    )


def error_sentence(error: ErrorEstimate) -> str:
    """How large the predicted error is beside the tolerance and beside doing nothing."""
    if not error.value and not error.high:
        return "The method is exact: the new version is what retraining without the records would give."
    if error.high <= error.tolerance:
        beside = "within what the operator calls good enough"
    elif error.value <= error.tolerance:
        beside = "probably within what the operator calls good enough"
    else:
        beside = "more than what the operator calls good enough"
    return (
        f"The new version is about {number(error.value)} nats away from a model that never saw the records: "
        f"{beside}{_beside_nothing(error)}."
    )


def chart(error: ErrorEstimate) -> Chart | None:
    """Places on a logarithmic axis; None where there is no error to be shown."""
    shown = [error.low, error.value, error.high, error.tolerance, error.doing_nothing]
    exponents = [math.log10(value) for value in shown if value > 0]
    if error.high <= 0 or error.value <= 0:
        return None
    first, last = math.floor(min(exponents)), math.ceil(max(exponents))
    last = max(last, first + 1)
    every = math.ceil((last - first) / _TICKS)

    def place(exponent: float) -> float:
        return round(_MARGIN + (100 - 2 * _MARGIN) * (exponent - first) / (last - first), 2)

    def place_of(value: float) -> float | None:
        return place(math.log10(value)) if value > 0 else None

    value, high = place(math.log10(error.value)), place(math.log10(error.high))
    return Chart(
        low=place_of(error.low) or place(first),
        value=value,
        high=high,
        tolerance=place_of(error.tolerance),
        nothing=place_of(error.doing_nothing),
        ticks=[Tick(place(exponent), 10.0**exponent) for exponent in range(first, last + 1, every)],
    )


def day(text: str) -> str:
    """A date, or the date of a moment, in words."""
    year, month, date = text[:10].split("-")
    return f"{int(date)} {_MONTHS[int(month) - 1]} {year}"


def number(value: float) -> str:
    """Two digits, as people write them."""
    if value and not _SMALLEST_DECIMAL <= value < _LARGEST_WHOLE:
        digits, exponent = f"{value:.1e}".split("e")
        factor = "" if digits == "1.0" else f"{digits.removesuffix('.0')}·"
        return f"{factor}10{str(int(exponent)).translate(_RAISED)}"
    return f"{value:.2g}" if value < 99.5 else f"{value:,.0f}"


def _beside_nothing(error: ErrorEstimate) -> str:
    """The error in per cent of what doing nothing would leave, or how many times as much it is."""
    share = error.value / error.doing_nothing if error.doing_nothing else math.inf
    if math.isinf(share):
        return ""
    times = f"{number(100 * share)}% of" if share < 1 else f"{number(share)} times"
    return f", and {times} what doing nothing would leave"
