import dataclasses

import pytest

from unbayes.ledger.contents import (
    NOT_CLAIMED,
    VERDICTS,
    AskedFor,
    Dates,
    ErrorEstimate,
    ModelVersion,
    Openings,
    RecordCounts,
)
from unbayes.ledger.errors import LedgerError
from unbayes.ledger.events import commit
from unbayes.ledger.json_form import NotOfThisForm, from_json, read_strict, to_json
from unbayes.trust import Verdict

from .reports import CONTENTS, OPENINGS


def test_verdicts_are_those_of_trust():
    assert tuple(Verdict) == VERDICTS


def test_contents_come_back_from_json():
    value = to_json(CONTENTS)
    assert from_json(type(CONTENTS), value, "predicate") == CONTENTS
    assert value["records"] == {"asked": 4, "erased": 3, "alreadyErased": 1, "notInModel": 0}
    assert value["notClaimed"] == list(NOT_CLAIMED)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda v: v.pop("model"), "predicate has no model"),
        (lambda v: v.update(more=1), "unknown fields: more"),
        (lambda v: v["base"].update(more=1), "predicate.base has unknown fields: more"),
        (lambda v: v.update(model=3), "predicate.model is 3"),
        (lambda v: v.update(fromVersion=True), "predicate.fromVersion is True"),
        (lambda v: v.update(fromVersion=4.0), "predicate.fromVersion is 4.0"),
        (lambda v: v.update(doubts="none"), "predicate.doubts is not a list"),
        (lambda v: v.update(doubts=[1]), r"predicate.doubts\[0\] is 1"),
        (lambda v: v.update(software=[]), "predicate.software is not an object"),
        (lambda v: v.update(dates=None), "predicate.dates is not an object"),
        (lambda v: v["predictedError"].update(high=10**400), "predicate.predictedError.high is too large"),
    ],
)
def test_what_does_not_fit_is_named(change, named):
    value = to_json(CONTENTS)
    change(value)
    with pytest.raises(NotOfThisForm, match=named):
        from_json(type(CONTENTS), value, "predicate")


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff", b'{"a":1,"a":1}', b"[NaN]", b"[-Infinity]", b'["\\ud800"]', b"[" * 100_000, b"1" * 5_000],
)
def test_json_that_two_readers_could_read_differently_is_refused(data):
    with pytest.raises(NotOfThisForm):
        read_strict(data)


@pytest.mark.parametrize(
    ("applied", "due", "extended", "expected"),
    [
        ("2026-11-20T23:59:59Z", "2026-11-20", None, True),
        ("2026-11-21T00:00:00Z", "2026-11-20", None, False),
        ("2026-11-21", "2026-11-20", "2027-01-20", True),
        ("2027-01-21", "2026-11-20", "2027-01-20", False),
        ("2026-11-20T10:00:00.5Z", "2026-11-20T10:00:00Z", None, False),
        ("2026-11-20T10:00:00Z", "2026-11-20T10:00:00Z", None, True),
    ],
)
def test_on_time(applied, due, extended, expected):
    dates = Dates.of("2026-10-20", due, applied, extended)
    assert dates.on_time is expected
    with pytest.raises(LedgerError, match="on_time"):
        dataclasses.replace(dates, on_time=not expected)


def test_contradictions_are_refused():
    for make, named in (
        (lambda: RecordCounts(4, 3, 0, 0), "sum"),
        (lambda: RecordCounts(1, 2, -1, 0), "sum"),
        (lambda: AskedFor(1, "4711", ()), "subject"),
        (lambda: AskedFor(1, "ab" * 32, ("4711",)), "record"),
        (lambda: ModelVersion(1, "no"), "digest"),
        (lambda: ErrorEstimate(float("inf"), 0.0, 1.0, 1.0, 2, 0.01), "predicted error"),
        (lambda: ErrorEstimate(-1.0, 0.0, 1.0, 1.0, 2, 0.01), "predicted error"),
        (lambda: Dates.of("2026-13-01", "2026-11-20", "2026-11-20"), "received"),
        (lambda: Dates.of("yesterday", "2026-11-20", "2026-11-20"), "received"),
        (lambda: dataclasses.replace(CONTENTS, predicted_error=None), "no_error_because"),
        (lambda: dataclasses.replace(CONTENTS, no_error_because="so"), "no_error_because"),
        (lambda: dataclasses.replace(CONTENTS, verdict="fine"), "verdict"),
        (lambda: dataclasses.replace(CONTENTS, records=RecordCounts(3, 3, 0, 0)), "commitments to 4"),
    ):
        with pytest.raises(LedgerError, match=named):
            make()


def test_the_tolerance_is_that_of_all_parameters():
    assert CONTENTS.predicted_error.tolerance == pytest.approx(0.24)


def test_openings_are_of_the_request_and_each_counts_once():
    OPENINGS.require(CONTENTS.request)
    Openings().require(CONTENTS.request)
    Openings(None, OPENINGS.records[2:3]).require(CONTENTS.request)
    for wrong in (
        Openings(commit({"subject": "4712"}, bytes(32))[1]),
        Openings(OPENINGS.records[0]),
        Openings(None, (OPENINGS.records[0], OPENINGS.records[0])),
        Openings(None, (OPENINGS.subject,)),
    ):
        with pytest.raises(LedgerError):
            wrong.require(CONTENTS.request)
