import dataclasses
import json

import pytest

from unbayes.ledger.contents import ModelVersion, Openings
from unbayes.ledger.errors import UnverifiableReport
from unbayes.ledger.events import Event, EventKind
from unbayes.ledger.report import sign_report
from unbayes.ledger.signing import SigningKey
from unbayes.ledger.statement import issued
from unbayes.ledger.verify import verify_report

from .reports import CONTENTS, KEY, OPENINGS, SUBJECT, log_with, report


def of(contents):
    return lambda index, time: issued(contents, sequence=index, time=time)


def test_a_report_can_be_verified():
    verified = verify_report(report(), KEY.public)
    assert verified.contents == CONTENTS
    assert verified.key_id == KEY.key_id
    assert verified.is_key_known
    assert verified.event.request == 12
    assert verified.checkpoint.size == 9
    assert verified.openings is None


def test_the_file_has_the_documented_fields():
    value = json.loads(report())
    assert list(value) == ["envelope", "publicKey", "log"]
    assert list(value["log"]) == ["checkpoint", "event", "index", "proof"]


def test_openings_are_outside_of_what_is_signed():
    plain, opened = report(), report(openings=OPENINGS)
    assert json.loads(plain) == {k: v for k, v in json.loads(opened).items() if k != "openings"}
    assert verify_report(opened, KEY.public).openings == OPENINGS
    assert b"4711" not in plain
    for opening in (SUBJECT[1], *OPENINGS.records):
        assert opening.salt.encode() not in plain


@pytest.mark.parametrize(
    ("contents", "key", "event_of", "log_key", "openings", "named"),
    [
        (CONTENTS, SigningKey.generate(), of(CONTENTS), KEY, None, "key"),
        (CONTENTS, KEY, of(CONTENTS), SigningKey.generate(), None, "checkpoint"),
        (
            dataclasses.replace(CONTENTS, request=dataclasses.replace(CONTENTS.request, number=13)),
            KEY,
            of(CONTENTS),
            KEY,
            None,
            "its request is 12, the report's is 13",
        ),
        (
            dataclasses.replace(CONTENTS, into=ModelVersion(5, "5f" * 32)),
            KEY,
            of(CONTENTS),
            KEY,
            None,
            "digest of another statement",
        ),
        (dataclasses.replace(CONTENTS, model="loan"), KEY, of(CONTENTS), KEY, None, "its model is credit"),
        (
            CONTENTS,
            KEY,
            lambda i, t: Event(i, t, EventKind.REQUEST_CLOSED, "credit", 12, 5),
            KEY,
            None,
            "its kind is request_closed",
        ),
        (CONTENTS, KEY, of(CONTENTS), KEY, Openings(OPENINGS.records[0]), "openings"),
    ],
)
def test_no_report_is_issued_that_nobody_could_verify(contents, key, event_of, log_key, openings, named):
    log = log_with(event_of, key=log_key)
    with pytest.raises(UnverifiableReport, match=named):
        sign_report(contents, key, log.proof, openings)


def test_an_entry_must_be_in_the_log_of_the_checkpoint():
    proof = log_with(of(CONTENTS)).proof
    other = log_with(lambda i, t: Event(i, t, EventKind.REQUEST_CLOSED)).proof
    for wrong in (
        dataclasses.replace(proof, checkpoint=other.checkpoint),
        dataclasses.replace(proof, proof=proof.proof[:-1]),
        dataclasses.replace(proof, event=dataclasses.replace(proof.event, sequence=5)),
    ):
        with pytest.raises(UnverifiableReport, match="the log does not hold the entry"):
            sign_report(CONTENTS, KEY, wrong)
