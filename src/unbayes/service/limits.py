"""What callers cannot do: send too much, too slowly, too often, or call by another name."""

import asyncio
import collections
import hashlib
import ipaddress
import math
import threading
import time
from collections.abc import Callable, Hashable, Iterable
from http import HTTPStatus

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from unbayes.service.problems import Problem, problem
from unbayes.service.settings import ServiceSettings

# Callers that are remembered; those who called last.
REMEMBERED = 10_000
# Digits that a length is read of.
DIGITS = 18
# Below these, a body may be as long as a table.
TABLES = "/table"
# Here, too, so that the page can say what is wrong with a file.
FILES = "/verify"
# Whoever logs in has shown nothing yet, and sends a token alone.
LOGIN, LOGIN_LIMIT = "/login", 16 * 1024
PAGES = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
OTHERS = "default-src 'none'; frame-ancestors 'none'"
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Buckets:
    """Token buckets of the callers who were seen last: `rate` calls a second, `burst` at once."""

    def __init__(self, rate: float, burst: float, *, most: int = REMEMBERED):
        self.rate, self.burst, self.most = rate, burst, most
        self._left: collections.OrderedDict[Hashable, tuple[float, float]] = collections.OrderedDict()

    def __len__(self) -> int:
        return len(self._left)

    def take(self, caller: Hashable, now: float) -> float:
        """Take one token; the seconds until there is one where there is none, otherwise 0."""
        left, then = self._left.pop(caller, (self.burst, now))
        left = min(self.burst, left + (now - then) * self.rate)
        is_fine = left >= 1
        self._left[caller] = (left - is_fine, now)
        if len(self._left) > self.most:
            self._left.popitem(last=False)
        return 0.0 if is_fine else (1 - left) / self.rate


class RateLimit:
    """Refuses callers who call too often.

    A caller counts under their address until they have shown something that is valid, and under their name
    from then on.
    """

    def __init__(self, app: ASGIApp, settings: ServiceSettings, clock: Callable[[], float] = time.monotonic):
        self.app, self._clock = app, clock
        self._buckets = Buckets(settings.rate, settings.burst)
        self._names: collections.OrderedDict[bytes, str] = collections.OrderedDict()
        self._lock = threading.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count a call."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        scope.setdefault("state", {})["rate_limit"] = self
        wait = self._buckets.take(self._caller(scope), self._clock())
        if wait:
            sentence = "this caller calls too often; try again after the seconds that Retry-After says"
            answer = problem(
                HTTPStatus.TOO_MANY_REQUESTS, sentence, {"Retry-After": str(max(1, math.ceil(wait)))}
            )
            return await answer(scope, receive, send)
        return await self.app(scope, receive, send)

    def remember(self, scope: Scope, name: str | None) -> None:
        """Whose credentials these are; None where they are nobody's, or nobody's any more."""
        shown = _credentials(scope)
        with self._lock:
            self._names.pop(shown, None)
            if name is not None:
                self._names[shown] = name
            if len(self._names) > REMEMBERED:
                self._names.popitem(last=False)

    def _caller(self, scope: Scope) -> Hashable:
        with self._lock:
            name = self._names.get(_credentials(scope))
        return ("name", name) if name is not None else ("address", _network(scope))


class BodyLimit:
    """Refuses bodies that are too long, alone or together, or that do not arrive in time."""

    def __init__(self, app: ASGIApp, settings: ServiceSettings):
        self.app, self._settings = app, settings
        # Bytes of calls that are not answered yet.
        self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count the bytes of a body."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        body = _Body(scope, receive, self._limit(scope["path"]), self._settings.body_seconds, self._hold)
        if body.said > body.limit:
            return await body.too_long()(scope, receive, body.closing(send))
        try:
            return await self.app(scope, body.receive, body.closing(send))
        finally:
            self._held -= body.got

    def _hold(self, number: int) -> None:
        """Count bytes that have come."""
        self._held += number
        if self._held > self._settings.bodies_limit:
            sentence = "too much is being sent by all callers together; try again"
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, sentence, {"Retry-After": "5"})

    def _limit(self, path: str) -> int:
        if path == LOGIN:
            return min(LOGIN_LIMIT, self._settings.json_limit)
        is_long = path.endswith(TABLES) or path == FILES
        return self._settings.body_limit if is_long else self._settings.json_limit


class _Body:
    """The body of one call."""

    def __init__(
        self, scope: Scope, receive: Receive, limit: int, seconds: float, hold: Callable[[int], None]
    ):
        self._receive, self.limit, self._seconds, self._hold = receive, limit, seconds, hold
        headers = Headers(scope=scope)
        length = headers.get("content-length", "0")
        self.said = int(length) if length.isdecimal() and len(length) <= DIGITS else limit + 1
        self._is_whole = not self.said and "transfer-encoding" not in headers
        self.got, self._end = 0, None

    async def receive(self) -> Message:
        """The next part."""
        if self._is_whole:
            return await self._receive()
        loop = asyncio.get_running_loop()
        self._end = self._end or loop.time() + self._seconds
        try:
            async with asyncio.timeout_at(self._end):
                message = await self._receive()
        except TimeoutError:
            sentence = f"the body must arrive within {self._seconds:g} seconds"
            raise Problem(HTTPStatus.REQUEST_TIMEOUT, sentence) from None
        new = len(message.get("body", b""))
        self.got += new
        self._hold(new)
        if self.got > self.limit:
            raise Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, self._sentence)
        self._is_whole = not message.get("more_body", False)
        return message

    def too_long(self) -> ASGIApp:
        """The refusal of a body that says how long it is."""
        return problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, self._sentence)

    def closing(self, send: Send) -> Send:
        """Hang up after an answer that did not wait for the whole body."""

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start" and not self._is_whole:
                MutableHeaders(scope=message)["Connection"] = "close"
            await send(message)

        return sending

    @property
    def _sentence(self) -> str:
        return f"the body must have at most {self.limit} bytes"


class SecureHeaders:
    """Tells browsers what they must not do with an answer; what a route says itself stays."""

    def __init__(self, app: ASGIApp, settings: ServiceSettings):
        self.app = app
        self._headers = HEADERS | (
            {"Strict-Transport-Security": "max-age=31536000"} if settings.is_https else {}
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Add headers to an answer."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
                is_page = headers.get("content-type", "").startswith("text/html")
                headers.setdefault("Content-Security-Policy", PAGES if is_page else OTHERS)
                if "etag" not in headers:
                    headers.setdefault("Cache-Control", "no-store")
            await send(message)

        return await self.app(scope, receive, sending)


class Hosts:
    """Refuses calls by a name that is none of the service's: a page elsewhere may have made it up."""

    def __init__(self, app: ASGIApp, names: Iterable[str]):
        self.app, self._names = app, frozenset(name.lower() for name in names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Look at the name."""
        if scope["type"] == "http" and self._names:
            host = Headers(scope=scope).get("host", "").lower()
            if _without_port(host) not in self._names:
                sentence = "the service is not called by this name; the operator says which names it has"
                return await problem(HTTPStatus.BAD_REQUEST, sentence)(scope, receive, send)
        return await self.app(scope, receive, send)


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]


def _credentials(scope: Scope) -> bytes:
    """A digest of what a caller shows."""
    shown = hashlib.sha256()
    for name, value in scope["headers"]:
        if name in (b"authorization", b"cookie"):
            shown.update(name + b"\0" + value + b"\0")
    return shown.digest()


def _network(scope: Scope) -> str:
    """The address of a caller; of IPv6, the network, since one caller has all of its addresses."""
    address = (scope.get("client") or ("", 0))[0]
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    return address if parsed.version == 4 else str(ipaddress.ip_network((address, 64), strict=False))
