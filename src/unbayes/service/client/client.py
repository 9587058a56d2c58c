"""The service from Python, with the verbs of the ledger."""

import contextlib
import datetime
import hashlib
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

from unbayes._replace import replacing
from unbayes.ledger.errors import DatabaseProblem, LedgerError
from unbayes.ledger.states import RequestState
from unbayes.service.client.answers import (
    CurrentModel,
    Model,
    NewRequest,
    Request,
    Statistics,
    Suppression,
    Version,
    read,
    read_all,
)
from unbayes.service.client.calling import Connection, NoAnswer, ServiceProblem, TooManyCalls
from unbayes.service.client.parts import Hooks, Log, Tokens

if TYPE_CHECKING:
    import ssl

    from unbayes.ledger.records import Records

TOKEN = "UNBAYES_TOKEN"
# Requests of one page of a listing.
PAGE = 200
ENDS = (RequestState.CLOSED, RequestState.DENIED, RequestState.WITHDRAWN)
# Seconds between two looks at a request: at first, and at most.
LOOK, LONGEST_LOOK = 0.25, 30.0
# What passes by itself.
PASSING = (NoAnswer, TooManyCalls, ServiceProblem, DatabaseProblem)


class Client:
    """A service over a ledger, called by HTTP; use it as a context manager, or `close` it.

    What only reads, and submissions, which always have an idempotency key, are tried again with growing
    pauses where the service does not answer or asks to wait. Decisions are not: `NoAnswer` says that one may
    or may not have been taken. What the service refuses is an error of the ledger's, with its sentence.

    Parameters
    ----------
    url
        Its address, such as ``https://unbayes.example.org``.
    token
        What `unbayes token create` has shown; None for what the variable UNBAYES_TOKEN holds.
    timeout
        Seconds that one try may take.
    retries
        How often a call is tried again where that is safe.
    insecure
        Allow http to another machine, by which anybody on the way can read the token.
    verify
        How certificates are checked, such as ``ssl.create_default_context(cafile="ours.pem")``.

    Attributes
    ----------
    log
        The log of the ledger: events, checkpoints and proofs.
    tokens, hooks
        Who may use the service, and where events are told to.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: float = 30.0,
        retries: int = 5,
        insecure: bool = False,
        verify: "ssl.SSLContext | None" = None,
    ):
        token = token or os.environ.get(TOKEN)
        if not token:
            raise LedgerError(f"token must be given, or the variable {TOKEN} must hold one")
        self._url = url.rstrip("/")
        self._http = Connection(self._url, token.strip(), timeout, retries, insecure, verify)
        self.log, self.tokens, self.hooks = Log(self._http), Tokens(self._http), Hooks(self._http)

    def __repr__(self) -> str:
        return f"Client({self._url!r})"

    def close(self) -> None:
        """Let go of the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Models

    def models(self) -> list[Model]:
        """All models."""
        return read_all(Model, self._http.get("/v1/models"), "models")

    def model(self, name: str) -> Model:
        """A model by its name."""
        return read(Model, self._http.get(_model(name)))

    def versions(self, name: str) -> list[Version]:
        """All versions of a model, the first first."""
        return read_all(Version, self._http.get(f"{_model(name)}/versions"), "versions")

    def current(self, name: str, etag: str | None = None) -> CurrentModel:
        """The model file that production should load; without its data if `etag` is its digest already."""
        headers = {"Accept": "*/*"} | ({} if etag is None else {"If-None-Match": f'"{etag}"'})
        answer = self._http.send("GET", f"{_model(name)}/current", safe=True, headers=headers)
        digest, version = answer.headers.get("etag", "").strip('"'), answer.headers.get("unbayes-version", "")
        if not version.isdecimal():
            raise LedgerError("the answer does not say which version it is; is this the service's address?")
        return CurrentModel(int(version), digest, answer.content)

    def follow(
        self, name: str, path: str | os.PathLike[str], *, every: float = 60.0
    ) -> Iterator[CurrentModel]:
        """Keep a file fresh for ever: the current version when it is sure to be there, then each new one.

        The file is replaced in one step. While the service cannot be reached, it stays as it is. The next
        look is taken when the next version is asked for.

        Parameters
        ----------
        name
            Of the model.
        path
            The file; where it is the current version already, nothing is loaded.
        every
            Seconds between two looks.
        """
        place, known, told = Path(path), _digest(Path(path)), None
        while True:
            with contextlib.suppress(*PASSING):
                found = self.current(name, known)
                if found.data:
                    with replacing(place) as file:
                        file.write(found.data)
                    known = found.digest
                if told != found.digest:
                    told = found.digest
                    yield found
                    continue
            time.sleep(every)

    def suppressed(self, name: str) -> Suppression:
        """Whom the next training of a model has to leave out."""
        return read(Suppression, self._http.get(f"{_model(name)}/suppressed"))

    def apply(self, name: str) -> str:
        """Ask for all approved requests to be applied now, and do not wait for it; when it was asked."""
        return self._http.post(f"{_model(name)}/apply", safe=True)["wanted"]

    # Requests

    def request(
        self,
        model: str,
        *,
        subject: str,
        rows: "Records | str | os.PathLike[str] | None" = None,
        reference: str | None = None,
        due: datetime.date | None = None,
        idempotency_key: str | None = None,
        missing: str = "refuse",
    ) -> Request:
        """Submit one person's request; rows may be a table on disk, or None where the service finds them.

        Without `idempotency_key` the client makes one, by which its own repetitions are known. A program that
        may be started again should give its own.
        """
        if isinstance(rows, str | os.PathLike):
            found = self.request_table(
                model,
                rows,
                subject=subject,
                reference=reference,
                due=due,
                idempotency_key=idempotency_key,
                missing=missing,
            )
            return found[0]
        asked = NewRequest(subject, rows, reference, due, idempotency_key, missing)
        form = _form(asked)
        headers = {"Idempotency-Key": form.pop("idempotency_key")}
        return read(Request, self._http.post(f"{_model(model)}/requests", form, safe=True, headers=headers))

    def request_many(self, model: str, submissions: Sequence[NewRequest]) -> list[Request]:
        """Submit many requests in one transaction, all or none, at most a thousand."""
        document = {"requests": [_form(each) for each in submissions]}
        answer = self._http.post(f"{_model(model)}/requests/many", document, safe=True)
        return read_all(Request, answer, "requests")

    def request_table(
        self,
        model: str,
        file: str | os.PathLike[str],
        *,
        subject: str | None = None,
        subject_column: str | None = None,
        reference: str | None = None,
        due: datetime.date | None = None,
        idempotency_key: str | None = None,
        missing: str = "refuse",
    ) -> list[Request]:
        """Submit the rows of a Parquet, CSV or Arrow file: of one person, or of many, named by a column."""
        fields = {
            "subject": subject,
            "subject_column": subject_column,
            "reference": reference,
            "due": None if due is None else due.isoformat(),
            "missing": missing,
        }
        data = {name: value for name, value in fields.items() if value is not None}
        # Its name may be somebody's.
        files = {"rows": ("rows", Path(file).read_bytes(), "application/octet-stream")}
        headers = {"Idempotency-Key": idempotency_key or _new_key()}
        path = f"{_model(model)}/requests/table"
        answer = self._http.post(path, safe=True, data=data, files=files, headers=headers)
        return read_all(Request, answer, "requests")

    def requests(
        self,
        model: str | None = None,
        *,
        states: Sequence[RequestState] | None = None,
        overdue: bool = False,
        limit: int | None = None,
    ) -> Iterator[Request]:
        """Requests, the newest first, read a page at a time; at most `limit`."""
        asked = {"model": model, "state": states, "overdue": "true" if overdue else None}
        options: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
        left, after = limit, None
        while left is None or left > 0:
            page = options | {"limit": PAGE if left is None else min(PAGE, left)}
            answer = self._http.get("/v1/requests", params=page | ({} if after is None else {"after": after}))
            found = read_all(Request, answer, "requests")
            yield from found
            left, after = None if left is None else left - len(found), answer.get("next")
            if after is None:
                return

    def show(self, number: int) -> Request:
        """A request by its number."""
        return read(Request, self._http.get(_request(number)))

    def find(self, subject: str) -> list[Request]:
        """The requests of one person."""
        answer = self._http.post("/v1/requests/search", {"subject": subject}, safe=True)
        return read_all(Request, answer, "requests")

    def approve(self, number: int, *, missing: str | None = None) -> Request:
        """Let a request be carried out, or release it; `missing` "skip" leaves unknown records out."""
        return self._decide(number, "approve", {} if missing is None else {"missing": missing})

    def deny(self, number: int, ground: str) -> Request:
        """Refuse a request, on a ground."""
        return self._decide(number, "deny", {"ground": ground})

    def withdraw(self, number: int) -> Request:
        """Take a request back."""
        return self._decide(number, "withdraw", None)

    def extend(self, number: int, *, days: int, reason: str) -> Request:
        """Put the due date off, once, with a reason."""
        return self._decide(number, "extend", {"days": days, "reason": reason})

    def wait(self, number: int, *, timeout: float | None = None) -> Request:
        """A request once it has come to its end: closed, denied or withdrawn; `TimeoutError` before."""
        end = None if timeout is None else time.monotonic() + timeout
        pause = LOOK
        while (request := self.show(number)).state not in ENDS:
            if end is not None and time.monotonic() + pause > end:
                raise TimeoutError(f"request {number} is still {request.state} after {timeout:g} s")
            time.sleep(pause)
            pause = min(LONGEST_LOOK, 1.5 * pause)
        return request

    def report(self, number: int) -> bytes:
        """The signed report on a request, which `unbayes.ledger.verify_report` checks."""
        return self._http.send("GET", f"{_request(number)}/report", safe=True).content

    def statistics(
        self, since: datetime.date | None = None, until: datetime.date | None = None
    ) -> Statistics:
        """How many requests were received from one day to another, and how long their answers took."""
        days = {"since": since, "until": until}
        params = {name: day.isoformat() for name, day in days.items() if day is not None}
        return read(Statistics, self._http.get("/v1/statistics", params=params))

    def _decide(self, number: int, verb: str, document: Any) -> Request:
        """Never repeated blindly: somebody else may have decided otherwise in the meantime."""
        return read(Request, self._http.post(f"{_request(number)}/{verb}", document, safe=False))


def _model(name: str) -> str:
    return f"/v1/models/{quote(name, safe='')}"


def _request(number: int) -> str:
    return f"/v1/requests/{int(number)}"


def _new_key() -> str:
    return f"made-by-client-{uuid.uuid4().hex}"


def _form(asked: NewRequest) -> dict[str, Any]:
    """A request as the service reads it, with an idempotency key."""
    form = {
        "subject": asked.subject,
        "reference": asked.reference,
        "due": None if asked.due is None else asked.due.isoformat(),
        "missing": asked.missing,
        "idempotency_key": asked.idempotency_key or _new_key(),
    }
    if asked.records is not None:
        numbers = asked.records.numbers
        form |= {
            "ids": list(asked.records.ids),
            "inputs": numbers[:, :-1].tolist(),
            "targets": numbers[:, -1].tolist(),
        }
    return form


def _digest(path: Path) -> str | None:
    """SHA-256 of a file; None where there is none."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None
