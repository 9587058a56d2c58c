import base64
import copy
import hashlib
import json

import pytest
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey

from unbayes.ledger.errors import BadSignature, LedgerError
from unbayes.ledger.events import EventKind
from unbayes.ledger.signing import SigningKey
from unbayes.ledger.statement import (
    PAYLOAD_TYPE,
    issued,
    open_envelope,
    pre_authentication_encoding,
    read_statement,
    sign_envelope,
    statement,
)

from .reports import CONTENTS, KEY, report


def test_the_published_encoding():
    """The example of DSSE's protocol."""
    assert (
        pre_authentication_encoding("http://example.com/HelloWorld", b"hello world")
        == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )


def test_the_statement_is_that_of_in_toto():
    value = json.loads(statement(CONTENTS))
    assert value["_type"] == "https://in-toto.io/Statement/v1"
    assert value["subject"] == [{"name": "credit@5", "digest": {"sha256": "5e" * 32}}]
    assert value["predicateType"] == "https://unbayes.dev/erasure-report/v1"
    assert read_statement(statement(CONTENTS)) == CONTENTS


def test_another_library_accepts_the_envelope_and_refuses_a_changed_one():
    envelope = json.loads(report())["envelope"]
    public = SSlibKey(KEY.key_id, "ed25519", "ed25519", {"public": KEY.public.raw.hex()})
    assert list(Envelope.from_dict(copy.deepcopy(envelope)).verify([public], 1)) == [KEY.key_id]
    envelope["payload"] = base64.b64encode(base64.b64decode(envelope["payload"]) + b" ").decode()
    with pytest.raises(VerificationError):
        Envelope.from_dict(envelope).verify([public], 1)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"in-toto.io/Statement/v1", b"in-toto.io/Statement/v2"),
        (b"erasure-report/v1", b"erasure-report/v2"),
        (b"credit@5", b"credit@6"),
        (b'"subject":[{"digest":{"sha256":"5e', b'"subject":[{"digest":{"sha256":"5f'),
        (b'"_type"', b'"more":1,"_type"'),
        (b'"_type":', b'"_type": '),
        (b'"verdict":"trusted"', b'"verdict":"fine"'),
    ],
)
def test_other_statements_are_refused(old, new):
    payload = statement(CONTENTS)
    assert payload.count(old) == 1
    with pytest.raises(LedgerError):
        read_statement(payload.replace(old, new))


def test_the_log_holds_the_digest_of_the_statement():
    event = issued(CONTENTS, sequence=3, time="2026-11-18T09:31:00Z")
    assert event.kind is EventKind.REPORT_ISSUED
    assert (event.model, event.request, event.version) == ("credit", 12, 5)
    assert event.commitment == hashlib.sha256(statement(CONTENTS)).hexdigest()


@pytest.mark.parametrize(
    "change",
    [
        lambda e: e.update(payloadType="text/plain"),
        lambda e: e.update(more=1),
        lambda e: e.update(signatures=[]),
        lambda e: e.update(signatures=2 * e["signatures"]),
        lambda e: e.update(signatures={"keyid": 1}),
        lambda e: e.update(payload=e["payload"] + "\n"),
        lambda e: e.update(payload=3),
        lambda e: e.update(payload="é"),
        lambda e: e["signatures"][0].update(keyid="0" * 16),
        lambda e: e["signatures"][0].update(sig="AAAA"),
        lambda e: e["signatures"][0].update(more=1),
        lambda e: e.pop("payload"),
    ],
)
def test_other_envelopes_are_refused(change):
    envelope = sign_envelope(b"hello", KEY)
    assert open_envelope(envelope, KEY.public) == b"hello"
    change(envelope)
    with pytest.raises(LedgerError):
        open_envelope(envelope, KEY.public)


def test_another_key_or_another_kind_of_payload_is_refused():
    with pytest.raises(BadSignature, match=KEY.key_id):
        open_envelope(sign_envelope(b"hello", KEY), SigningKey.generate().public)
    envelope = sign_envelope(b"hello", KEY)
    # A signature over the same bytes, without their type.
    envelope["signatures"][0]["sig"] = base64.b64encode(KEY.sign(b"hello")).decode()
    assert envelope["payloadType"] == PAYLOAD_TYPE
    with pytest.raises(BadSignature):
        open_envelope(envelope, KEY.public)
