"""Parts of a client that have names of their own, as the ledger's have: its log, tokens and webhooks."""

from collections.abc import Sequence

from unbayes.service.client.answers import (
    Consistency,
    Event,
    Hook,
    Inclusion,
    LogState,
    NewHook,
    NewToken,
    SignedCheckpoint,
    Token,
    read,
    read_all,
)
from unbayes.service.client.calling import Connection


class Log:
    """The log of the ledger behind a service."""

    def __init__(self, http: Connection):
        self._http = http

    def state(self) -> LogState:
        """How it stands now."""
        return read(LogState, self._http.get("/v1/log"))

    def events(self, start: int = 0, limit: int = 100) -> list[Event]:
        """At most so many events, from a place in the log on."""
        answer = self._http.get("/v1/log/events", params={"start": start, "limit": limit})
        return read_all(Event, answer, "events")

    def of_request(self, number: int) -> list[Event]:
        """The events of a request, the first first."""
        return read_all(Event, self._http.get(f"/v1/requests/{int(number)}/events"), "events")

    def checkpoints(self) -> list[SignedCheckpoint]:
        """All that were signed, the first first."""
        return read_all(SignedCheckpoint, self._http.get("/v1/log/checkpoints"), "checkpoints")

    def sign(self) -> SignedCheckpoint:
        """A signed statement of the log as it is now, kept for later comparison."""
        return read(SignedCheckpoint, self._http.post("/v1/log/checkpoints", safe=True))

    def inclusion(self, index: int, size: int | None = None) -> Inclusion:
        """Proof that the log holds the entry at an index; of all of it, or of an earlier size."""
        params = {"index": index} | ({} if size is None else {"size": size})
        return read(Inclusion, self._http.get("/v1/log/proof", params=params))

    def consistency(self, first: int, second: int | None = None) -> Consistency:
        """Proof that the log of one size begins the one of a later size, or all of it."""
        params = {"first": first} | ({} if second is None else {"second": second})
        return read(Consistency, self._http.get("/v1/log/consistency", params=params))

    def key(self) -> bytes:
        """The key that checks reports and checkpoints, as PEM: compare it with the one that was published."""
        return self._http.send("GET", "/v1/log/key", safe=True, headers={"Accept": "*/*"}).content


class Tokens:
    """Who may use a service, and for what."""

    def __init__(self, http: Connection):
        self._http = http

    def create(self, name: str, scopes: Sequence[str], *, days: int | None = None) -> NewToken:
        """A new token; of what its bearer shows, `token`, no copy is kept."""
        form = {"name": name, "scopes": [str(scope) for scope in scopes], "days": days}
        return read(NewToken, self._http.post("/v1/tokens", form, safe=False))

    def all(self) -> list[Token]:
        """All of them, the first first."""
        return read_all(Token, self._http.get("/v1/tokens"), "tokens")

    def revoke(self, number: int) -> Token:
        """Accept a token no longer; once it is revoked nothing changes."""
        return read(Token, self._http.send("DELETE", f"/v1/tokens/{int(number)}", safe=True).json())


class Hooks:
    """Where a service tells events to."""

    def __init__(self, http: Connection):
        self._http = http

    def add(self, url: str, kinds: Sequence[str] | None = None) -> NewHook:
        """Tell events to an address; all kinds unless some are named."""
        form = {"url": url, "kinds": None if kinds is None else list(kinds)}
        return read(NewHook, self._http.post("/v1/hooks", form, safe=False))

    def all(self) -> list[Hook]:
        """All of them, the first first."""
        return read_all(Hook, self._http.get("/v1/hooks"), "hooks")

    def remove(self, number: int) -> None:
        """Tell nothing more to an address."""
        self._http.send("DELETE", f"/v1/hooks/{int(number)}", safe=False)
