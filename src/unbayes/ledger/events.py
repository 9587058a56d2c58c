"""What the log holds: events without personal data, and commitments to the details, which can be forgotten.

A commitment is a salted hash. With its opening, the salt and the details, anybody can check it; without the
opening nobody can tell or guess what it was made of. To forget the details is to delete the opening: the log
stays as it is, and as checkable as it was.
"""

import dataclasses
import enum
import hashlib
import json
import re
import secrets
from collections.abc import Mapping
from typing import Any, Self

import rfc8785

from unbayes.ledger.errors import LedgerError, TamperedLog, WrongOpening
from unbayes.ledger.merkle import leaf_hash

# As many as the hash has, so that neither details nor salts can be guessed.
SALT_BYTES = 32
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}")


class EventKind(enum.StrEnum):
    """What has happened."""

    # The first event of every log.
    LEDGER_CREATED = "ledger_created"
    # A trained model has become version 1 of a name.
    MODEL_REGISTERED = "model_registered"
    # Somebody asks for records to be erased; the clock begins to run.
    REQUEST_RECEIVED = "request_received"
    # The operator agrees to erase.
    REQUEST_APPROVED = "request_approved"
    # The operator refuses, on a ground that the requester is told.
    REQUEST_DENIED = "request_denied"
    # The requester no longer asks.
    REQUEST_WITHDRAWN = "request_withdrawn"
    # The deadline was put off, for a reason that the requester is told.
    REQUEST_EXTENDED = "request_extended"
    # Nothing is done for the request until it is released.
    REQUEST_HELD = "request_held"
    # A held request goes on.
    REQUEST_RELEASED = "request_released"
    # A new version of the model, without the records of one or more requests.
    VERSION_APPLIED = "version_applied"
    # The records of one request are not in this version.
    REQUEST_APPLIED = "request_applied"
    # Unlearning would not be good enough; the model must be retrained.
    NEEDS_RETRAIN = "needs_retrain"
    # A report was signed; the commitment is the SHA-256 of its statement.
    REPORT_ISSUED = "report_issued"
    # Nothing more is to be done for the request.
    REQUEST_CLOSED = "request_closed"
    # A posterior trained without the erased records is the new base of the model.
    MODEL_REBASED = "model_rebased"
    # The old base and all that was kept with it cannot be read any more.
    BASE_SHREDDED = "base_shredded"
    # Somebody may use the service from now on; the details say who, and for what.
    TOKEN_CREATED = "token_created"
    # A token is no longer accepted.
    TOKEN_REVOKED = "token_revoked"
    # Events are told to an address from now on.
    HOOK_ADDED = "hook_added"
    # Events are no longer told to an address.
    HOOK_REMOVED = "hook_removed"


@dataclasses.dataclass(frozen=True)
class Event:
    """One entry of the log.

    Attributes
    ----------
    sequence
        Its place in the log, from 0.
    time
        UTC, as in 2026-11-18T09:30:00Z.
    kind
        What has happened.
    model, request, version
        What it happened to, where it happened to one.
    commitment
        Salted hash of the details, 64 hexadecimal digits.
    """

    sequence: int
    time: str
    kind: EventKind
    model: str | None = None
    request: int | None = None
    version: int | None = None
    commitment: str | None = None

    def __post_init__(self):
        for name in ("sequence", "request", "version"):
            value = getattr(self, name)
            if value is None and name != "sequence":
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise LedgerError(f"{name} of an event is {value!r}, not a whole number from 0")
        if not is_time(self.time):
            raise LedgerError(f"time of an event is {self.time!r}, not UTC as in 2026-11-18T09:30:00Z")
        if not isinstance(self.kind, EventKind):
            raise LedgerError(f"kind of an event is {self.kind!r}, not one of {', '.join(EventKind)}")
        if self.model is not None and not isinstance(self.model, str):
            raise LedgerError(f"model of an event is {self.model!r}, not a name")
        if self.commitment is not None:
            require_sha256("commitment of an event", self.commitment)

    @property
    def body(self) -> bytes:
        """The event as the log holds it: JSON in the one form of RFC 8785."""
        return rfc8785.dumps(
            {
                "sequence": self.sequence,
                "time": self.time,
                "kind": self.kind.value,
                "model": self.model,
                "request": self.request,
                "version": self.version,
                "commitment": self.commitment,
            }
        )

    @property
    def leaf(self) -> bytes:
        """Its hash in the Merkle tree."""
        return leaf_hash(self.body)

    @classmethod
    def from_body(cls, body: bytes) -> Self:
        """Read an event; `TamperedLog` where these are not the bytes that `body` gives."""
        try:
            fields = json.loads(body.decode())
            event = cls(**(fields | {"kind": EventKind(fields["kind"])}))
            is_same = event.body == body
        except (ValueError, TypeError, KeyError, RecursionError):
            raise TamperedLog("an entry of the log is not an event") from None
        if not is_same:
            raise TamperedLog(f"entry {event.sequence} of the log is not written as events are")
        return event


@dataclasses.dataclass(frozen=True)
class Opening:
    """What a commitment was made of.

    Attributes
    ----------
    salt
        Random bytes, 64 hexadecimal digits.
    details
        What JSON can hold.
    """

    salt: str
    details: Mapping[str, Any]

    def __post_init__(self):
        require_sha256("salt of an opening", self.salt)

    @property
    def commitment(self) -> str:
        """SHA-256(salt ‖ details in the form of RFC 8785), in hexadecimal digits."""
        try:
            details = rfc8785.dumps(dict(self.details))
        except (ValueError, RecursionError) as error:
            raise LedgerError(f"details are not what JSON can hold: {error}") from None
        return hashlib.sha256(bytes.fromhex(self.salt) + details).hexdigest()

    def require(self, commitment: str) -> None:
        """Refuse, by `WrongOpening`, a commitment that was made of something else."""
        if not secrets.compare_digest(self.commitment.encode(), commitment.encode()):
            raise WrongOpening("the salt and the details are not those of the commitment")

    def to_json(self) -> dict[str, Any]:
        """As what JSON can hold."""
        return {"salt": self.salt, "details": dict(self.details)}

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """The inverse of `to_json`."""
        if (
            not isinstance(value, dict)
            or value.keys() != {"salt", "details"}
            or not isinstance(value["details"], dict)
        ):
            raise WrongOpening("an opening has a salt and details, and nothing else")
        return cls(value["salt"], value["details"])


def commit(details: Mapping[str, Any], salt: bytes | None = None) -> tuple[str, Opening]:
    """A commitment to details, and its opening.

    Parameters
    ----------
    details
        What JSON can hold, whole numbers below 2⁵³.
    salt
        Drawn at random where it is not given; never use one twice.
    """
    opening = Opening((secrets.token_bytes(SALT_BYTES) if salt is None else salt).hex(), details)
    return opening.commitment, opening


def is_time(text: object) -> bool:
    """Whether this is UTC in the form of 2026-11-18T09:30:00Z, with up to six decimals of a second."""
    return isinstance(text, str) and _TIME.fullmatch(text) is not None


def require_sha256(what: str, text: object) -> None:
    """Refuse what is not 64 lower-case hexadecimal digits."""
    if not isinstance(text, str) or not _SHA256.fullmatch(text):
        raise LedgerError(f"{what} is {text!r}, not 64 hexadecimal digits")
