"""Who calls, and what they may do."""

import dataclasses
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any

from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from starlette.concurrency import run_in_threadpool

from unbayes.ledger import Ledger
from unbayes.ledger.tokens import PREFIX, Scope
from unbayes.service.oidc import Identities, Refusal
from unbayes.service.problems import Problem
from unbayes.service.settings import ServiceSettings

_SCHEME = HTTPBearer(auto_error=False, description="A token that `unbayes token create` made.")
INVALID = "the token is not valid: it is unknown, has expired, or was revoked"


@dataclasses.dataclass(frozen=True)
class Caller:
    """Somebody who has shown who they are.

    Attributes
    ----------
    name
        The client of the requests that they submit.
    scopes
        What they may do.
    """

    name: str
    scopes: frozenset[Scope]

    def may(self, *scopes: Scope) -> bool:
        """Whether one of these is among their scopes."""
        return not self.scopes.isdisjoint(scopes)


class GuardedRoute(APIRoute):
    """A route that looks at who calls before it reads what they send."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Identify the caller, in a thread, where the route `needs` one."""
        handler = super().get_route_handler()
        if (scopes := scopes_of(self)) is None:
            return handler

        async def guarded(request: Request) -> Response:
            try:
                caller = await run_in_threadpool(identify, request)
            except Problem:
                _remember(request, None)
                raise
            _remember(request, caller.name)
            request.state.caller = caller
            require(caller, *scopes)
            return await handler(request)

        return guarded


async def ledger_of(request: Request) -> Ledger:
    """The ledger that the application serves."""
    return request.app.state.ledger


async def settings_of(request: Request) -> ServiceSettings:
    """What the operator chose."""
    return request.app.state.settings


def needs(*scopes: Scope) -> Callable[..., Any]:
    """A dependency: the caller, who has one of these scopes; any valid token where none is named."""

    async def caller(request: Request, _: object = Depends(_SCHEME)) -> Caller:
        return request.state.caller

    caller.scopes = scopes  # pyright: ignore[reportFunctionMemberAccess]
    return caller


def scopes_of(route: APIRoute) -> tuple[Scope, ...] | None:
    """The scopes of which a route needs one; None where it needs no token."""
    calls = [getattr(each.call, "scopes", None) for each in route.dependant.dependencies]
    return next((scopes for scopes in calls if scopes is not None), None)


def require(caller: Caller, *scopes: Scope) -> None:
    """Refuse a caller who has none of these scopes."""
    if scopes and not caller.may(*scopes):
        wanted = " or ".join(scopes)
        raise Problem(HTTPStatus.FORBIDDEN, f"this needs a token with the scope {wanted}")


def identify(request: Request) -> Caller:
    """The caller by their bearer token."""
    kind, _, shown = request.headers.get("authorization", "").partition(" ")
    shown = shown.strip()
    if kind.lower() != "bearer" or not shown:
        raise _unknown("this needs a bearer token; unbayes token create makes one")
    if shown.startswith(PREFIX):
        token = request.app.state.ledger.tokens.find(shown)
        if token is None:
            raise _unknown(INVALID)
        return Caller(token.name, token.scopes)
    identities: Identities | None = request.app.state.identities
    if identities is None:
        raise _unknown(INVALID)
    try:
        return Caller(*identities.find(shown))
    except Refusal as refusal:
        raise _unknown(str(refusal)) from refusal


def _remember(request: Request, name: str | None) -> None:
    limit = getattr(request.state, "rate_limit", None)
    if limit is not None:
        limit.remember(request.scope, name)


def _unknown(sentence: str) -> Problem:
    return Problem(HTTPStatus.UNAUTHORIZED, sentence, {"WWW-Authenticate": "Bearer"})
