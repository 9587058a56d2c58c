"""Calls over HTTP: what is safe is tried again, and a refusal is an error of the ledger's."""

import email.utils
import ipaddress
import random
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from unbayes.ledger import errors
from unbayes.ledger.errors import Conflict, DatabaseProblem, Forbidden, LedgerError, NotFound

if TYPE_CHECKING:
    import ssl

    import httpx

# Seconds before the next try: up to the first, doubled each time, up to the second.
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0
# The longest that the service may ask a caller to wait who is not told of it.
LONGEST_WAIT = 60.0
# Answers after which a call that may be repeated is; after 429 any, since nothing was done.
PASSING = frozenset({HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT})


class NoAnswer(LedgerError):
    """The service did not answer; whether it did what was asked for is not known."""


class TooManyCalls(LedgerError):
    """The caller calls too often; nothing was done."""


class ServiceProblem(LedgerError):
    """Something went wrong in the service."""


ERRORS: dict[int, type[LedgerError]] = {
    HTTPStatus.UNAUTHORIZED: Forbidden,
    HTTPStatus.FORBIDDEN: Forbidden,
    HTTPStatus.NOT_FOUND: NotFound,
    HTTPStatus.CONFLICT: Conflict,
    HTTPStatus.TOO_MANY_REQUESTS: TooManyCalls,
    HTTPStatus.SERVICE_UNAVAILABLE: DatabaseProblem,
}
# As the document of a refusal by the ledger names them.
KINDS = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, LedgerError)
}


class Connection:
    """Calls of one service with one token.

    Parameters
    ----------
    url
        Its address.
    token
        What shows who calls.
    timeout
        Seconds that one try may take.
    retries
        How often a call is tried again, where that is safe.
    insecure
        Whether a token may be sent by http to another machine.
    verify
        How certificates are checked; None for the usual way.
    """

    def __init__(
        self,
        url: str,
        token: str,
        timeout: float,
        retries: int,
        insecure: bool,
        verify: "ssl.SSLContext | None",
        sleep: Callable[[float], object] = time.sleep,
    ):
        if retries < 0:
            raise LedgerError(f"retries must be at least 0, got {retries}")
        _require_safe(url, insecure)
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        self._retries, self._sleep = retries, sleep
        self._http = _httpx().Client(
            base_url=url, headers=headers, timeout=timeout, verify=True if verify is None else verify
        )

    def close(self) -> None:
        """Let go of the connections."""
        self._http.close()

    def get(self, path: str, **options: Any) -> Any:
        """What is found there, which is always safe to repeat."""
        return _document(self.send("GET", path, safe=True, **options))

    def post(self, path: str, document: Any = None, *, safe: bool, **options: Any) -> Any:
        """What comes of a document that is sent."""
        if document is not None:
            options["json"] = document
        return _document(self.send("POST", path, safe=safe, **options))

    def send(self, method: str, path: str, *, safe: bool, **options: Any) -> "httpx.Response":
        """The answer to a call, which is repeated where that is safe, or where it was not carried out."""
        httpx = _httpx()
        for left in range(self._retries, -1, -1):
            pause = _pause(self._retries - left)
            try:
                answer = self._http.request(method, path, **options)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                # Nothing was sent.
                if not left:
                    raise NoAnswer(f"the service at {self._place} cannot be reached") from error
            except httpx.TransportError as error:
                if not left or not safe:
                    raise NoAnswer(_unknown(self._place, safe)) from error
            else:
                wait = _asked_to_wait(answer, safe)
                if wait is None or not left or wait > LONGEST_WAIT:
                    return _require_fine(answer)
                pause = max(pause, wait)
            self._sleep(pause)
        raise AssertionError

    @property
    def _place(self) -> str:
        return str(self._http.base_url)


def _unknown(place: str, safe: bool) -> str:
    known = "" if safe else "; whether it has done what was asked for is not known: look before asking again"
    return f"the service at {place} did not answer{known}"


def _pause(tries: int) -> float:
    """Seconds, at random, so that many who were refused together do not come back together."""
    return random.uniform(0.5, 1) * min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(tries, 30))


def _asked_to_wait(answer: "httpx.Response", safe: bool) -> float | None:
    """Seconds after which to try again; None where that is no use, or not safe."""
    if answer.status_code != HTTPStatus.TOO_MANY_REQUESTS and not (safe and answer.status_code in PASSING):
        return None
    said = answer.headers.get("retry-after", "0").strip()
    if said.isdecimal():
        return float(said[:9])
    try:
        moment = email.utils.parsedate_to_datetime(said)
    except ValueError:
        return 0.0
    return max(0.0, moment.timestamp() - time.time())


def _document(answer: "httpx.Response") -> Any:
    try:
        return answer.json()
    except ValueError:
        raise LedgerError("the answer is not JSON; is this the address of the service?") from None


def _require_fine(answer: "httpx.Response") -> "httpx.Response":
    if answer.is_success or answer.status_code == HTTPStatus.NOT_MODIFIED:
        return answer
    if answer.is_redirect:
        raise LedgerError("the service sends callers elsewhere; give the address that it has")
    is_problem = answer.headers.get("content-type", "").startswith("application/problem+json")
    try:
        document = answer.json() if is_problem else {}
        sentence, kind = str(document["detail"]), KINDS.get(str(document.get("kind")))
    except (ValueError, KeyError, AttributeError, TypeError):
        sentence, kind = f"the service answered {answer.status_code} {answer.reason_phrase}", None
    if kind is None:
        kind = ERRORS.get(answer.status_code, ServiceProblem if answer.is_server_error else LedgerError)
    raise kind(sentence)


def _require_safe(url: str, insecure: bool) -> None:
    """Refuse an address at which others on the way could read the token."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise LedgerError("url must be an address such as https://unbayes.example.org")
    if parts.username is not None or parts.query or parts.fragment:
        raise LedgerError("url must be an address alone, without a user, a query or a fragment")
    if parts.scheme == "http" and not insecure and not _is_this_machine(parts.hostname):
        raise LedgerError(
            f"url must begin with https://: anybody on the way to {parts.hostname} could read the token; "
            "insecure=True allows it all the same"
        )


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _httpx() -> Any:
    try:
        import httpx
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("the client needs pip install 'unbayes[client]'", name="httpx") from error
    return httpx
