"""Requests come in, and people decide on them."""

import dataclasses
import datetime
import hashlib
from collections.abc import Sequence

from unbayes.ledger.desk import Desk
from unbayes.ledger.entities import Model, Request
from unbayes.ledger.errors import Conflict, Forbidden, LedgerError
from unbayes.ledger.events import EventKind
from unbayes.ledger.log import Happening
from unbayes.ledger.records import Records
from unbayes.ledger.states import RequestState
from unbayes.ledger.store import Store

LONGEST_NAME = 100
LONGEST_WORDS = {"client": LONGEST_NAME, "idempotency_key": 200, "reference": 200}
MISSING = ("refuse", "skip")


@dataclasses.dataclass(frozen=True)
class Submission:
    """What one person asks for.

    Attributes
    ----------
    subject
        Who: any identifier of the person. A keyed digest of it is kept.
    records
        The person's records, as the model was trained on them. Kept sealed until they are taken out.
    reference
        What the request is called elsewhere, such as a ticket. Kept as it is: put nobody's name there.
    due
        The last day for an answer; None for the one that the model's rule sets.
    client, idempotency_key
        Submitting again under the same key changes nothing.
    missing
        Whether records that are not in the model hold the request back ("refuse") or are left out ("skip").
    """

    subject: str
    records: Records
    reference: str | None = None
    due: datetime.date | None = None
    client: str = "python"
    idempotency_key: str | None = None
    missing: str = "refuse"

    def __post_init__(self):
        if not self.subject:
            raise LedgerError("subject must be an identifier of the person, but is empty")
        if self.missing not in MISSING:
            raise LedgerError(f"missing must be refuse or skip, got {self.missing!r}")
        for name, longest in LONGEST_WORDS.items():
            if len(getattr(self, name) or "") > longest:
                raise LedgerError(f"{name} must have at most {longest} characters")


def submit(desk: Desk, model_name: str, submissions: Sequence[Submission]) -> list[tuple[int, bool]]:
    """Take requests in, all or none; number, and whether it is new. Those submitted before keep theirs."""
    if not submissions:
        raise LedgerError("there must be at least one request, got none")
    with desk.writing() as store:
        model = store.model(model_name)
        contents = [_content(desk, model, each) for each in submissions]
        known = [_known(store, *pair) for pair in zip(submissions, contents, strict=True)]
        new = [i for i, number in enumerate(known) if number is None]
        if twice := _twice([submissions[i] for i in new]):
            raise Conflict(f"idempotency_key must be used once, but {twice!r} is there more than once")
        added = _add(desk, store, model, [submissions[i] for i in new], [contents[i] for i in new])
        numbers = dict(zip(new, added, strict=True))
        return [(numbers[i], True) if number is None else (number, False) for i, number in enumerate(known)]


def approve(desk: Desk, number: int, missing: str | None = None, by: str | None = None) -> None:
    """Let a request be carried out; releases one that is on hold."""
    if missing not in (None, *MISSING):
        raise LedgerError(f"missing must be refuse or skip, got {missing!r}")
    with desk.writing() as store:
        request = store.request(number)
        details = _decided(store, request, by)
        fields = {} if missing is None else {"missing": missing}
        if request.state is RequestState.APPROVED and request.hold is not None:
            store.update(request, hold=None, **fields)
            store.note(Happening(EventKind.REQUEST_RELEASED, request.model, number, details=details))
            return
        if request.state is RequestState.NEEDS_RETRAIN:
            raise Conflict(f"request {number} waits for a model that was trained anew: rebase or refine")
        store.change(request, RequestState.APPROVED, **fields)
        store.note(Happening(EventKind.REQUEST_APPROVED, request.model, number, details=details))


def deny(desk: Desk, number: int, ground: str, by: str | None = None) -> None:
    """Refuse a request, on a ground; its rows and their key are destroyed."""
    if not ground.strip():
        raise LedgerError("ground must say why the request is denied, but is empty")
    with desk.writing() as store:
        request = store.request(number)
        details = {"ground": ground, **(_decided(store, request, by) or {})}
        _end(store, request, RequestState.DENIED, EventKind.REQUEST_DENIED, details)
    desk.shred()


def withdraw(desk: Desk, number: int, by: str | None = None) -> None:
    """Take a request back; its rows and their key are destroyed."""
    with desk.writing() as store:
        request, details = store.request(number), _named(by)
        _end(store, request, RequestState.WITHDRAWN, EventKind.REQUEST_WITHDRAWN, details)
    desk.shred()


def extend(desk: Desk, number: int, days: int, reason: str, by: str | None = None) -> datetime.date:
    """Put the due date of a request off, once, with a reason, as far as the model's rule allows."""
    if not reason.strip():
        raise LedgerError("reason must say why more time is needed, but is empty")
    if days < 1:
        raise LedgerError(f"days must be at least 1, got {days}")
    with desk.writing() as store:
        request = store.request(number)
        decided = _decided(store, request, by)
        if request.days_left(desk.today) is None:
            raise Conflict(f"request {number} is {request.state}; there is nothing left to do in more time")
        if request.is_extended:
            raise Conflict(f"request {number} has been extended before, to {request.due}")
        rule = store.model(request.model).settings.deadline_rule
        latest = rule.latest(request.received_date)
        if days > (longest := (latest - request.due_date).days):
            raise LedgerError(
                f"days must be at most {longest}: by the rule {rule.name}, request {number} has to be "
                f"answered by {latest}"
            )
        due = request.due_date + datetime.timedelta(days=days)
        store.update(request, due=due.isoformat())
        details = {"reason": reason, "due": due.isoformat(), **(decided or {})}
        store.note(Happening(EventKind.REQUEST_EXTENDED, request.model, number, details=details))
    return due


def _decided(store: Store, request: Request, by: str | None) -> dict[str, str] | None:
    """Who decides, for the log; refused where four eyes are asked for and these are not two people."""
    details = _named(by)
    if store.model(request.model).settings.four_eyes:
        if by is None:
            raise Forbidden(f"by must say who decides: {request.model} is decided on by four eyes")
        if by.strip().casefold() == request.client.strip().casefold():
            raise Forbidden(
                f"request {request.id} must be decided on by somebody else than who submitted it: "
                f"{request.model} is decided on by four eyes"
            )
    return details


def _named(by: str | None) -> dict[str, str] | None:
    if by is None:
        return None
    if not by.strip() or len(by) > LONGEST_NAME or not by.isprintable():
        raise LedgerError(f"by must have 1 to {LONGEST_NAME} printable characters")
    return {"by": by}


def _end(store: Store, request: Request, state: RequestState, kind: EventKind, details: dict | None) -> None:
    store.change(request, state, ended=store.now, hold=None)
    store.drop_payloads([request])
    store.note(Happening(kind, request.model, request.id, details=details))


def _content(desk: Desk, model: Model, submission: Submission) -> str:
    """A keyed digest of what was asked for, by which a repetition is known."""
    width = model.columns.width + 1
    if submission.records.numbers.shape[1] != width:
        raise LedgerError(
            f"rows must have the {width} columns of {model.name} ({', '.join(model.columns.columns)}), "
            f"got {submission.records.numbers.shape[1]}"
        )
    whole = hashlib.sha256(submission.subject.encode() + b"\0" + submission.records.to_bytes())
    return desk.keys.digest(f"content of {model.name}", whole.hexdigest())


def _known(store: Store, submission: Submission, content: str) -> int | None:
    if submission.idempotency_key is None:
        return None
    if (found := store.known_key(submission.client, submission.idempotency_key)) is None:
        return None
    number, before = found
    if before != content:
        raise Conflict(f"idempotency_key was used for another request before: number {number}")
    return number


def _twice(submissions: Sequence[Submission]) -> str | None:
    keys = [(each.client, each.idempotency_key) for each in submissions if each.idempotency_key is not None]
    return (
        next((key for _, key in keys if keys.count((_, key)) > 1), None)
        if len(set(keys)) < len(keys)
        else None
    )


def _add(
    desk: Desk, store: Store, model: Model, submissions: Sequence[Submission], contents: Sequence[str]
) -> list[int]:
    if not submissions:
        return []
    keys, received = desk.keys, store.now
    secrets = desk.new_secrets(store, "request", len(submissions))
    due = model.settings.deadline_rule.due(datetime.date.fromisoformat(received[:10]))
    rows = [
        {
            "model_id": model.id,
            "client": each.client,
            "idempotency_key": each.idempotency_key,
            "content": content,
            "subject": keys.digest("subject", each.subject),
            "reference": each.reference,
            "received": received,
            "first_due": (each.due or due).isoformat(),
            "due": (each.due or due).isoformat(),
            "state": RequestState.RECEIVED,
            "missing": each.missing,
            "asked": len(each.records),
            "secret_id": secret,
        }
        for each, content, secret in zip(submissions, contents, secrets, strict=True)
    ]
    numbers = store.add_requests(rows)
    digests = [[keys.digest("record", name) for name in each.records.ids] for each in submissions]
    payloads = [
        {"request_id": number, "blob": keys.seal(secret, each.records.to_bytes(), payload_label(number))}
        for number, secret, each in zip(numbers, secrets, submissions, strict=True)
    ]
    records = [
        {"request_id": number, "digest": each}
        for number, some in zip(numbers, digests, strict=True)
        for each in some
    ]
    store.add_contents(payloads, records)
    happenings = [
        Happening(
            EventKind.REQUEST_RECEIVED,
            model.name,
            number,
            details={"subject": row["subject"], "records": some, "due": row["due"]},
        )
        for number, row, some in zip(numbers, rows, digests, strict=True)
    ]
    store.note(*happenings)
    return numbers


def payload_label(number: int) -> str:
    """What the rows of a request are sealed under."""
    return f"rows of request {number}"
