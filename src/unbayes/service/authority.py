"""Who calls, and what they may do."""

import dataclasses
from collections.abc import Callable
from http import HTTPStatus

from fastapi import Depends, Request
from fastapi.security import HTTPBearer

from unbayes.ledger import Ledger
from unbayes.ledger.tokens import Scope
from unbayes.service.problems import Problem

_SCHEME = HTTPBearer(auto_error=False, description="A token that `unbayes token create` made.")


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


def ledger_of(request: Request) -> Ledger:
    """The ledger that the application serves."""
    return request.app.state.ledger


def needs(*scopes: Scope) -> Callable[..., Caller]:
    """A dependency: the caller, who has one of these scopes."""

    def caller(request: Request, _: object = Depends(_SCHEME)) -> Caller:
        found = identify(request)
        require(found, *scopes)
        return found

    caller.scopes = scopes  # pyright: ignore[reportFunctionMemberAccess]
    return caller


def require(caller: Caller, *scopes: Scope) -> None:
    """Refuse a caller who has none of these scopes."""
    if not caller.may(*scopes):
        wanted = " or ".join(scopes)
        raise Problem(HTTPStatus.FORBIDDEN, f"this needs a token with the scope {wanted}")


def identify(request: Request) -> Caller:
    """The caller by their bearer token."""
    kind, _, shown = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "bearer" or not shown.strip():
        raise _unknown("this needs a bearer token; unbayes token create makes one")
    token = ledger_of(request).tokens.find(shown.strip())
    if token is None:
        raise _unknown("the token is not valid: it is unknown, has expired, or was revoked")
    return Caller(token.name, token.scopes)


def _unknown(sentence: str) -> Problem:
    return Problem(HTTPStatus.UNAUTHORIZED, sentence, {"WWW-Authenticate": "Bearer"})
