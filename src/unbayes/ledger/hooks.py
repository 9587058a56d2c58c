"""Webhooks: events are told to an address, signed, in their order, until it has taken them.

What is to be told stands in the outbox since the transaction of the event. Whoever delivers claims an event
by moving its next try ahead before sending it. One who is killed before noting that it was taken leaves it to
be sent again after a while, under the same key: at least once, and the receiver tells by the key.
"""

import contextlib
import dataclasses
import datetime
import http.client
import ipaddress
import random
import secrets
import socket
import threading
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import sqlalchemy as sa

from unbayes._version import __version__
from unbayes.data.refusal import reason
from unbayes.ledger import outbox, schema, webhook
from unbayes.ledger.clock import from_text, to_text
from unbayes.ledger.desk import Desk
from unbayes.ledger.errors import KeyProblem, LedgerError, NotFound
from unbayes.ledger.events import Event, EventKind
from unbayes.ledger.log import Happening
from unbayes.ledger.tokens import SECRET_BYTES

PREFIX = "unbayes_hook_"
LONGEST_URL = 2000
# Seconds that a receiver has for each step, and for everything.
STEP_SECONDS, WHOLE_SECONDS = 5.0, 8.0
# After which somebody else may send what was claimed: longer than anybody sends.
CLAIM = datetime.timedelta(minutes=3)
# Seconds to the second try, doubled for each one after it, and at most.
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 3600.0
# Nothing older is tried again.
GIVEN_UP = datetime.timedelta(days=3)
# Hooks that are told at a time, and events that one is told in a row.
AT_ONCE, IN_A_ROW = 8, 100
LONGEST_ERROR = 200


@dataclasses.dataclass(frozen=True)
class Hook:
    """Where events are told to.

    Attributes
    ----------
    id
        Its number.
    url
        The address.
    kinds
        Of the events that are told; all where it is empty.
    created
        When it was added; it is told of events since then.
    waiting, given_up
        How many events it is still to be told of, and how many it was not told of in time.
    error
        Why the next one was not delivered at the last try.
    """

    id: int
    url: str
    kinds: tuple[EventKind, ...]
    created: str
    waiting: int = 0
    given_up: int = 0
    error: str | None = None

    @classmethod
    def of(cls, row: Any, **fields: Any) -> Self:
        """From a row of the table."""
        return cls(row.id, row.url, tuple(map(EventKind, row.kinds.split())), row.created, **fields)


@dataclasses.dataclass(frozen=True)
class Parcel:
    """An event that is being told to a hook, and the number of the try."""

    hook: int
    url: str
    event: Event
    attempt: int

    @property
    def key(self) -> str:
        """By which the receiver knows it again."""
        return f"{self.hook}-{self.event.sequence}"


class Hooks:
    """The webhooks of a ledger."""

    def __init__(self, desk: Desk):
        self._desk = desk

    def add(self, url: str, kinds: Iterable[str] = ()) -> tuple[Hook, str]:
        """Tell events to an address from now on; and the secret by which it checks that they are genuine.

        Parameters
        ----------
        url
            https, or http to this machine itself.
        kinds
            Of events; all where there are none.
        """
        host, chosen = _require_url(url), _read_kinds(kinds)
        shown, keys = PREFIX + secrets.token_urlsafe(SECRET_BYTES), self._desk.keys
        with self._desk.writing() as store:
            (secret,) = self._desk.new_secrets(store, "hook", 1)
            row = {
                "url": url,
                "kinds": " ".join(chosen),
                "created": store.now,
                "secret_id": secret,
                "blob": keys.seal(secret, shown.encode(), _label(secret)),
            }
            number = store.run(schema.hook.insert().returning(schema.hook.c.id), row).scalar_one()
            details = {"hook": number, "host": host, "kinds": list(chosen)}
            store.note(Happening(EventKind.HOOK_ADDED, details=details))
            added = store.run(sa.select(schema.hook).where(schema.hook.c.id == number)).one()
            return Hook.of(added, **_standing(store, number)), shown

    def all(self) -> list[Hook]:
        """All of them, the first first."""
        with self._desk.reading() as store:
            rows = store.run(sa.select(schema.hook).order_by(schema.hook.c.id)).all()
            return [Hook.of(row, **_standing(store, row.id)) for row in rows]

    def remove(self, number: int) -> None:
        """Tell an address nothing more, also of what has happened before; destroy its secret."""
        mine = schema.hook.c.id == number
        with self._desk.writing() as store:
            row = store.run(sa.select(schema.hook).where(mine)).one_or_none()
            if row is None:
                raise NotFound(f"there is no hook {number}")
            store.run(schema.delivery.delete().where(schema.delivery.c.hook_id == number))
            store.run(schema.hook.delete().where(mine))
            store.shred_later([row.secret_id])
            store.note(Happening(EventKind.HOOK_REMOVED, details={"hook": number}))
        self._desk.shred()

    def due(self) -> list[int]:
        """Hooks that are to be told something now; a cheap question."""
        now = to_text(self._desk.clock())
        with self._desk.reading() as store:
            numbers = store.connection.scalars(sa.select(schema.hook.c.id)).all()
            heads = {number: outbox.head(store.connection, number) for number in numbers}
        return [number for number, head in heads.items() if head is not None and head.next_try <= now]

    def deliver(self, is_stopped: Callable[[], bool] = lambda: False) -> int:
        """Tell all hooks what they are to be told now; how many events were taken.

        One that does not answer keeps its own events waiting, and nobody else's.
        """
        if not (numbers := self.due()):
            return 0
        with ThreadPoolExecutor(AT_ONCE, "unbayes-hooks") as pool:
            return sum(pool.map(lambda number: self._deliver_to(number, is_stopped), numbers))

    def _deliver_to(self, number: int, is_stopped: Callable[[], bool]) -> int:
        for taken in range(IN_A_ROW):
            if is_stopped() or (found := self._claim(number)) is None:
                return taken
            parcel, secret = found
            error = secret if isinstance(secret, KeyProblem) else _send(parcel, secret, self._desk)
            self._record(parcel, None if error is None else str(error))
            if error is not None:
                return taken
        return IN_A_ROW

    def _claim(self, number: int) -> tuple[Parcel, str | KeyProblem] | None:
        """The next event of a hook, if it is time for it, which nobody else sends for a while."""
        table, event = schema.delivery, schema.event
        with self._desk.writing() as store:
            hook = store.run(sa.select(schema.hook).where(schema.hook.c.id == number)).one_or_none()
            head = None if hook is None else outbox.head(store.connection, number)
            if hook is None or head is None or head.next_try > store.now:
                return None
            until = to_text(self._desk.clock() + CLAIM)
            mine = table.update().where(table.c.hook_id == number, table.c.sequence == head.sequence)
            store.run(mine.values(next_try=until, attempts=head.attempts + 1))
            body = store.run(sa.select(event.c.body).where(event.c.sequence == head.sequence)).scalar_one()
        parcel = Parcel(number, hook.url, Event.from_body(bytes(body)), head.attempts + 1)
        try:
            opened = self._desk.keys.unseal(hook.secret_id, hook.blob, _label(hook.secret_id))
        except KeyProblem as error:
            return parcel, error
        return parcel, opened.decode()

    def _record(self, parcel: Parcel, error: str | None) -> None:
        """Note that an event was taken, or when it is tried again, or that it is given up."""
        table = schema.delivery
        mine = table.update().where(
            table.c.hook_id == parcel.hook,
            table.c.sequence == parcel.event.sequence,
            table.c.delivered.is_(None),
        )
        with self._desk.writing() as store:
            if error is None:
                store.run(mine.values(delivered=store.now, next_try=None, error=None))
                return
            now = from_text(store.now)
            next_try = to_text(now + _pause(parcel.attempt))
            if now - from_text(parcel.event.time) > GIVEN_UP:
                next_try = None
            same = mine.where(table.c.attempts == parcel.attempt)
            store.run(same.values(next_try=next_try, error=error[:LONGEST_ERROR]))


def _label(secret: int) -> str:
    return f"secret {secret} of a hook"


def _standing(store: Any, number: int) -> dict[str, Any]:
    """How the events of a hook stand."""
    table = schema.delivery
    waiting = sa.func.count(table.c.next_try)
    mine = sa.select(sa.func.count(), waiting).where(table.c.hook_id == number, table.c.delivered.is_(None))
    left, waiting = store.run(mine).one()
    head = outbox.head(store.connection, number)
    return {"waiting": waiting, "given_up": left - waiting, "error": None if head is None else head.error}


def _pause(attempt: int) -> datetime.timedelta:
    """Until the next try: twice as long each time, and never the same for two."""
    longest = min(FIRST_PAUSE * 2.0 ** min(attempt - 1, 30), LONGEST_PAUSE)
    return datetime.timedelta(seconds=random.uniform(longest / 2, longest))


def _read_kinds(words: Iterable[str]) -> tuple[EventKind, ...]:
    words = list(words)
    try:
        return tuple(sorted(set(map(EventKind, words))))
    except ValueError:
        raise LedgerError(f"kinds must be among {', '.join(EventKind)}, got {', '.join(words)}") from None


def _require_url(url: str) -> str:
    """Refuse what is no address to tell events to; its host."""
    try:
        parts = urllib.parse.urlsplit(url)
        _ = parts.port
    except ValueError:
        raise LedgerError("url must be https://HOST/PATH") from None
    is_plain = url.isascii() and url.isprintable() and " " not in url and len(url) <= LONGEST_URL
    if parts.scheme not in ("http", "https") or not parts.hostname or not is_plain:
        raise LedgerError("url must be https://HOST/PATH")
    if "@" in parts.netloc:
        raise LedgerError("url must hold no name and no password; events are signed instead")
    if parts.scheme == "http" and not _is_loopback(parts.hostname):
        raise LedgerError("url must be https, but for an address of this machine itself")
    return parts.hostname


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _send(parcel: Parcel, secret: str, desk: Desk) -> str | None:
    """Post an event; None where it was taken, or else why not."""
    timestamp, body = int(desk.clock().timestamp()), parcel.event.body
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"unbayes/{__version__}",
        "Connection": "close",
        webhook.EVENT: parcel.key,
        webhook.TIMESTAMP: str(timestamp),
        webhook.SIGNATURE: webhook.signature(secret, timestamp, body),
    }
    parts = urllib.parse.urlsplit(parcel.url)
    path = urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, ""))
    try:
        with _connected(parts) as connection:
            connection.request("POST", path, body, headers)
            status = connection.getresponse().status
    except TimeoutError:
        return "it did not answer in time"
    except OSError as error:
        return f"it cannot be reached: {reason(error)}"
    except (http.client.HTTPException, ValueError):
        return "its answer is not HTTP"
    # A redirect is not followed: what is signed goes to the address that was given, and nowhere else.
    return None if 200 <= status < 300 else f"it answered {status}"


@contextlib.contextmanager
def _connected(parts: urllib.parse.SplitResult) -> Iterator[http.client.HTTPConnection]:
    """A connection that is cut when the whole time is over, however slowly an answer drips in."""
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=STEP_SECONDS)
    is_late = threading.Event()

    def cut() -> None:
        is_late.set()
        if connection.sock is not None:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(WHOLE_SECONDS, cut)
    timer.daemon = True
    timer.start()
    try:
        yield connection
    except (OSError, http.client.HTTPException, ValueError) as error:
        if is_late.is_set():
            raise TimeoutError from error
        raise
    finally:
        timer.cancel()
        connection.close()
