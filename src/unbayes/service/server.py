"""One command that serves a ledger: the API, the page, and a worker beside it."""

import contextlib
import dataclasses
import ipaddress
import logging
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from unbayes.data.refusal import Refused, reason
from unbayes.ledger import Ledger, NoLedger
from unbayes.ledger.tokens import Scope
from unbayes.service.app import create_app
from unbayes.service.logs import ServerLog
from unbayes.service.protocol import PatientProtocol
from unbayes.service.settings import ServiceSettings
from unbayes.service.supervisor import Supervisor

LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")
# Connections at once; more are told to come again.
MOST_CONNECTIONS = 500
# Seconds that a connection stays open between two calls, and that calls have to end when the service stops.
IDLE_SECONDS, LAST_SECONDS = 15, 10
# Days that the operator has to make tokens of their own with the first one.
FIRST_DAYS = 7
FIRST_NAME, FIRST_SCOPES = "operator", (Scope.ADMIN, Scope.APPROVE, Scope.AUDIT, Scope.OPERATE)
# Seconds between two rounds of the worker.
ROUND = 1


@dataclasses.dataclass(frozen=True)
class Listening:
    """Where the service listens.

    Attributes
    ----------
    host, port
        The address, and the port; 0 for any that is free.
    is_exposed
        Whether others than this machine may reach it.
    proxy
        Address of a proxy whose word on where a call comes from is taken; None where there is none.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    is_exposed: bool = False
    proxy: str | None = None

    def __post_init__(self):
        if not self.is_exposed and not is_local(self.host):
            raise Refused(f"--expose must be given for others to reach the service at {self.host}")


def serve(
    folder: Path,
    settings: ServiceSettings | None = None,
    listening: Listening | None = None,
    *,
    db: str | None = None,
    has_worker: bool = True,
    log: Any = None,
    say: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve the ledger in a folder until somebody stops it; make the ledger where there is none.

    Parameters
    ----------
    folder
        The ledger's.
    settings, listening
        What the operator chose.
    db
        The database of a new ledger.
    has_worker
        Whether a process that applies what waits runs beside the server.
    log
        Where calls are written down.
    say
        Tells the operator how to reach the service.
    """
    settings, listening = settings or ServiceSettings(), listening or Listening()
    if not settings.hosts and not listening.is_exposed:
        settings = dataclasses.replace(settings, hosts=LOCAL_NAMES)
    with _stopping(), _bound(listening) as bound, _ledger(folder, db, say) as ledger:
        _require_sources(settings)
        server = uvicorn.Server(server_config(create_app(ledger, settings, log=log), listening))
        port = bound.getsockname()[1]
        say(
            f"the service listens at http{'s' if settings.is_https else ''}://{_shown(listening.host)}:{port}"
        )
        if listening.is_exposed and not settings.is_https:
            say(
                "others can read what is sent: put it behind a proxy that speaks HTTPS, and say so by --https"
            )
        _say_first_token(ledger, say)
        with _logging(log), _worker(folder, has_worker):
            server.run([bound])


def is_local(host: str) -> bool:
    """Whether nobody but this machine reaches an address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def server_config(app: Any, listening: Listening) -> uvicorn.Config:
    """How the server treats its connections."""
    return uvicorn.Config(
        app,
        http=PatientProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=listening.proxy is not None,
        forwarded_allow_ips=listening.proxy,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=LAST_SECONDS,
    )


@contextlib.contextmanager
def _ledger(folder: Path, db: str | None, say: Callable[[str], None]) -> Iterator[Ledger]:
    try:
        ledger = Ledger.open(folder)
    except NoLedger:
        ledger = Ledger.create(folder, db=db)
        say(f"a new ledger in {folder}; unbayes register adds a model to it")
    with ledger:
        yield ledger


@contextlib.contextmanager
def _bound(listening: Listening) -> Iterator[socket.socket]:
    host = listening.host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        bound = socket.create_server((host, listening.port), family=family, backlog=1024)
    except (OSError, OverflowError) as error:
        why = reason(error) if isinstance(error, OSError) else "there is no such port"
        raise Refused(f"the service cannot listen at {host}, port {listening.port}: {why}") from error
    with bound:
        # Connections have it from here: an answer's second packet would wait for what the first one is
        # acknowledged by, some forty milliseconds later.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield bound


@contextlib.contextmanager
def _worker(folder: Path, has_worker: bool) -> Iterator[None]:
    if not has_worker:
        yield
        return
    command = [sys.executable, "-m", "unbayes.cli", "worker", "--ledger", str(folder)]
    with Supervisor([*command, "--every", str(ROUND), "--json"]):
        yield


@contextlib.contextmanager
def _logging(log: Any) -> Iterator[None]:
    """Let the server's own words, and the supervisor's, go to the log, too."""
    if log is None:
        yield
        return
    handler, loggers = ServerLog(log), [logging.getLogger(name) for name in ("uvicorn", "unbayes")]
    before = [(each.level, each.propagate) for each in loggers]
    for each in loggers:
        each.addHandler(handler)
        each.setLevel(logging.INFO)
        each.propagate = False
    try:
        yield
    finally:
        for each, (level, propagate) in zip(loggers, before, strict=True):
            each.removeHandler(handler)
            each.setLevel(level)
            each.propagate = propagate


@contextlib.contextmanager
def _stopping() -> Iterator[None]:
    """Leave in order on SIGTERM, which the server hands on after it has ended."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(0)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _require_sources(settings: ServiceSettings) -> None:
    for name, source in settings.sources.items():
        try:
            source.require()
        except Refused as error:
            raise Refused(f"the data source of {name} cannot be used: {error}") from error


def _say_first_token(ledger: Ledger, say: Callable[[str], None]) -> None:
    """The first token; the only one that is made without somebody asking."""
    if ledger.tokens.all():
        return
    _, shown = ledger.tokens.create(FIRST_NAME, FIRST_SCOPES, days=FIRST_DAYS)
    say(f"there are no tokens yet; this one is good for {FIRST_DAYS} days, and is not shown again:")
    say(f"  {shown}")
    say("make others by unbayes token create, then revoke it")


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
