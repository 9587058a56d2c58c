"""Refusals as problem documents (RFC 9457), with the sentence of the refusal."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.routing import Match

from unbayes.data.refusal import Refused
from unbayes.ledger import errors
from unbayes.ledger.errors import LedgerError

MEDIA_TYPE = "application/problem+json"
UNFORESEEN = "something went wrong that was not foreseen; nothing was written"
# The first that fits; what else the ledger refuses is bad input.
STATUS: dict[type[Exception], HTTPStatus] = {
    errors.NotFound: HTTPStatus.NOT_FOUND,
    errors.Forbidden: HTTPStatus.FORBIDDEN,
    errors.Conflict: HTTPStatus.CONFLICT,
    errors.Locked: HTTPStatus.CONFLICT,
    errors.DatabaseProblem: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.KeyProblem: HTTPStatus.INTERNAL_SERVER_ERROR,
    errors.TamperedLog: HTTPStatus.INTERNAL_SERVER_ERROR,
    LedgerError: HTTPStatus.UNPROCESSABLE_ENTITY,
    Refused: HTTPStatus.UNPROCESSABLE_ENTITY,
}
# Faults of one body that are listed.
LISTED = 10


class Problem(HTTPException):
    """A refusal by the service itself."""

    def __init__(self, status: HTTPStatus, sentence: str, headers: Mapping[str, str] | None = None):
        super().__init__(status, sentence, headers)
        self.status = status

    def __str__(self) -> str:
        return self.detail


def problem(status: int, sentence: str, headers: Mapping[str, str] | None = None, **members: Any) -> Response:
    """The document of a refusal."""
    title = HTTPStatus(status).phrase
    document = {"type": "about:blank", "title": title, "status": int(status), "detail": sentence, **members}
    # Escapes: a sentence may quote what was sent, and that need not be text.
    return Response(json.dumps(document), int(status), headers, MEDIA_TYPE)


def add_problems(app: FastAPI) -> None:
    """Let an application answer refusals so."""
    for kind in (LedgerError, Refused):
        app.add_exception_handler(kind, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)


def status_of(error: Exception) -> HTTPStatus:
    """The status of what the ledger refuses."""
    return next(status for kind, status in STATUS.items() if isinstance(error, kind))


def _refused(_: Request, error: Exception) -> Response:
    return problem(status_of(error), str(error), kind=type(error).__name__)


def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    faults = [
        {"where": ".".join(map(str, each["loc"])), "what": each["msg"]} for each in error.errors()[:LISTED]
    ]
    sentence = "; ".join(f"{each['where']}: {each['what']}" for each in faults)
    return problem(HTTPStatus.UNPROCESSABLE_ENTITY, sentence, faults=faults)


def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code != HTTPStatus.METHOD_NOT_ALLOWED:
        return problem(error.status_code, str(error.detail), error.headers)
    allowed = ", ".join(_methods(request))
    sentence = f"{request.method} is nothing that can be done here; possible are: {allowed}"
    return problem(error.status_code, sentence, {"Allow": allowed})


def _methods(request: Request) -> list[str]:
    """What can be done at the address, over all routes."""
    routes = [route for route in request.app.routes if route.matches(request.scope)[0] != Match.NONE]
    return sorted({method for route in routes for method in getattr(route, "methods", None) or ()})
