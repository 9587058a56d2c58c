"""The log as others read it: events, checkpoints, and proofs that they belong together."""

import dataclasses
import json
import threading

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from unbayes.ledger import log, schema
from unbayes.ledger.desk import Desk
from unbayes.ledger.errors import LedgerError, NotFound, TamperedLog
from unbayes.ledger.events import Event, Opening
from unbayes.ledger.kept import keep, require_continued
from unbayes.ledger.merkle import Frontier, Tree, leaf_hash


@dataclasses.dataclass(frozen=True)
class LogHead:
    """How long the log is, and its root, 64 hexadecimal digits."""

    size: int
    root: str
    time: str


@dataclasses.dataclass(frozen=True)
class SignedCheckpoint:
    """A checkpoint that was signed: its size, when, and its text, which `read_checkpoint` checks."""

    size: int
    time: str
    text: str


@dataclasses.dataclass(frozen=True)
class Inclusion:
    """That the log of a size holds an entry; `require_inclusion` checks it. Hashes are hexadecimal digits.

    Attributes
    ----------
    index, size
        Where the entry stands, and how many entries the log of that root has.
    leaf
        Hash of the entry.
    root
        Of the log of that size.
    proof
        Hashes that lead from one to the other.
    """

    index: int
    size: int
    leaf: str
    root: str
    proof: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Consistency:
    """That the log of one size begins the one of another; `require_consistency` checks it.

    Attributes
    ----------
    first, second
        The two sizes.
    first_root, second_root
        Roots of the log of these sizes, in hexadecimal digits.
    proof
        Hashes that tie one to the other, likewise.
    """

    first: int
    second: int
    first_root: str
    second_root: str
    proof: tuple[str, ...]


class Log:
    """The log of a ledger. What was read for proofs is kept, so that the next one reads new events only."""

    def __init__(self, desk: Desk):
        self._desk = desk
        self._tree, self._turn = Tree(), threading.Lock()

    def state(self) -> LogHead:
        """How it stands now."""
        with self._desk.reading() as store:
            head = _head(store.connection)
        return LogHead(head.size, Frontier.from_hex(head.frontier).root.hex(), head.time)

    def events(self, start: int = 0, limit: int = 100) -> list[Event]:
        """At most so many events, from a place in the log on."""
        if start < 0 or limit < 1:
            raise LedgerError(f"start must be at least 0 and limit at least 1, got {start} and {limit}")
        with self._desk.reading() as store:
            end = min(start + limit, _head(store.connection).size)
            return [Event.from_body(body) for body in log.bodies(store.connection, end, start)]

    def of_request(self, number: int) -> list[Event]:
        """The events of a request, the first first."""
        table = schema.event
        asked = sa.select(table.c.body).where(table.c.request_id == number).order_by(table.c.sequence)
        with self._desk.reading() as store:
            store.request(number)
            return [Event.from_body(bytes(body)) for body in store.connection.scalars(asked)]

    def openings(self, number: int) -> dict[int, Opening]:
        """What the commitments of a request's events stand for, by their places, as far as it is kept."""
        table, event = schema.opening, schema.event
        places = sa.select(event.c.sequence).where(event.c.request_id == number)
        with self._desk.reading() as store:
            store.request(number)
            rows = store.run(sa.select(table).where(table.c.sequence.in_(places)))
            return {row.sequence: Opening(row.salt, json.loads(row.details)) for row in rows}

    def checkpoints(self) -> list[SignedCheckpoint]:
        """All that were signed, the first first."""
        table = schema.checkpoint
        with self._desk.reading() as store:
            rows = store.run(sa.select(table).order_by(table.c.size))
            return [SignedCheckpoint(row.size, row.time, row.text) for row in rows]

    def sign(self) -> SignedCheckpoint:
        """A signed statement of the log as it is now, kept in the database and beside the key.

        Refused where the log does not continue the one that was kept before.
        """
        keys = self._desk.keys
        with self._turn:
            tree, size = self._grown(None)
            require_continued(keys, size, tree.root_at)
        with self._desk.writing() as store:
            text = log.sign_checkpoint(store.connection, store.setting("origin"), store.now, keys.signing)
            table = schema.checkpoint
            row = store.run(sa.select(table).where(table.c.text == text)).one()
        with self._turn:
            tree, _ = self._grown(None)
            keep(keys, text, tree.root_at)
        return SignedCheckpoint(row.size, row.time, row.text)

    def inclusion(self, index: int, size: int | None = None) -> Inclusion:
        """Proof that the log holds the entry at an index; of all of it, or of an earlier size."""
        with self._turn:
            tree, size = self._grown(size)
            if not 0 <= index < size:
                raise NotFound(f"there is no event {index} in a log of {size} events")
            proof = _hex(tree.inclusion_proof(index, size))
            return Inclusion(index, size, tree.leaf(index).hex(), tree.root_at(size).hex(), proof)

    def consistency(self, first: int, second: int | None = None) -> Consistency:
        """Proof that the log of one size begins the one of a later size, or all of it."""
        with self._turn:
            tree, second = self._grown(second)
            if not 0 <= first <= second:
                raise NotFound(f"first must be 0 to {second}, which is second, got {first}")
            proof = _hex(tree.consistency_proof(first, second))
            roots = tree.root_at(first).hex(), tree.root_at(second).hex()
            return Consistency(first, second, *roots, proof)

    def _grown(self, size: int | None) -> tuple[Tree, int]:
        """The tree of all events, of which those that are new are read; and a size that it has had."""
        with self._desk.reading() as store:
            head = _head(store.connection)
            known, root = self._tree.size, Frontier.from_hex(head.frontier).root
            if known <= head.size:
                self._tree.extend(_leaves(store.connection, known, head.size))
            if self._tree.size != head.size or self._tree.root != root:
                # A backup was brought back.
                self._tree = Tree(_leaves(store.connection, 0, head.size))
            if self._tree.root != root:
                self._tree = Tree()
                raise TamperedLog("the events are not those that the head of the log was made of")
        if size is not None and not 0 <= size <= head.size:
            raise NotFound(f"size must be 0 to {head.size}, as many as the log has events, got {size}")
        return self._tree, head.size if size is None else size


def _head(connection: Connection) -> sa.Row:
    return connection.execute(sa.select(schema.log_head)).one()


def _leaves(connection: Connection, start: int, end: int) -> list[bytes]:
    return [leaf_hash(body) for body in log.bodies(connection, end, start)]


def _hex(hashes: list[bytes]) -> tuple[str, ...]:
    return tuple(each.hex() for each in hashes)
