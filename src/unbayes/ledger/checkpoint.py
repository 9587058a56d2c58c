"""Signed checkpoints: the size and the root of the log at one moment.

The text form is C2SP's tlog-checkpoint, a signed note, which other logs and their witnesses read, too:

    unbayes.example/ledger
    1234
    (root, in base64)
    time 2026-11-18T09:30:00Z

    — unbayes.example/ledger (hash of the key and signature, in base64)
"""

import base64
import binascii
import dataclasses
import hashlib
import re
from typing import Self

from unbayes.ledger.errors import BadSignature, LedgerError, TamperedLog
from unbayes.ledger.events import is_time
from unbayes.ledger.merkle import HASH_BYTES
from unbayes.ledger.signing import PublicKey, SigningKey

# Ed25519, as signed notes call it.
_ALGORITHM = b"\x01"
_KEY_HASH_BYTES = 4
_TIME_PREFIX = "time "
# What may stand for a log: signed notes allow neither spaces nor plus signs.
_NAME = re.compile(r"[^\s+\x00-\x1f\x7f\ud800-\udfff]+")
_SIGNATURE = re.compile(r"— ([^\s+]+) ([A-Za-z0-9+/=]+)")


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """What the log was at one moment.

    Attributes
    ----------
    origin
        Name of the log, without spaces: one for each ledger.
    size
        Number of entries.
    root
        Root of the Merkle tree, 32 bytes.
    time
        UTC, as in 2026-11-18T09:30:00Z, where it is said.
    """

    origin: str
    size: int
    root: bytes
    time: str | None = None

    def __post_init__(self):
        if not _NAME.fullmatch(self.origin):
            raise LedgerError(f"origin is {self.origin!r}, not a name without spaces and plus signs")
        if self.size < 0:
            raise LedgerError(f"size is {self.size}, not a number of entries")
        if len(self.root) != HASH_BYTES:
            raise LedgerError(f"root has {len(self.root)} bytes, not {HASH_BYTES}")
        if self.time is not None and not is_time(self.time):
            raise LedgerError(f"time is {self.time!r}, not UTC as in 2026-11-18T09:30:00Z")

    @property
    def text(self) -> str:
        """What is signed."""
        lines = [self.origin, str(self.size), base64.b64encode(self.root).decode()]
        if self.time is not None:
            lines.append(_TIME_PREFIX + self.time)
        return "".join(f"{line}\n" for line in lines)

    def signed(self, key: SigningKey) -> str:
        """The text with a signature below it, to be published."""
        return self.text + "\n" + signature_line(self.text, self.origin, key)

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read what is signed; `TamperedLog` where these are not the characters that `text` gives."""
        lines = text.removesuffix("\n").split("\n")
        try:
            origin, size, root, *rest = lines
            time = rest[0].removeprefix(_TIME_PREFIX) if rest else None
            checkpoint = cls(origin, int(size), base64.b64decode(root, validate=True), time)
        except ValueError:
            raise TamperedLog("this is not a checkpoint of a log") from None
        if checkpoint.text != text:
            raise TamperedLog("this checkpoint of a log is not written as checkpoints are")
        return checkpoint


def read_checkpoint(text: str, public: PublicKey) -> Checkpoint:
    """Read a signed checkpoint.

    Raises
    ------
    BadSignature
        The key has not signed it.
    TamperedLog
        It is no checkpoint.
    """
    body, found, signatures = text.rpartition("\n\n")
    if not found:
        raise TamperedLog("this is not a signed checkpoint of a log")
    body += "\n"
    checkpoint = Checkpoint.from_text(body)
    _require_signature(body, signatures, checkpoint.origin, public)
    return checkpoint


def signature_line(text: str, name: str, key: SigningKey) -> str:
    """The line of a signed note that stands below its text."""
    signature = key_hash(name, key.public) + key.sign(text.encode())
    return f"— {name} {base64.b64encode(signature).decode()}\n"


def key_hash(name: str, public: PublicKey) -> bytes:
    """Four bytes by which a reader of a signed note tells which key a line belongs to."""
    return hashlib.sha256(name.encode() + b"\n" + _ALGORITHM + public.raw).digest()[:_KEY_HASH_BYTES]


def _require_signature(text: str, signatures: str, name: str, public: PublicKey) -> None:
    """Refuse a text that the key has not signed; lines of others, such as witnesses, do no harm."""
    if not signatures.endswith("\n"):
        raise TamperedLog("the signatures of a checkpoint do not end in a line break")
    is_signed = False
    for line in signatures.removesuffix("\n").split("\n"):
        match = _SIGNATURE.fullmatch(line)
        if not match:
            raise TamperedLog("a line below a checkpoint is not a signature")
        signature = _decoded(match[2])
        if match[1] == name and signature[:_KEY_HASH_BYTES] == key_hash(name, public):
            public.require_signed(signature[_KEY_HASH_BYTES:], text.encode())
            is_signed = True
    if not is_signed:
        raise BadSignature(f"the checkpoint of the log is not signed by the key {public.key_id}")


def _decoded(text: str) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error:
        raise TamperedLog("a signature below a checkpoint is damaged") from None
    # Unused bits must be zero: one signature has one text.
    if base64.b64encode(data).decode() != text:
        raise TamperedLog("a signature below a checkpoint is damaged")
    return data
