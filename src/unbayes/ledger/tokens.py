"""Who may use the service, and for what: bearer tokens, of which the database keeps keyed digests only."""

import dataclasses
import datetime
import enum
import hmac
import secrets
from collections.abc import Iterable
from typing import Any, Self

import sqlalchemy as sa

from unbayes.ledger import schema
from unbayes.ledger.clock import to_text
from unbayes.ledger.desk import Desk
from unbayes.ledger.errors import LedgerError, NotFound
from unbayes.ledger.events import EventKind
from unbayes.ledger.log import Happening
from unbayes.ledger.store import Store

# By which a token is known when it lies around, in a file or a log.
PREFIX = "unbayes_"
SECRET_BYTES = 32
LONGEST_NAME = 90
# How long a browser may show a session in the place of a token.
SESSION_HOURS = 12


class Scope(enum.StrEnum):
    """What a caller may do. None includes another."""

    # Submit requests, and see and withdraw one's own.
    SUBMIT = "submit"
    # See all requests, and decide on them.
    APPROVE = "approve"
    # See models and requests, apply what waits, and find whom training has to leave out.
    OPERATE = "operate"
    # See everything, change nothing.
    AUDIT = "audit"
    # Make and revoke tokens and webhooks.
    ADMIN = "admin"
    # Load the current version of a model.
    PREDICT = "predict"


@dataclasses.dataclass(frozen=True)
class Token:
    """A bearer token, without what the bearer shows.

    Attributes
    ----------
    id
        Its number.
    name
        Whose it is; requests that it submits have it as their client.
    scopes
        What it is good for.
    created, expires, revoked
        Times; None where it does not expire, or is not revoked.
    """

    id: int
    name: str
    scopes: frozenset[Scope]
    created: str
    expires: str | None
    revoked: str | None

    @classmethod
    def of(cls, row: Any) -> Self:
        """From a row of the table."""
        scopes = read_scopes(row.scopes.split())
        return cls(row.id, row.name, scopes, row.created, row.expires, row.revoked)

    def is_valid(self, now: str) -> bool:
        """Whether it is neither revoked nor expired."""
        return self.revoked is None and (self.expires is None or now < self.expires)


def read_scopes(words: Iterable[str]) -> frozenset[Scope]:
    """Scopes by their names."""
    words = list(words)
    if not words:
        raise LedgerError(f"scopes must name one or more of {', '.join(Scope)}, got none")
    try:
        return frozenset(map(Scope, words))
    except ValueError:
        raise LedgerError(f"scopes must be among {', '.join(Scope)}, got {', '.join(words)}") from None


class Tokens:
    """The tokens of a ledger."""

    def __init__(self, desk: Desk):
        self._desk = desk

    def create(self, name: str, scopes: Iterable[str], *, days: int | None = None) -> tuple[Token, str]:
        """A new token, and what its bearer shows, which is kept nowhere."""
        if not name or len(name) > LONGEST_NAME or not name.isprintable():
            raise LedgerError(f"name must have 1 to {LONGEST_NAME} printable characters, got {name!r}")
        if days is not None and days < 1:
            raise LedgerError(f"days must be at least 1, got {days}")
        chosen = sorted(read_scopes(scopes))
        shown = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
        expires = None if days is None else to_text(self._desk.clock() + datetime.timedelta(days=days))
        with self._desk.writing() as store:
            row = {
                "name": name,
                "digest": self._digest(shown),
                "scopes": " ".join(chosen),
                "created": store.now,
                "expires": expires,
            }
            number = store.run(schema.token.insert().returning(schema.token.c.id), row).scalar_one()
            details = {"token": number, "name": name, "scopes": chosen}
            store.note(Happening(EventKind.TOKEN_CREATED, details=details))
            return _token(store, schema.token.c.id == number), shown

    def find(self, shown: str) -> Token | None:
        """The valid token that somebody shows; None where it is none."""
        if not shown.startswith(PREFIX):
            return None
        return self._valid(schema.token.c.digest == self._digest(shown))

    def valid(self, number: int) -> Token | None:
        """A token by its number; None where it is not valid, or not there."""
        return self._valid(schema.token.c.id == number)

    def session(self, token: Token) -> str:
        """What a browser shows in the place of a token, for some hours: no longer good than the token is."""
        until = to_text(self._desk.clock() + datetime.timedelta(hours=SESSION_HOURS))
        body = f"{token.id}.{until[:19].replace('-', '').replace(':', '')}.{secrets.token_urlsafe(16)}"
        return f"{body}.{self._desk.keys.digest('session', body)}"

    def of_session(self, text: str) -> Token | None:
        """The token of a session; None where the session is over or none, or its token is not valid."""
        body, _, shown = text.rpartition(".")
        if not hmac.compare_digest(self._desk.keys.digest("session", body).encode(), shown.encode()):
            return None
        number, until, _ = body.split(".")
        now = to_text(self._desk.clock())[:19].replace("-", "").replace(":", "")
        return self.valid(int(number)) if now < until else None

    def form_key(self, session: str) -> str:
        """What the forms of a session's pages have in them, and nobody else can tell."""
        return self._desk.keys.digest("forms of a session", session)

    def all(self) -> list[Token]:
        """All of them, the first first."""
        with self._desk.reading() as store:
            return [Token.of(row) for row in store.run(sa.select(schema.token).order_by(schema.token.c.id))]

    def revoke(self, number: int) -> Token:
        """Accept a token no longer; once it is revoked nothing changes."""
        mine = schema.token.c.id == number
        with self._desk.writing() as store:
            if (token := _token(store, mine)) is None:
                raise NotFound(f"there is no token {number}")
            if token.revoked is None:
                store.run(schema.token.update().where(mine).values(revoked=store.now))
                store.note(Happening(EventKind.TOKEN_REVOKED, details={"token": number, "name": token.name}))
            return dataclasses.replace(token, revoked=token.revoked or store.now)

    def _valid(self, condition: Any) -> Token | None:
        with self._desk.reading() as store:
            token = _token(store, condition)
        return token if token is not None and token.is_valid(to_text(self._desk.clock())) else None

    def _digest(self, shown: str) -> str:
        return self._desk.keys.digest("token", shown)


def _token(store: Store, condition: Any) -> Any:
    row = store.run(sa.select(schema.token).where(condition)).one_or_none()
    return None if row is None else Token.of(row)
