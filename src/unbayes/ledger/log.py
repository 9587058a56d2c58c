"""The log in the database: events in one line, each a leaf of a Merkle tree, and checkpoints of it."""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from unbayes.ledger import schema
from unbayes.ledger.checkpoint import Checkpoint, read_checkpoint
from unbayes.ledger.errors import TamperedLog, WrongOpening
from unbayes.ledger.events import Event, EventKind, Opening, commit
from unbayes.ledger.merkle import Frontier, Tree, leaf_hash
from unbayes.ledger.signing import PublicKey, SigningKey
from unbayes.progress import AbstractProgress, Silent

# Events that are read at a time, and after which progress is told of.
AT_ONCE, TOLD = 10_000, 1000
# Statements of every event, made once.
_HEAD, _NEW_HEAD = sa.select(schema.log_head), schema.log_head.update()
_NEW_EVENT, _NEW_OPENING = schema.event.insert(), schema.opening.insert()


@dataclasses.dataclass(frozen=True)
class Happening:
    """An event that has no place in the log yet; `details` go into a commitment, which may also be given."""

    kind: EventKind
    model: str | None = None
    request: int | None = None
    version: int | None = None
    details: dict[str, Any] | None = None
    commitment: str | None = None


def begin_log(connection: Connection, time: str) -> None:
    """The head of an empty log."""
    connection.execute(
        schema.log_head.insert(), {"id": 1, "size": 0, "frontier": Frontier().to_hex(), "time": time}
    )


def append(connection: Connection, time: str, happenings: Sequence[Happening]) -> list[int]:
    """Write events at the end of the log; the places that they got.

    A clock that was put back does not put the log back: no event is earlier than the one before.
    """
    head = connection.execute(_HEAD).one()
    frontier, time = Frontier.from_hex(head.frontier), max(time, head.time)
    events, openings = [], []
    for sequence, each in enumerate(happenings, start=head.size):
        commitment = each.commitment
        if each.details is not None:
            commitment, opening = commit(each.details)
            details = json.dumps(opening.details, sort_keys=True)
            openings.append({"sequence": sequence, "salt": opening.salt, "details": details})
        event = Event(sequence, time, each.kind, each.model, each.request, each.version, commitment)
        body = event.body
        frontier = frontier.append(leaf_hash(body))
        events.append({"sequence": sequence, "body": body, "request_id": each.request})
    connection.execute(_NEW_EVENT, events)
    if openings:
        connection.execute(_NEW_OPENING, openings)
    size = head.size + len(events)
    connection.execute(_NEW_HEAD, {"size": size, "frontier": frontier.to_hex(), "time": time})
    return [event["sequence"] for event in events]


def bodies(connection: Connection, until: int | None = None, start: int = 0) -> Iterator[bytes]:
    """The events as they were hashed, in their order; `TamperedLog` where one is missing."""
    size: int = connection.execute(sa.select(schema.log_head.c.size)).scalar_one()
    end = size if until is None else until
    table, sequence = schema.event, start
    while sequence < end:
        stop = min(sequence + AT_ONCE, end)
        asked = sa.select(table.c.sequence, table.c.body).where(
            table.c.sequence >= sequence, table.c.sequence < stop
        )
        for found, body in connection.execute(asked.order_by(table.c.sequence)):
            if found != sequence:
                raise TamperedLog(f"event {sequence} is missing from the log")
            if isinstance(body, str):
                raise TamperedLog(f"event {sequence} was written by somebody else")
            yield bytes(body)
            sequence += 1
        if sequence < stop:
            raise TamperedLog(f"event {sequence} is missing from the log")


def tree(connection: Connection) -> Tree:
    """The Merkle tree over the whole log."""
    return Tree(map(leaf_hash, bodies(connection)))


def sign_checkpoint(connection: Connection, origin: str, time: str, key: SigningKey) -> str:
    """A signed statement of how many events there are and of their root; kept for later comparison."""
    head = connection.execute(sa.select(schema.log_head)).one()
    known = connection.scalar(
        sa.select(schema.checkpoint.c.text).where(schema.checkpoint.c.size == head.size)
    )
    if known is not None:
        return known
    text = Checkpoint(origin, head.size, Frontier.from_hex(head.frontier).root, time).signed(key)
    connection.execute(schema.checkpoint.insert(), {"size": head.size, "time": time, "text": text})
    return text


@dataclasses.dataclass(frozen=True)
class LogState:
    """What `verify_log` found: a log that is whole.

    Attributes
    ----------
    events, root
        How many there are, and the root of the log in hexadecimal digits.
    checkpoints, openings
        How many of the database were compared with the events.
    compared
        How many checkpoints from outside of the database were. Without any, nothing tells whether somebody
        has taken events off the end.
    covered
        How many events the newest of these covers.
    """

    events: int
    root: str
    checkpoints: int
    openings: int
    compared: int = 0
    covered: int = 0


def verify_log(
    connection: Connection,
    key: PublicKey,
    elsewhere: Sequence[Checkpoint] = (),
    progress: AbstractProgress | None = None,
) -> LogState:
    """Read the whole log: no event changed, missing, moved or added since the checkpoints were signed.

    Parameters
    ----------
    connection
        A transaction that sees one state.
    key
        By which the log is signed.
    elsewhere
        Checkpoints that were kept outside of the database: the log must continue each of them.
    progress
        Is told how far it is.
    """
    head = connection.execute(sa.select(schema.log_head)).one()
    signed = {
        row.size: read_checkpoint(row.text, key)
        for row in connection.execute(sa.select(schema.checkpoint).order_by(schema.checkpoint.c.size))
    }
    _require_origin(connection, elsewhere)
    roots = [(each.size, each.root) for each in (*signed.values(), *elsewhere)]
    expected = {size: {root for other, root in roots if other == size} for size, _ in roots}
    if (longest := max(expected, default=0)) > head.size:
        raise TamperedLog(f"a checkpoint was signed over {longest} events, but the log has {head.size}")
    openings = {row.sequence: row for row in connection.execute(sa.select(schema.opening))}
    frontier, previous, checked = Frontier(), "", 0
    for sequence, body in enumerate(_watched(bodies(connection, head.size), head.size, progress)):
        event = Event.from_body(body)
        if event.sequence != sequence or event.time < previous:
            raise TamperedLog(f"event {sequence} is out of its place")
        if (opening := openings.pop(sequence, None)) is not None:
            _require_opening(event, opening)
            checked += 1
        frontier, previous = frontier.append(leaf_hash(body)), event.time
        if sequence + 1 in expected and expected[sequence + 1] != {frontier.root}:
            raise TamperedLog(f"the first {sequence + 1} events are not those that were signed")
    if frontier.to_hex() != head.frontier:
        raise TamperedLog("the events are not those that the head of the log was made of")
    extra = connection.scalar(
        sa.select(sa.func.count()).select_from(schema.event).where(schema.event.c.sequence >= head.size)
    )
    if extra or openings:
        raise TamperedLog("there are events or openings beyond the end of the log")
    covered = max((each.size for each in elsewhere), default=0)
    return LogState(head.size, frontier.root.hex(), len(signed), checked, len(elsewhere), covered)


def _require_origin(connection: Connection, checkpoints: Sequence[Checkpoint]) -> None:
    """Refuse checkpoints of another ledger."""
    asked = sa.select(schema.setting.c.value).where(schema.setting.c.name == "origin")
    origin = connection.execute(asked).scalar()
    for each in checkpoints:
        if each.origin != origin:
            raise TamperedLog(f"the checkpoint over {each.size} events is of another ledger: {each.origin}")


def _watched(found: Iterator[bytes], total: int, progress: AbstractProgress | None) -> Iterator[bytes]:
    """The same events, and somebody is told of each thousand."""
    with (progress or Silent()).track("reading the log", total) as advance:
        for number, body in enumerate(found, start=1):
            yield body
            if number % TOLD == 0 or number == total:
                advance((number - 1) % TOLD + 1, "")


def _require_opening(event: Event, row: Any) -> None:
    try:
        Opening(row.salt, json.loads(row.details)).require(event.commitment or "")
    except (WrongOpening, ValueError) as error:
        raise TamperedLog(
            f"the details kept for event {event.sequence} are not those it commits to"
        ) from error
