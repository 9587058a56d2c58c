"""What a model is based on: registering, rebasing, refining, and handing the current version out."""

import collections
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unbayes._replace import replacing
from unbayes.data.columns import Columns
from unbayes.ledger.desk import Desk
from unbayes.ledger.entities import Model, ModelSettings, Request, Version
from unbayes.ledger.errors import Conflict, LedgerError
from unbayes.ledger.events import EventKind
from unbayes.ledger.lease import leased
from unbayes.ledger.log import Happening
from unbayes.ledger.records import Records, find_columns
from unbayes.ledger.showing import ShownProgress
from unbayes.ledger.states import TAKEN_OUT, RequestState
from unbayes.ledger.store import Store
from unbayes.ledger.suppression import NOTE, suppressed
from unbayes.progress import AbstractProgress, Silent

if TYPE_CHECKING:
    from unbayes.ledger.solving import Base

BASE, REFINED, DERIVED = "base", "refined", "derived"


def register(
    desk: Desk,
    name: str,
    file: Path,
    *,
    ids: str,
    inputs: Sequence[str] | None = None,
    target: str | None = None,
    settings: ModelSettings | None = None,
    progress: AbstractProgress | None = None,
) -> None:
    """Make a trained model version 1 of a name."""
    from unbayes.data.choosing import told_columns
    from unbayes.ledger import solving

    if not name or len(name) > 200 or not name.isprintable():
        raise LedgerError(f"name must have 1 to 200 printable characters, got {name!r}")
    settings = settings or ModelSettings()
    with (progress or Silent()).track("registering", 2) as advance:
        data = solving.read_model_file(file)
        with solving.opened(data) as base:
            told = told_columns(base.saved.notes or {}, inputs, target)
            taken, findings = base.inputs, _findings(base)
        columns = find_columns(*told, ids, taken, str(file))
        advance(1, "sealing the model")
        with desk.writing() as store:
            model_id = store.add_model(name, columns.to_json(), dataclasses.asdict(settings))
            add_version(desk, store, model_id, name, 1, BASE, 1, data, findings=findings)
            store.note(Happening(EventKind.MODEL_REGISTERED, name, version=1))
        advance(1, "")


def _findings(base: "Base") -> dict[str, Any]:
    """What is to be said of a base, and in every report on what is taken out of it."""
    return {"caveats": list(base.caveats)} if base.caveats else {}


def add_version(
    desk: Desk,
    store: Store,
    model_id: int,
    name: str,
    number: int,
    kind: str,
    base: int,
    data: bytes,
    **fields: Any,
) -> int:
    """A version with its sealed file; its row's number."""
    from unbayes.ledger import solving

    (secret,) = desk.new_secrets(store, "version", 1)
    return store.add_version(
        model_id,
        number,
        kind=kind,
        base=base,
        digest=solving.digest(data),
        secret_id=secret,
        blob=desk.keys.seal(secret, data, file_label(name, number)),
        **{"erased": 0, **fields},
    )


def file_label(name: str, number: int) -> str:
    """What the file of a version is sealed under."""
    return f"file of {name} {number}"


def read_file(desk: Desk, store: Store, model: Model, number: int) -> bytes:
    """The file of a version."""
    version = store.version(model, number)
    blob, _ = store.sealed(version)
    if blob is None:
        raise Conflict(f"version {number} of {model.name} was destroyed when a later one took its place")
    return desk.keys.unseal(version.secret_id, blob, file_label(model.name, number))


def current_file(desk: Desk, name: str) -> tuple[Version, bytes]:
    """The version that production should load, and its file: belief and model, never a base's memory."""
    from unbayes.ledger import solving

    with desk.reading() as store:
        model = store.model(name)
        version, data = store.version(model, model.head), read_file(desk, store, model, model.head)
    if version.kind == DERIVED:
        return version, data
    with solving.opened(data) as base:
        return version, solving.to_bytes(solving.bare(base.saved))


def serve_model(desk: Desk, name: str, out: Path) -> Version:
    """Write the version that production should load to a file."""
    version, data = current_file(desk, name)
    with replacing(out) as file:
        file.write(data)
    return version


def rebase(desk: Desk, name: str, file: Path, progress: AbstractProgress | None = None) -> Version:
    """Start afresh from a model that was trained anew, and destroy what was based on the old one.

    Requests whose people its training left out, as its notes say, have taken effect with it. Those that wait
    and were not left out will be taken out of it.
    """
    from unbayes.ledger import solving

    with (progress or Silent()).track("replacing the base", 2) as advance:
        data = solving.read_model_file(file)
        with solving.opened(data) as base:
            notes, taken, findings = base.saved.notes or {}, base.inputs, _findings(base)
            own = base.saved.columns
        with desk.reading() as store:
            model = store.model(name)
        asked, before = model.columns.width, Columns(model.columns.inputs, model.columns.target)
        if own != before and not (before.is_plain and (own is None or own.is_plain)):
            raise LedgerError(
                f"{file} must encode its columns as {name} does, as requests that wait are encoded: "
                "train with the same Columns, and save them with the model"
            )
        if taken is not None and asked != taken:
            raise LedgerError(f"{file} must take the {asked} inputs of {name}, got {taken}")
        advance(1, "sealing the model")
        version = _rebase(desk, name, data, findings, notes)
        advance(1, "")
    return version


def _rebase(desk: Desk, name: str, data: bytes, findings: dict[str, Any], notes: dict[str, Any]) -> Version:
    with leased(desk, name, "replacing the base") as (model, epoch):
        left_out = _left_out(desk, name, notes.get(NOTE))
        return _replace_base(desk, model, epoch, BASE, data, findings, left_out)


def refine(desk: Desk, name: str, remaining: Path, progress: Any = None) -> Version:
    """Train the current version on with the remaining records: a new base, without the errors of the old."""
    from unbayes.ledger import solving

    with leased(desk, name, "training on") as (model, epoch):
        with desk.reading() as store:
            data = read_file(desk, store, model, model.head)
        records = Records.of_table(remaining, model.columns)
        listed = suppressed(desk, name)
        if gone := listed.count(records.ids):
            raise LedgerError(
                f"{remaining} must hold remaining records only, but {gone} are of people to be left out; "
                "unbayes suppressed --filter takes them out"
            )
        with solving.opened(data, model) as base:
            shown = ShownProgress(desk, model, epoch, progress)
            refined = base.refined(base.saved, records, shown)
            new = solving.to_bytes(solving.bare(refined)._replace(memory=refined.memory))
            findings = _findings(dataclasses.replace(base, saved=refined))
        return _replace_base(desk, model, epoch, REFINED, new, findings, set(listed.requests))


def _left_out(desk: Desk, name: str, note: Any) -> set[int]:
    """Requests that a training has left out, by what the notes of its file say; refuses none and others'."""
    current = suppressed(desk, name)
    if not current.digests:
        return set()
    if not isinstance(note, dict) or note.get("ledger") != current.ledger:
        raise LedgerError(
            f"the file must say that people erased from {name} were left out of its training: save it with "
            f'notes={{"{NOTE}": suppression.note}}, as suppression.keep(ids) filters the training records'
        )
    left_out = current.requests_in(note)
    with desk.reading() as store:
        applied = {request.id for request in store.requests(model=name, states=TAKEN_OUT)}
    if late := sorted(applied - left_out):
        raise Conflict(
            f"the file's training did not leave out {len(late)} requests that were applied since its list "
            f"was made, the first of them {late[0]}: train again, and let requests wait until the rebase"
        )
    return left_out


def _replace_base(
    desk: Desk,
    model: Model,
    epoch: int,
    kind: str,
    data: bytes,
    findings: dict[str, Any],
    left_out: set[int],
) -> Version:
    name = model.name
    with desk.writing() as store:
        old = store.versions(model)
        number = store.last_number(model) + 1
        version_id = add_version(desk, store, model.id, name, number, kind, number, data, findings=findings)
        store.move_head(model, epoch, number)
        store.drop_files(old)
        model = store.model(name)
        new = store.version(model, number)
        store.note(Happening(EventKind.MODEL_REBASED, name, version=number))
        store.note(Happening(EventKind.BASE_SHREDDED, name, version=old[-1].base))
        # Nobody is taken out of the new base who was taken out of the old one, or left out of the training.
        store.move_claims(store.version(model, old[-1].base), new)
        _settle_requests(store, model, new, version_id, left_out)
    desk.shred()
    return new


def _settle_requests(store: Store, model: Model, new: Version, version_id: int, left_out: set[int]) -> None:
    """Those that were left out have taken effect; those that waited for a new base try again."""
    states = [RequestState.APPROVED, RequestState.NEEDS_RETRAIN]
    waiting = store.requests(model=model.name, states=states)
    done = [request for request in waiting if request.id in left_out]
    for state in states:
        numbers = [request.id for request in done if request.state is state]
        store.change_many(numbers, state, RequestState.APPLIED, ended=store.now, hold=None)
    again = [r.id for r in waiting if r.id not in left_out and r.state is RequestState.NEEDS_RETRAIN]
    store.change_many(again, RequestState.NEEDS_RETRAIN, RequestState.APPROVED, hold=None)
    if done:
        digests = store.digests(done)
        gone = store.claimed(new, [each for listed in digests.values() for each in listed])
        # The first to ask for a record has taken it out.
        owners = {each: n for n in sorted(digests, reverse=True) for each in digests[n] if each not in gone}
        store.add_claims(new, [(number, each) for each, number in owners.items()])
        own = collections.Counter(owners.values())
        store.count_records(
            [
                {"number": r.id, "erased": own[r.id], "already": r.asked - own[r.id], "unknown": 0}
                for r in done
            ]
        )
        store.drop_payloads(done)
        note_applied(store, model, new, version_id, new, done)


def note_applied(
    store: Store, model: Model, base: Version, version_id: int, version: Version, requests: Sequence[Request]
) -> None:
    """Write that requests have taken effect by a version, in the log and beside it."""
    happenings = [
        Happening(EventKind.REQUEST_APPLIED, model.name, request.id, version.number) for request in requests
    ]
    sequences = store.note(*happenings)
    numbers = [request.id for request in requests]
    store.add_applications(base, version_id, dict(zip(numbers, sequences, strict=True)))
