"""Who looks at a page, by their cookie, and whether a form is really theirs."""

import dataclasses
import hmac
import re
import urllib.parse
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.formparsers import FormParser, MultiPartException
from starlette.responses import Response

from unbayes.ledger import Ledger
from unbayes.ledger.tokens import Scope
from unbayes.service.authority import Caller, ledger_of, require
from unbayes.service.page.rendering import go
from unbayes.service.problems import Problem
from unbayes.service.uploads import parse_multipart

FORM_KEY, FORM_HEADER = "form_key", "x-form-key"
MOST_FIELDS = 30
# Characters that a field may have; rows that are typed in may be longer.
LONGEST, MOST_CHARACTERS = 2000, {"typed": 1_000_000, "subject": 1000}
# Fields that have lines; in the others there are no control characters.
LINES = frozenset(("typed", "ground", "reason"))
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
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
    """What a visitor sends: words, and the content of the files that they chose."""

    visitor: Visitor
    words: Mapping[str, str]
    files: Mapping[str, bytes]

    def text(self, name: str) -> str:
        """A field, empty where it is missing."""
        value = self.words.get(name, "")
        value = value.strip()
        plain = value.translate({ord(each): None for each in "\t\r\n"}) if name in LINES else value
        if CONTROL.search(plain) or len(value) > MOST_CHARACTERS.get(name, LONGEST):
            raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, f"{name} is too long, or is no text")
        return value


class NotLoggedIn(Exception):
    """There is no session, or it is over."""


class PageRoute(APIRoute):
    """A route for people: whoever has no session is shown where to log in."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler; an address that is no number where one belongs is nowhere."""
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handle(request)
            except NotLoggedIn:
                return to_login(request)
            except RequestValidationError:
                raise Problem(HTTPStatus.NOT_FOUND, "there is no such page") from None

        return answer


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
        words, files = await read_form(request)
        shown = request.headers.get(FORM_HEADER) or words.get(FORM_KEY, "")
        if not hmac.compare_digest(shown.encode(), visitor.form_key.encode()):
            raise Problem(
                HTTPStatus.FORBIDDEN, "this form is not of your session; load its page again, and send it"
            )
        return Form(visitor, words, files)

    return found


def require_own_page(request: Request) -> None:
    """Refuse what a page of somebody else has sent."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    is_foreign = site is not None and site != "same-origin"
    if origin is not None:
        # Compared as text: what is no address is no page of ours either.
        is_foreign |= origin.partition("://")[2] != request.headers.get("host")
    if is_foreign:
        raise Problem(HTTPStatus.FORBIDDEN, "this form was sent by a page of somebody else")


async def read_form(request: Request) -> tuple[dict[str, str], dict[str, bytes]]:
    """The fields and the files of a form, in memory."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/x-www-form-urlencoded":
        parser = FormParser(request.headers, request.stream(), max_fields=MOST_FIELDS)
        try:
            sent = await parser.parse()
        except MultiPartException as error:
            raise Problem(
                HTTPStatus.UNPROCESSABLE_ENTITY, f"the form cannot be read: {error.message}"
            ) from None
    elif kind == "multipart/form-data":
        limit = request.app.state.settings.body_limit
        sent = await parse_multipart(request, most_fields=MOST_FIELDS, longest_field=limit)
    else:
        return {}, {}
    words = {name: value for name, value in sent.items() if isinstance(value, str)}
    chosen = {name: value for name, value in sent.items() if isinstance(value, UploadFile) and value.filename}
    files = {name: await value.read() for name, value in chosen.items()}
    await sent.close()
    return words, files


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
