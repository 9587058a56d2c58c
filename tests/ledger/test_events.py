import dataclasses
import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbayes.ledger.errors import LedgerError, TamperedLog, WrongOpening
from unbayes.ledger.events import Event, EventKind, Opening, commit

EVENT = Event(
    7,
    "2026-11-18T09:30:00.25Z",
    EventKind.REQUEST_APPLIED,
    model="credit",
    request=12,
    version=5,
    commitment="ab" * 32,
)
BODY = (
    b'{"commitment":"' + b"ab" * 32 + b'","kind":"request_applied","model":"credit","request":12,'
    b'"sequence":7,"time":"2026-11-18T09:30:00.25Z","version":5}'
)

numbers = st.integers(0, 2**53 - 1)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
events = st.builds(
    Event,
    sequence=numbers,
    time=st.datetimes().map(lambda t: t.replace(microsecond=0).isoformat() + "Z"),
    kind=st.sampled_from(EventKind),
    model=st.none() | names,
    request=st.none() | numbers,
    version=st.none() | numbers,
    commitment=st.none() | st.binary(min_size=32, max_size=32).map(bytes.hex),
)


def test_the_body_is_the_one_form_of_rfc_8785():
    assert EVENT.body == BODY
    assert EVENT.leaf == hashlib.sha256(b"\x00" + BODY).digest()


@given(events)
def test_events_come_back(event):
    again = Event.from_body(event.body)
    assert again == event
    assert isinstance(again.kind, EventKind)


def test_no_field_is_left_out_of_the_body():
    assert set(json.loads(BODY)) == {field.name for field in dataclasses.fields(Event)}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"\xff",
        b"[" * 100_000,
        BODY + b" ",
        BODY.replace(b":7", b":7.0"),
        BODY.replace(b":7", b":-7"),
        BODY.replace(b":7", b":true"),
        BODY.replace(b"request_applied", b"request_eaten"),
        BODY.replace(b'"version":5', b'"version":5,"more":1'),
        BODY.replace(b'"version":5', b'"version":5,"version":5'),
        BODY.replace(b"25Z", b"25"),
        BODY.replace(b"ab", b"AB"),
        BODY.replace(b'"credit"', b'["credit"]'),
        BODY.replace(b'"credit"', b'"\\ud800"'),
        BODY.replace(b"credit", b"cr\\u0065dit"),
        BODY.replace(b"request_applied", b'","kind":"request_applied'),
    ],
)
def test_other_bytes_are_no_event(body):
    with pytest.raises(TamperedLog):
        Event.from_body(body)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sequence", -1),
        ("sequence", None),
        ("sequence", 1.0),
        ("request", "12"),
        ("version", True),
        ("time", "2026-11-18 09:30:00"),
        ("time", "2026-11-18T09:30:00+00:00"),
        ("time", "2026-11-18T09:30:00Z\n"),
        ("kind", "eaten"),
        ("model", 3),
        ("commitment", "ab"),
        ("commitment", "AB" * 32),
    ],
)
def test_a_wrong_field_is_named(field, value):
    with pytest.raises(LedgerError, match=f"{field} of an event is"):
        dataclasses.replace(EVENT, **{field: value})


def test_a_commitment_by_hand():
    salt = bytes(range(32))
    commitment, opening = commit({"b": 1, "a": "é"}, salt)
    assert commitment == hashlib.sha256(salt + '{"a":"é","b":1}'.encode()).hexdigest()
    opening.require(commitment)
    assert Opening.from_json(json.loads(json.dumps(opening.to_json()))) == opening


def test_equal_details_have_unequal_commitments():
    details = {"customer": 4711}
    assert len({commit(details)[0] for _ in range(10)}) == 10


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(names, json_values, max_size=3), st.integers(0, 255))
def test_only_the_right_opening_opens(details, bit):
    commitment, opening = commit(details)
    opening.require(commitment)
    salt = int(opening.salt, 16) ^ (1 << bit)
    for wrong in (Opening(f"{salt:064x}", details), Opening(opening.salt, {**details, "more": bit})):
        with pytest.raises(WrongOpening):
            wrong.require(commitment)


@pytest.mark.parametrize(
    "details", [{"x": float("nan")}, {"x": 2**60}, {"x": object()}, {1: 2}, {"x": "\ud800"}]
)
def test_details_that_json_cannot_hold_are_refused(details):
    with pytest.raises(LedgerError, match="JSON"):
        commit(details)


@pytest.mark.parametrize(
    "value",
    [None, [], {}, {"salt": "00" * 32}, {"salt": "00", "details": {}}, {"salt": "00" * 32, "details": []}],
)
def test_a_damaged_opening_is_refused(value):
    with pytest.raises(LedgerError, match="opening"):
        Opening.from_json(value)


def test_a_salt_has_32_bytes():
    with pytest.raises(LedgerError, match="salt"):
        commit({}, b"short")
