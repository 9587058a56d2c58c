"""Making a report: a signed statement on what was erased, with proof that the log remembers it."""

import dataclasses
import json

from unbayes.ledger.contents import Contents, Openings
from unbayes.ledger.events import Event
from unbayes.ledger.signing import SigningKey
from unbayes.ledger.statement import sign_envelope, statement
from unbayes.ledger.verify import verify_report


@dataclasses.dataclass(frozen=True)
class LogProof:
    """That the log holds an event.

    Attributes
    ----------
    checkpoint
        Signed checkpoint of the log, as text.
    event
        The event, which `statement.issued` gives for the contents of a report.
    proof
        What `Tree.inclusion_proof(event.sequence)` gives for the log of that checkpoint.
    """

    checkpoint: str
    event: Event
    proof: tuple[bytes, ...]


def sign_report(
    contents: Contents, key: SigningKey, log_proof: LogProof, openings: Openings | None = None
) -> bytes:
    """The file of a report, which `verify_report` accepts.

    Parameters
    ----------
    contents
        What it says; `contents.key_id` must be that of the key.
    key
        The key that signs the log, too.
    log_proof
        That the log holds the event of this report.
    openings
        What the commitments were made of, for the copy that the requester gets. They are personal data.

    Raises
    ------
    UnverifiableReport
        Contents, key, log and openings do not belong together: no report is issued that nobody could check.
    """
    data = write_report(statement(contents), key, log_proof, openings)
    verify_report(data, key.public)
    return data


def write_report(
    payload: bytes, key: SigningKey, log_proof: LogProof, openings: Openings | None = None
) -> bytes:
    """The file of a report on a statement, unchecked: for many at once, of which one is checked."""
    report = {
        "envelope": sign_envelope(payload, key),
        "publicKey": key.public.to_pem().decode(),
        "log": {
            "checkpoint": log_proof.checkpoint,
            "event": log_proof.event.body.decode(),
            "index": log_proof.event.sequence,
            "proof": [found.hex() for found in log_proof.proof],
        },
    }
    if openings is not None:
        report["openings"] = {
            "subject": None if openings.subject is None else openings.subject.to_json(),
            "records": [opening.to_json() for opening in openings.records],
        }
    return (json.dumps(report, indent=2, ensure_ascii=False) + "\n").encode()
