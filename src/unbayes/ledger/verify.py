"""Checking a report: it takes the file and a public key, and neither the ledger nor the model."""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

from unbayes.ledger.checkpoint import Checkpoint, read_checkpoint
from unbayes.ledger.contents import Contents, Openings
from unbayes.ledger.errors import BadSignature, LedgerError, UnverifiableReport
from unbayes.ledger.events import Event, Opening
from unbayes.ledger.json_form import NotOfThisForm, read_strict, require_fields
from unbayes.ledger.merkle import require_inclusion
from unbayes.ledger.signing import PublicKey
from unbayes.ledger.statement import issued, open_envelope, read_statement


@dataclasses.dataclass(frozen=True)
class VerifiedReport:
    """A report that was found in order.

    Attributes
    ----------
    contents
        What it says.
    key
        The key that has signed it, and the log.
    is_key_known
        Whether the caller gave that key. If not, it came with the report, and anybody could have made both:
        its `key_id` must be compared with the one that the operator published.
    event, checkpoint
        The entry of the log that holds the digest of the report, and the log that holds the entry.
    openings
        What the commitments were made of, where that came with the report; it was checked, too.
    """

    contents: Contents
    key: PublicKey
    is_key_known: bool
    event: Event
    checkpoint: Checkpoint
    openings: Openings | None

    @property
    def key_id(self) -> str:
        """Short name of the key that has signed it."""
        return self.key.key_id


def verify_report(data: bytes, key: PublicKey | None = None) -> VerifiedReport:
    """Check a report: its signature, its entry in the log, the log's signature, and that all of them agree.

    Parameters
    ----------
    data
        The file.
    key
        The key that the operator published; None takes the one in the file, which proves less.

    Raises
    ------
    UnverifiableReport
        With a sentence that names what fails.
    """
    with _checking("the file is damaged"):
        report = read_strict(data)
        require_fields(
            report, "the report", {"envelope", "publicKey", "log"}, optional=frozenset({"openings"})
        )
        log = report["log"]
        require_fields(log, "the log", {"checkpoint", "event", "index", "proof"})
    with _checking("the key is not the right one"):
        public = _embedded_key(report["publicKey"], key)
    with _checking("the signature does not hold"):
        payload = open_envelope(report["envelope"], public)
    with _checking("the statement is not that of a report"):
        contents = read_statement(payload)
        if contents.key_id != public.key_id:
            raise NotOfThisForm(f"it names the key {contents.key_id!r}, and {public.key_id} has signed it")
    with _checking("the checkpoint of the log does not hold"):
        checkpoint = read_checkpoint(_text("the checkpoint", log["checkpoint"]), public)
    with _checking("the entry of the log is damaged"):
        event = Event.from_body(_text("the event", log["event"]).encode())
    with _checking("the entry of the log is about something else"):
        _require_about(event, contents, log["index"])
    with _checking("the log does not hold the entry"):
        require_inclusion(event.leaf, event.sequence, checkpoint.size, _hashes(log["proof"]), checkpoint.root)
    with _checking("the openings do not fit"):
        openings = _openings(report["openings"]) if "openings" in report else None
        if openings is not None:
            openings.require(contents.request)
    return VerifiedReport(contents, public, key is not None, event, checkpoint, openings)


@contextlib.contextmanager
def _checking(failure: str) -> Iterator[None]:
    try:
        yield
    except LedgerError as error:
        raise UnverifiableReport(f"The report cannot be trusted: {failure}: {error}.") from None


def _embedded_key(pem: Any, expected: PublicKey | None) -> PublicKey:
    text = _text("the public key", pem).encode()
    public = PublicKey.from_pem(text)
    if public.to_pem() != text:
        raise BadSignature("the public key in the report is not written as keys are")
    if expected is not None and expected != public:
        raise BadSignature(f"the report is signed by the key {public.key_id}, not by {expected.key_id}")
    return public


def _require_about(event: Event, contents: Contents, index: Any) -> None:
    """Refuse an entry of the log that is not the one of this report."""
    if type(index) is not int or index != event.sequence:
        raise NotOfThisForm(f"it is entry {event.sequence}, not {index!r}")
    expected = issued(contents, sequence=event.sequence, time=event.time)
    for name in ("kind", "model", "request", "version"):
        found, wanted = getattr(event, name), getattr(expected, name)
        if found != wanted:
            raise NotOfThisForm(f"its {name} is {found!s}, the report's is {wanted!s}")
    if event != expected:
        raise NotOfThisForm("it holds the digest of another statement")


def _openings(value: Any) -> Openings:
    require_fields(value, "openings", {"subject", "records"})
    if not isinstance(value["records"], list):
        raise NotOfThisForm("openings.records is not a list")
    subject = None if value["subject"] is None else Opening.from_json(value["subject"])
    return Openings(subject, tuple(Opening.from_json(record) for record in value["records"]))


def _hashes(value: Any) -> list[bytes]:
    if not isinstance(value, list):
        raise NotOfThisForm("the proof is not a list")
    hashes = []
    for text in value:
        try:
            hashes.append(bytes.fromhex(text))
        except (TypeError, ValueError):
            raise NotOfThisForm("a hash of the proof is not hexadecimal") from None
        if hashes[-1].hex() != text:
            raise NotOfThisForm("a hash of the proof is not written in lower case")
    return hashes


def _text(what: str, value: Any) -> str:
    if not isinstance(value, str):
        raise NotOfThisForm(f"{what} is not a text")
    return value
