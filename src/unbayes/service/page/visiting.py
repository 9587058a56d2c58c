"""Who looks at a page, by their cookie, and whether a form is really theirs."""

import dataclasses
import hmac
import sys
import urllib.parse
from collections.abc import Awaitable, Callable, Coroutine
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import FormParser, MultiPartException, MultiPartParser
from starlette.responses import Response

from unbayes.data.refusal import Refused
from unbayes.ledger import Ledger
from unbayes.ledger.errors import LedgerError
from unbayes.ledger.tokens import Scope
from unbayes.service.authority import Caller, ledger_of, require
from unbayes.service.page.rendering import go, show
from unbayes.service.problems import Problem, status_of

FORM_KEY, FORM_HEADER = "form_key", "x-form-key"
MOST_FIELDS = 30
# Characters that a field may have; rows that are typed in may be longer.
LONGEST, MOST_CHARACTERS = 2000, {"typed": 1_000_000}
# What a caller who sees requests of others has.
SEES_ALL = (Scope.APPROVE, Scope.OPERATE, Scope.AUDIT)
SEES_REQUESTS = (*SEES_ALL, Scope.SUBMIT)
TheLedger = Annotated[Ledger, Depends(ledger_of)]


@dataclasses.dataclass(frozen=True)
class Visitor:
    """Somebody with a session.

    Attributes
    ----------
    caller
        Who, and what they may do.
    form_key
        What every form of theirs has in it.
    """

    caller: Caller
    form_key: str

    def may(self, *names: str) -> bool:
        """Whether one of these is among their scopes."""
        return self.caller.may(*map(Scope, names))

    @property
    def client(self) -> str | None:
        """Whose requests they see; None where they see all."""
        return None if self.caller.may(*SEES_ALL) else self.caller.name


@dataclasses.dataclass(frozen=True)
class Form:
    """What a visitor sends."""

    visitor: Visitor
    values: FormData

    def text(self, name: str) -> str:
        """A field, empty where it is missing."""
        value = self.values.get(name, "")
        if not isinstance(value, str):
            return ""
        if "\0" in value or len(value) > MOST_CHARACTERS.get(name, LONGEST):
            raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, f"{name} is too long, or is no text")
        return value.strip()

    def file(self, name: str) -> UploadFile | None:
        """A file that was chosen; None where none was."""
        value = self.values.get(name)
        return value if isinstance(value, UploadFile) and value.filename else None


class NotLoggedIn(Exception):
    """There is no session, or it is over."""


class InMemoryParser(MultiPartParser):
    """Rows of people are never written to a temporary file; the limit on bodies bounds what is held."""

    spool_max_size = sys.maxsize


class PageRoute(APIRoute):
    """A route whose refusals are pages."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, with refusals turned into pages."""
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            request.state.as_page = refusal
            try:
                return await handle(request)
            except NotLoggedIn:
                return to_login(request)
            except Problem as error:
                return refusal(request, error.status, str(error))
            except (LedgerError, Refused) as error:
                return refusal(request, status_of(error), str(error))
            except RequestValidationError as error:
                faults = "; ".join(str(each["msg"]) for each in error.errors()[:5])
                return refusal(request, HTTPStatus.NOT_FOUND, f"there is no such page: {faults}")
            except HTTPException as error:
                return refusal(request, error.status_code, str(error.detail))

        return answer


def refusal(request: Request, status: int, sentence: str) -> Response:
    """A page that says what is refused, and why."""
    return show(request, "refusal.html", status, status_code=int(status), sentence=sentence)


def cookie_of(request: Request) -> str:
    """What the session's cookie is called; browsers take the prefix to be by HTTPS from this host only."""
    return "__Host-unbayes" if request.app.state.settings.is_https else "unbayes_session"


def visitor_of(request: Request) -> Visitor:
    """The visitor; `NotLoggedIn` where there is no session that is valid."""
    session, tokens = request.cookies.get(cookie_of(request), ""), request.app.state.ledger.tokens
    token = tokens.of_session(session) if session else None
    if (limit := getattr(request.state, "rate_limit", None)) is not None:
        # From now on their calls count as theirs, and not as those of everybody at their address.
        limit.remember(request.scope, None if token is None else token.name)
    if token is None:
        raise NotLoggedIn
    visitor = Visitor(Caller(token.name, token.scopes), tokens.form_key(session))
    request.state.visitor = visitor
    return visitor


def visiting(*scopes: Scope) -> Callable[..., Visitor]:
    """A dependency: a visitor with one of these scopes, or with any where none is given."""

    def found(request: Request) -> Visitor:
        visitor = visitor_of(request)
        if scopes:
            require(visitor.caller, *scopes)
        return visitor

    return found


def posting(*scopes: Scope) -> Callable[..., Awaitable[Form]]:
    """A dependency: the form of a visitor with one of these scopes, which came from their own page."""

    async def found(request: Request) -> Form:
        visitor = await run_in_threadpool(visitor_of, request)
        if scopes:
            require(visitor.caller, *scopes)
        require_own_page(request)
        values = await read_form(request)
        shown = request.headers.get(FORM_HEADER) or values.get(FORM_KEY)
        if not isinstance(shown, str) or not hmac.compare_digest(shown.encode(), visitor.form_key.encode()):
            raise Problem(
                HTTPStatus.FORBIDDEN, "this form is not of your session; load its page again, and send it"
            )
        return Form(visitor, values)

    return found


def require_own_page(request: Request) -> None:
    """Refuse what a page of somebody else has sent."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    is_foreign = site is not None and site != "same-origin"
    if origin is not None:
        is_foreign |= urllib.parse.urlsplit(origin).netloc != request.headers.get("host")
    if is_foreign:
        raise Problem(HTTPStatus.FORBIDDEN, "this form was sent by a page of somebody else")


async def read_form(request: Request) -> FormData:
    """The fields and files of a form, in memory."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/x-www-form-urlencoded":
        return await FormParser(request.headers, request.stream(), max_fields=MOST_FIELDS).parse()
    if kind != "multipart/form-data":
        return FormData()
    limit = request.app.state.settings.body_limit
    parser = InMemoryParser(
        request.headers, request.stream(), max_files=1, max_fields=MOST_FIELDS, max_part_size=limit
    )
    try:
        return await parser.parse()
    except MultiPartException as error:
        raise Problem(HTTPStatus.BAD_REQUEST, f"the form cannot be read: {error.message}") from None


def to_login(request: Request) -> Response:
    """The way to the page on which one logs in, and from there back."""
    back = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    address = "/login"
    if (
        request.method == "GET"
        and back != "/"
        and "text/event-stream" not in request.headers.get("accept", "")
    ):
        address += "?" + urllib.parse.urlencode({"next": back})
    if "hx-request" in request.headers:
        return Response(status_code=204, headers={"HX-Redirect": "/login"})
    return go(address)


def own_address(text: Any) -> str:
    """An address of this site that somebody names; the first page where it is none."""
    is_own = isinstance(text, str) and text.startswith("/") and not text.startswith(("//", "/\\"))
    return text if is_own and text.isprintable() and "\\" not in text else "/"
