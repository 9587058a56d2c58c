"""After requests have taken effect: their keys are destroyed, their reports signed, and they are closed.

Each step may be done again; whoever is killed in between leaves the rest to the next one.
"""

import functools
import hashlib
import importlib.metadata
import json
import math
import platform
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from unbayes._version import __version__
from unbayes.ledger import log
from unbayes.ledger.contents import (
    AskedFor,
    Contents,
    Dates,
    ErrorEstimate,
    ModelVersion,
    RecordCounts,
    Residue,
)
from unbayes.ledger.desk import Desk
from unbayes.ledger.entities import Model, Request, Version
from unbayes.ledger.events import Event, EventKind, commit
from unbayes.ledger.kept import keep, keep_newest
from unbayes.ledger.log import Happening
from unbayes.ledger.merkle import Tree, leaf_hash
from unbayes.ledger.report import LogProof, write_report
from unbayes.ledger.statement import statement
from unbayes.ledger.states import RequestState
from unbayes.ledger.store import Store
from unbayes.ledger.verify import verify_report
from unbayes.progress import AbstractProgress, Advance, Silent

# What did the work, besides the library itself.
SOFTWARE = ("jax", "numpy", "cryptography", "sqlalchemy")
# Reports that are signed in one transaction.
AT_ONCE = 1000


def finish(desk: Desk, progress: AbstractProgress | None = None) -> int:
    """Destroy keys, sign reports and close requests, as far as that is left to do; how many were closed.

    The newest checkpoint of the log is kept beside the keys.
    """
    desk.shred()
    with _counting(desk, progress) as advance:
        while number := _issue(desk):
            advance(number, "")
    keep_newest(desk)
    return _close(desk)


def _counting(desk: Desk, progress: AbstractProgress | None) -> AbstractContextManager[Advance]:
    """A meter of the reports that are to be signed, where there are some."""
    left = 0
    if progress is not None:
        with desk.reading() as store:
            left = store.number_by_state().get(RequestState.APPLIED, 0)
    return (progress if progress is not None and left else Silent()).track("signing reports", left)


def _issue(desk: Desk) -> int:
    """Sign reports on requests that have taken effect; how many."""
    with desk.reading() as store:
        if not store.requests(states=[RequestState.APPLIED], limit=1):
            return 0
        # Read before anybody is kept from writing: the log may be long.
        leaves = [leaf_hash(body) for body in log.bodies(store.connection)]
    with desk.writing() as store:
        # Again: somebody else may have signed them in the meantime.
        waiting = store.requests(states=[RequestState.APPLIED], limit=AT_ONCE)
        if not waiting:
            return 0
        contents = _contents_of_each(desk, store, waiting)
        statements = list(map(statement, contents))
        places = store.note(*map(_issued, contents, statements))
        checkpoint = log.sign_checkpoint(
            store.connection, store.setting("origin"), store.now, desk.keys.signing
        )
        added = dict(enumerate(log.bodies(store.connection, start=len(leaves)), start=len(leaves)))
        tree = Tree([*leaves, *map(leaf_hash, added.values())])
        reports = {}
        for request, payload, place in zip(waiting, statements, places, strict=True):
            proof = LogProof(checkpoint, Event.from_body(added[place]), tuple(tree.inclusion_proof(place)))
            reports[request.id] = write_report(payload, desk.keys.signing, proof)
        # They are made alike: what nobody could check would show in any of them.
        verify_report(reports[waiting[0].id], desk.keys.signing.public)
        store.add_reports(reports)
        store.change_many(list(reports), RequestState.APPLIED, RequestState.REPORTED)
    keep(desk.keys, checkpoint, tree.root_at)
    return len(waiting)


def _issued(contents: Contents, payload: bytes) -> Happening:
    """The event by which the log remembers a report: it holds the SHA-256 of the statement."""
    commitment = hashlib.sha256(payload).hexdigest()
    number, version = contents.request.number, contents.into.version
    return Happening(EventKind.REPORT_ISSUED, contents.model, number, version, commitment=commitment)


def _close(desk: Desk) -> int:
    """Close requests of which nothing is left but the report; how many."""
    with desk.reading() as store:
        if not store.requests(states=[RequestState.REPORTED], limit=1):
            return 0
    with desk.writing() as store:
        reported = store.requests(states=[RequestState.REPORTED])
        done = [request for request in reported if desk.keys.is_destroyed(request.secret_id)]
        if done:
            store.change_many([each.id for each in done], RequestState.REPORTED, RequestState.CLOSED)
            store.note(*(Happening(EventKind.REQUEST_CLOSED, each.model, each.id) for each in done))
    return len(done)


def _contents_of_each(desk: Desk, store: Store, requests: Sequence[Request]) -> list[Contents]:
    find_model = functools.cache(store.model)
    find_version = functools.cache(lambda name, number: store.version(find_model(name), number))
    digests = store.digests(requests)
    found = []
    for request in requests:
        version = find_version(request.model, request.version)
        base = find_version(request.model, version.base)
        asked_for = _asked_for(desk, request, digests[request.id])
        found.append(_contents(find_model(request.model), base, version, request, asked_for, desk))
    return found


def _contents(
    model: Model, base: Version, version: Version, request: Request, asked_for: AskedFor, desk: Desk
) -> Contents:
    findings = version.findings
    error = _estimate(findings)
    assert request.ended is not None
    assert request.erased is not None
    assert request.already is not None
    assert request.unknown is not None
    return Contents(
        request=asked_for,
        model=model.name,
        base=ModelVersion(base.number, base.digest),
        from_version=max(version.number - 1, 1),
        into=ModelVersion(version.number, version.digest),
        records=RecordCounts(request.asked, request.erased, request.already, request.unknown),
        method=findings.get("method", "training anew without the records"),
        settings=json.dumps({"seed": model.settings.seed, "tolerance": model.settings.tolerance}),
        predicted_error=error,
        no_error_because=None if error is not None else _why_no_error(version),
        verdict=version.verdict or "trusted",
        doubts=tuple(findings.get("doubts", ())),
        caveats=tuple(findings.get("caveats", ())) + _own_caveats(version),
        dates=Dates.of(
            request.received,
            request.first_due,
            request.ended,
            request.due if request.is_extended else None,
            request.is_extended,
        ),
        software=_software(),
        key_id=desk.keys.signing.key_id,
        remains=_remains(model, base, version),
    )


def _asked_for(desk: Desk, request: Request, digests: Sequence[str]) -> AskedFor:
    """Commitments to the person and the records, whose salts the ledger's keys can tell again."""

    def commitment(kind: str, digest: str) -> str:
        salt = desk.keys.digest(f"salt of {kind} in the report on {request.id}", digest)
        return commit({kind: digest}, bytes.fromhex(salt))[0]

    records = tuple(commitment("record", digest) for digest in digests)
    return AskedFor(request.id, commitment("subject", request.subject), records)


def _estimate(findings: dict[str, Any]) -> ErrorEstimate | None:
    """The predicted error of a version; None where there is none, or its range has no end."""
    error = findings.get("error")
    if error is None or not all(math.isfinite(error[name]) for name in ("nats", "low", "high", "nothing")):
        return None
    return ErrorEstimate(
        value=error["nats"],
        low=error["low"],
        high=error["high"],
        doing_nothing=error["nothing"],
        parameters=findings["parameters"],
        tolerance_per_parameter=findings["tolerance"],
    )


def _why_no_error(version: Version) -> str:
    if version.number == version.base:
        return "The version is a model that was trained anew; nothing had to be taken out of it."
    return "What was measured does not bound the error."


def _own_caveats(version: Version) -> tuple[str, ...]:
    if version.number != version.base:
        return ()
    return ("That the training left the records out is the operator's statement.",)


def _remains(model: Model, base: Version, version: Version) -> tuple[Residue, ...]:
    """What still knows the records, and until when."""
    if base.number == version.number:
        return ()
    until = (
        f"the model is based on one that was trained anew, planned within {model.settings.rebase_days} days"
    )
    return (
        Residue(
            f"The base of {model.name} (version {base.number}), sealed, and what its training kept.", until
        ),
        Residue("The sum of what all erased records had told the base, sealed.", until),
        Residue("Keyed digests of the records' identifiers, so that later training leaves them out.", "kept"),
        Residue(
            "Backups of the keys, where the operator makes any against advice.", "not known to the ledger"
        ),
    )


@functools.cache
def _software() -> dict[str, str]:
    found = {name: importlib.metadata.version(name) for name in SOFTWARE}
    return {"unbayes": __version__, "python": platform.python_version(), **found}
