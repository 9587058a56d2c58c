"""A report to test with."""

import dataclasses
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from unbayes.ledger.checkpoint import Checkpoint
from unbayes.ledger.contents import (
    AskedFor,
    Contents,
    Dates,
    ErrorEstimate,
    ModelVersion,
    Openings,
    RecordCounts,
    Residue,
)
from unbayes.ledger.events import Event, EventKind, commit
from unbayes.ledger.merkle import Tree
from unbayes.ledger.report import LogProof, sign_report
from unbayes.ledger.signing import SigningKey
from unbayes.ledger.statement import issued

KEY = SigningKey(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
SUBJECT = commit({"subject": "4711"}, bytes(32))
RECORDS = [commit({"customer": 4711, "row": row}, bytes([row + 1] * 32)) for row in range(4)]
OPENINGS = Openings(SUBJECT[1], tuple(opening for _, opening in RECORDS))
CONTENTS = Contents(
    request=AskedFor(12, SUBJECT[0], tuple(commitment for commitment, _ in RECORDS)),
    model="credit",
    base=ModelVersion(1, "1a" * 32),
    from_version=4,
    into=ModelVersion(5, "5e" * 32),
    records=RecordCounts(asked=4, erased=3, already_erased=1, not_in_model=0),
    method="NaturalGradient, one step, with a memory of sums",
    settings="damping 0, order 2",
    predicted_error=ErrorEstimate(
        value=0.0031, low=0.0009, high=0.012, doing_nothing=1.7, parameters=24, tolerance_per_parameter=0.01
    ),
    no_error_because=None,
    verdict="trusted",
    doubts=(),
    caveats=("The model is a Gaussian approximation of its posterior, before and after.",),
    dates=Dates.of("2026-10-20T08:15:00Z", "2026-11-20", "2026-11-18T09:30:00Z"),
    software={"unbayes": "0.1.0", "jax": "0.7.2", "python": "3.11.7"},
    key_id=KEY.key_id,
    remains=(
        Residue(
            "The base posterior, which was trained with the records", "the rebase planned for 2027-02-01"
        ),
        Residue("The memory of sums, encrypted", "the same rebase"),
        Residue("Backups of the database, in which the records are encrypted without a key", "30 days"),
    ),
)


class Log(NamedTuple):
    """A log in which a report is remembered."""

    proof: LogProof
    tree: Tree


def log_with(event_of, *, key=KEY, size=9, index=6):
    """A log of some events, of which one is made by a function of sequence and time."""
    time = "2026-11-18T09:31:00Z"
    events = [Event(i, time, EventKind.REQUEST_RECEIVED, "credit", i) for i in range(size)]
    events[index] = event_of(index, time)
    tree = Tree(event.leaf for event in events)
    checkpoint = Checkpoint("unbayes.example/ledger", size, tree.root, "2026-11-18T09:32:00Z").signed(key)
    return Log(LogProof(checkpoint, events[index], tuple(tree.inclusion_proof(index))), tree)


def report(contents=CONTENTS, *, key=KEY, openings=None):
    """A report in order."""
    contents = dataclasses.replace(contents, key_id=key.key_id)
    log = log_with(lambda index, time: issued(contents, sequence=index, time=time), key=key)
    return sign_report(contents, key, log.proof, openings)
