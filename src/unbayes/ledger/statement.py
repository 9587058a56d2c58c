"""The contents of a report as an in-toto Statement, and the envelope that is signed around it.

Both are published forms: https://in-toto.io/Statement/v1, and DSSE, which signs bytes as they are.
"""

import base64
import binascii
import hashlib
from typing import Any

import rfc8785

from unbayes.ledger.contents import Contents
from unbayes.ledger.errors import BadSignature, LedgerError
from unbayes.ledger.events import Event, EventKind
from unbayes.ledger.json_form import NotOfThisForm, from_json, read_strict, require_fields, to_json
from unbayes.ledger.signing import PublicKey, SigningKey

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://unbayes.dev/erasure-report/v1"
PAYLOAD_TYPE = "application/vnd.in-toto+json"


def statement(contents: Contents) -> bytes:
    """The one statement that says these contents, as JSON in the form of RFC 8785."""
    value = {
        "_type": STATEMENT_TYPE,
        "subject": [
            {
                "name": f"{contents.model}@{contents.into.version}",
                "digest": {"sha256": contents.into.sha256},
            }
        ],
        "predicateType": PREDICATE_TYPE,
        "predicate": to_json(contents),
    }
    try:
        return rfc8785.dumps(value)
    except ValueError as error:
        raise LedgerError(f"the report holds what JSON cannot hold: {error}") from None


def read_statement(payload: bytes) -> Contents:
    """The inverse of `statement`; other bytes are refused, even if they mean the same."""
    value = read_strict(payload)
    require_fields(value, "the statement", {"_type", "subject", "predicateType", "predicate"})
    for name, expected in (("_type", STATEMENT_TYPE), ("predicateType", PREDICATE_TYPE)):
        if value[name] != expected:
            raise NotOfThisForm(f"{name} of the statement is {value[name]!r}, not {expected!r}")
    contents = from_json(Contents, value["predicate"], "predicate")
    if statement(contents) != payload:
        raise NotOfThisForm("its subject is not the version that it tells of, or it has another form")
    return contents


def issued(contents: Contents, *, sequence: int, time: str) -> Event:
    """The event by which the log remembers a report: it holds the SHA-256 of the statement.

    No salt is needed: the statement has salted commitments in it already, and nothing personal.
    """
    return Event(
        sequence=sequence,
        time=time,
        kind=EventKind.REPORT_ISSUED,
        model=contents.model,
        request=contents.request.number,
        version=contents.into.version,
        commitment=hashlib.sha256(statement(contents)).hexdigest(),
    )


def pre_authentication_encoding(payload_type: str, payload: bytes) -> bytes:
    """PAE of DSSE, version 1: the bytes that are signed."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def sign_envelope(payload: bytes, key: SigningKey) -> dict[str, Any]:
    """An envelope with one signature."""
    signature = key.sign(pre_authentication_encoding(PAYLOAD_TYPE, payload))
    return {
        "payloadType": PAYLOAD_TYPE,
        "payload": base64.b64encode(payload).decode(),
        "signatures": [{"keyid": key.key_id, "sig": base64.b64encode(signature).decode()}],
    }


def open_envelope(envelope: Any, public: PublicKey) -> bytes:
    """The payload of an envelope that this key has signed, and no other.

    Raises
    ------
    BadSignature
        Another key has signed it, or other bytes were signed.
    NotOfThisForm
        It is no envelope.
    """
    require_fields(envelope, "the envelope", {"payloadType", "payload", "signatures"})
    if envelope["payloadType"] != PAYLOAD_TYPE:
        raise NotOfThisForm(f"the payload is {envelope['payloadType']!r}, not {PAYLOAD_TYPE!r}")
    if not isinstance(envelope["signatures"], list) or len(envelope["signatures"]) != 1:
        raise NotOfThisForm("the envelope does not have one signature")
    (signature,) = envelope["signatures"]
    require_fields(signature, "the signature", {"keyid", "sig"})
    if signature["keyid"] != public.key_id:
        raise BadSignature(f"it is signed by the key {signature['keyid']!r}, not by {public.key_id}")
    payload = _decoded("the payload", envelope["payload"])
    signed = pre_authentication_encoding(PAYLOAD_TYPE, payload)
    public.require_signed(_decoded("the signature", signature["sig"]), signed)
    return payload


def _decoded(what: str, text: Any) -> bytes:
    """Bytes from base64, of which each has one text only: unused bits must be zero."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise NotOfThisForm(f"{what} is not base64") from None
    if base64.b64encode(data).decode() != text:
        raise NotOfThisForm(f"{what} is not base64 as it is written here")
    return data
