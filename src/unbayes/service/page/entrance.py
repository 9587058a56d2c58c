"""Logging in with a token, logging out, and the files that pages load."""

import asyncio
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from unbayes.ledger.tokens import SESSION_HOURS
from unbayes.service.page.rendering import HEADERS, MEDIA_TYPES, files, fingerprint, go, show
from unbayes.service.page.visiting import (
    Form,
    NotLoggedIn,
    PageRoute,
    TheLedger,
    cookie_of,
    own_address,
    posting,
    read_form,
    require_own_page,
    visitor_of,
)
from unbayes.service.problems import Problem

router = APIRouter(route_class=PageRoute, include_in_schema=False)
# How long whoever shows a wrong token waits for the answer.
SLOWED_SECONDS = 1.0
# How long a browser may keep a file whose address has its fingerprint.
YEAR_SECONDS = 365 * 24 * 3600


@router.get("/login")
def login_page(request: Request, next: str = "/") -> Response:
    """The form on which one logs in; whoever has goes on."""
    try:
        visitor_of(request)
    except NotLoggedIn:
        # A browser that follows a link from elsewhere does not show the cookie, so that a click here helps.
        is_from_elsewhere = request.headers.get("sec-fetch-site") == "cross-site"
        return _form(request, own_address(next), is_from_elsewhere=is_from_elsewhere)
    return go(own_address(next))


@router.post("/login")
async def login(request: Request, ledger: TheLedger) -> Response:
    """Begin a session, by a token."""
    require_own_page(request)
    form, _ = await read_form(request)
    shown, back = form.get("token", "").strip(), own_address(form.get("next"))
    token = await run_in_threadpool(ledger.tokens.find, shown)
    if token is None:
        await asyncio.sleep(SLOWED_SECONDS)
        wrong = "This token is not valid: it is unknown, has expired, or was revoked."
        return _form(request, back, HTTPStatus.FORBIDDEN, wrong=wrong)
    answer = go(back)
    session = await run_in_threadpool(ledger.tokens.session, token)
    answer.set_cookie(cookie_of(request), session, max_age=SESSION_HOURS * 3600, **_kind(request))
    return answer


@router.post("/logout")
def logout(request: Request, form: Annotated[Form, Depends(posting())]) -> Response:
    """End a session in this browser."""
    answer = go("/login")
    answer.delete_cookie(cookie_of(request), **_kind(request))
    return answer


@router.get("/static/{name}")
def file(name: str, v: str = "") -> Response:
    """A file that pages load, which browsers keep as long as it stays the same."""
    if name not in files():
        raise Problem(HTTPStatus.NOT_FOUND, "there is no such file")
    keep = f"public, max-age={YEAR_SECONDS}, immutable" if v == fingerprint(name) else "no-cache"
    kind = MEDIA_TYPES[name.rpartition(".")[2]]
    return Response(files()[name], headers={**HEADERS, "Cache-Control": keep}, media_type=kind)


def _form(
    request: Request,
    back: str,
    status: int = 200,
    *,
    wrong: str | None = None,
    is_from_elsewhere: bool = False,
) -> Response:
    return show(request, "login.html", status, back=back, wrong=wrong, is_from_elsewhere=is_from_elsewhere)


def _kind(request: Request) -> dict:
    """No script reads the cookie, no other site's page sends it, and no network without HTTPS sees it."""
    return {
        "path": "/",
        "httponly": True,
        "samesite": "strict",
        "secure": request.app.state.settings.is_https,
    }
