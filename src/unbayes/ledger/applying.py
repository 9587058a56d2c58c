"""Applying what waits: one solve for all of it, and one transaction in which it takes effect.

Everything up to that transaction is pure work on what was read before, which may be done again. It compares
the head of the model and its epoch with what was read, so that of two who did the same work one is refused;
and the states of the requests, so that one that was withdrawn in the meantime is not applied.
"""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from unbayes.ledger.bases import DERIVED, add_version, note_applied, read_file
from unbayes.ledger.desk import Desk
from unbayes.ledger.dividing import Share, Waiting, divide
from unbayes.ledger.entities import Model, Version
from unbayes.ledger.errors import AlteredData, Conflict, KeyDestroyed
from unbayes.ledger.events import EventKind
from unbayes.ledger.intake import payload_label
from unbayes.ledger.issuing import finish
from unbayes.ledger.lease import leased
from unbayes.ledger.log import Happening
from unbayes.ledger.records import Records
from unbayes.ledger.showing import ShownProgress
from unbayes.ledger.states import RequestState
from unbayes.ledger.store import Store

if TYPE_CHECKING:
    from unbayes.ledger.solving import Base
    from unbayes.unlearning import Statistics, Unlearned

# Requests, at most, that are set aside one by one because the model cannot do without them; the rest of a
# batch that still cannot be applied is set aside together.
SET_ASIDE = 8


@dataclasses.dataclass(frozen=True)
class Applied:
    """What applying has done.

    Attributes
    ----------
    model, version
        The model, and the version that is current now.
    requests
        Numbers of the requests that have taken effect.
    records
        How many records they took out.
    held, needs_retrain
        Requests that have not, and why, by their numbers.
    findings
        What unlearning said of the new version; empty where none was needed.
    verdict
        Its verdict; None where none was needed.
    """

    model: str
    version: int
    requests: tuple[int, ...] = ()
    records: int = 0
    held: dict[int, str] = dataclasses.field(default_factory=dict)
    needs_retrain: dict[int, str] = dataclasses.field(default_factory=dict)
    findings: dict[str, Any] = dataclasses.field(default_factory=dict)
    verdict: str | None = None


@dataclasses.dataclass(frozen=True)
class Work:
    """What was read: the waiting requests with their records, and what they are taken out of."""

    model: Model
    base_version: Version
    base_file: bytes
    erased_sum: bytes | None
    waiting: list[Waiting]
    unreadable: dict[int, str]
    gone: set[str]


@dataclasses.dataclass
class Outcome:
    """What came of it."""

    shares: list[Share]
    statistics: "Statistics | None"
    result: "Unlearned | None"
    file: bytes | None
    held: dict[int, str] = dataclasses.field(default_factory=dict)
    needs_retrain: dict[int, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Refusal:
    """Why some requests cannot be carried out together.

    Attributes
    ----------
    sentence
        Kept in the clear: nothing in it is of the records.
    needs_retrain
        Whether a model that is trained anew can do without them; else somebody has to look at a request.
    """

    sentence: str
    needs_retrain: bool


def apply(desk: Desk, name: str, progress: Any = None) -> Applied:
    """Take the records of all approved requests out of a model: a new version, in one step."""
    finish(desk)
    with leased(desk, name, "taking records out") as (model, epoch):
        work = _read(desk, model)
        if not work.waiting and not work.unreadable:
            if model.wanted is not None:
                with desk.writing() as store:
                    store.wish_granted(model)
            return Applied(name, model.head)
        outcome, total = _solve(work, ShownProgress(desk, model, epoch, progress))
        applied = _write(desk, work, epoch, outcome, total)
    finish(desk, progress)
    return applied


def _read(desk: Desk, model: Model) -> Work:
    with desk.reading() as store:
        base = store.version(model, store.version(model, model.head).base)
        file = read_file(desk, store, model, base.number)
        _, sealed = store.sealed(base)
        erased_sum = (
            None if sealed is None else desk.keys.unseal(base.secret_id, sealed, sum_label(model, base))
        )
        requests = store.requests(model=model.name, states=[RequestState.APPROVED], by_due=True)
        requests = [request for request in requests if request.hold is None]
        sealed_rows = dict(store.payloads(requests))
        waiting, unreadable = [], {}
        for each in requests:
            try:
                data = desk.keys.unseal(each.secret_id, sealed_rows.get(each.id, b""), payload_label(each.id))
            except (KeyDestroyed, AlteredData) as error:
                # It is withdrawn just now, which is noticed later; or a backup was brought back, or somebody
                # has changed the database: none of that holds up others.
                unreadable[each.id] = f"its rows cannot be read: {error}"
                continue
            records = Records.from_bytes(data)
            digests = tuple(desk.keys.digest("record", name) for name in records.ids)
            waiting.append(Waiting(each, records, digests))
        gone = store.claimed(base, [digest for *_, digests in waiting for digest in digests])
    return Work(model, base, file, erased_sum, waiting, unreadable, gone)


def sum_label(model: Model, base: Version) -> str:
    """What the sum of a base is sealed under."""
    return f"sum of {model.name} {base.number}"


def _solve(work: Work, progress: Any) -> tuple[Outcome, bytes | None]:
    """The outcome, and the new sum of all that was taken out of the base."""
    from unbayes.ledger import solving

    with solving.opened(work.base_file, work.model) as base:
        before = None if work.erased_sum is None else solving.statistics_from_bytes(work.erased_sum)
        outcome = _solve_waiting(base, before, work, progress)
        outcome.held |= work.unreadable
        if outcome.result is None or outcome.statistics is None:
            return outcome, None
        outcome.file = base.without(outcome.result)
        return outcome, solving.statistics_to_bytes(outcome.statistics)


def _solve_waiting(base: "Base", before: "Statistics | None", work: Work, progress: Any) -> Outcome:
    """As many as the model can do without, in the order of their due dates."""
    held: dict[int, str] = {}
    needs_retrain: dict[int, str] = {}
    left = work.waiting
    while True:
        # Anew each time: who is set aside takes nothing out, and leaves it to whoever comes next.
        shares, unfit = divide(base, before, left, work.gone)

        def attempt(number: int, shares: list[Share] = shares) -> Outcome | Refusal:
            return _attempt(base, before, shares[:number], work.model, progress)

        found = attempt(len(shares))
        if isinstance(found, Outcome):
            found.held |= held | unfit
            found.needs_retrain |= needs_retrain
            return found
        first, why = _first_refused(attempt, len(shares), found)
        set_aside = len(held) + len(needs_retrain)
        aside = shares[first : first + 1] if set_aside < SET_ASIDE - 1 else shares[first:]
        (needs_retrain if why.needs_retrain else held).update({s.request.id: why.sentence for s in aside})
        left = [each for each in left if each.request.id not in held.keys() | needs_retrain.keys()]


def _first_refused(
    attempt: Callable[[int], Outcome | Refusal], number: int, why: Refusal
) -> tuple[int, Refusal]:
    """Who is the first that cannot be taken out together with those before, and why; all of them cannot."""
    fine, too_many = 0, number
    while too_many - fine > 1:
        middle = (fine + too_many) // 2
        found = attempt(middle)
        if isinstance(found, Refusal):
            too_many, why = middle, found
        else:
            fine = middle
    return fine, why


def _attempt(
    base: "Base", before: "Statistics | None", shares: list[Share], model: Model, progress: Any
) -> Outcome | Refusal:
    """The outcome for all of these requests, or why there is none."""
    from unbayes.ledger import solving

    records = [share.records for share in shares if share.records is not None]
    if not records:
        return Outcome(shares, None, None, None)
    try:
        own = base.summarise(Records.together(records))
    except ValueError:
        # What the library says of rows may name them.
        return Refusal("the model does not take its rows, alone or beside those of other requests", False)
    solving.require_same_origin(before, own)
    try:
        statistics = solving.sum_of([before, own])
        result = base.solve(statistics, progress)
    except ValueError as error:
        return Refusal(
            f"its records cannot be taken out together with those taken out before: {error}", False
        )
    if isinstance(result, str):
        return Refusal(result, True)
    if not model.settings.accepts(str(result.verdict)):
        reasons = "; ".join(result.doubts) or "the predicted error is too large"
        return Refusal(f"the model without them would be {result.verdict}: {reasons}", True)
    return Outcome(shares, statistics, result, None)


def _write(desk: Desk, work: Work, epoch: int, outcome: Outcome, total: bytes | None) -> Applied:
    model, base = work.model, work.base_version
    with desk.writing() as store:
        _set_aside(store, model, outcome)
        number, findings, verdict = model.head, {}, None
        if outcome.file is not None and outcome.result is not None and total is not None:
            number, verdict = store.last_number(model) + 1, str(outcome.result.verdict)
            findings = _findings(outcome.result, model, base)
            version_id = _write_version(desk, store, work, number, outcome, findings)
            store.set_sum(base, desk.keys.seal(base.secret_id, total, sum_label(model, base)))
            store.note(Happening(EventKind.VERSION_APPLIED, model.name, version=number))
        else:
            version_id = store.version(model, model.head).id
        store.move_head(model, epoch, number)
        store.wish_granted(model)
        requests = [share.request for share in outcome.shares]
        _write_requests(store, work, version_id, number, outcome.shares)
    records = sum(len(share.digests) for share in outcome.shares)
    return Applied(
        model.name,
        number,
        tuple(request.id for request in requests),
        records,
        outcome.held,
        outcome.needs_retrain,
        findings,
        verdict,
    )


def _set_aside(store: Store, model: Model, outcome: Outcome) -> None:
    """Write why requests were not applied."""
    for number, sentence in outcome.held.items():
        if (request := store.request(number)).state is not RequestState.APPROVED:
            raise Conflict(f"request {number} is no longer approved; nothing was written")
        store.update(request, hold=sentence)
        store.note(Happening(EventKind.REQUEST_HELD, model.name, number))
    for number, sentence in outcome.needs_retrain.items():
        store.change(store.request(number), RequestState.NEEDS_RETRAIN, hold=sentence)
        store.note(Happening(EventKind.NEEDS_RETRAIN, model.name, number))


def _write_version(
    desk: Desk, store: Store, work: Work, number: int, outcome: Outcome, findings: dict[str, Any]
) -> int:
    model, base = work.model, work.base_version
    assert outcome.file is not None
    assert outcome.statistics is not None
    assert outcome.result is not None
    # What the new version was made without is still in the one before.
    store.drop_files([each for each in store.versions(model) if each.kind == DERIVED])
    return add_version(
        desk,
        store,
        model.id,
        model.name,
        number,
        DERIVED,
        base.number,
        outcome.file,
        erased=outcome.statistics.records,
        verdict=str(outcome.result.verdict),
        findings=findings,
    )


def _write_requests(store: Store, work: Work, version_id: int, number: int, shares: list[Share]) -> None:
    if not shares:
        return
    model, base = work.model, work.base_version
    requests = [share.request for share in shares]
    numbers = [request.id for request in requests]
    store.change_many(numbers, RequestState.APPROVED, RequestState.APPLIED, ended=store.now)
    store.add_claims(base, [(share.request.id, digest) for share in shares for digest in share.digests])
    store.count_records(
        [
            {
                "number": share.request.id,
                "erased": len(share.digests),
                "already": share.already,
                "unknown": share.unknown,
            }
            for share in shares
        ]
    )
    store.drop_payloads(requests)
    note_applied(store, model, base, version_id, store.version(model, number), requests)


def _findings(result: "Unlearned", model: Model, base: Version) -> dict[str, Any]:
    """What unlearning said, for JSON, and what is to be said of the base."""
    error = result.error
    return {
        "method": str(result.method),
        "information": float(result.information),
        "tolerance": model.settings.tolerance,
        "parameters": result.posterior.dim,
        "error": None if error is None else {k: _number(v) for k, v in dataclasses.asdict(error).items()},
        "doubts": list(result.doubts),
        "caveats": [*result.caveats, *base.findings.get("caveats", ())],
        "seconds": result.seconds,
    }


def _number(value: Any) -> Any:
    return float(value) if hasattr(value, "item") else value
