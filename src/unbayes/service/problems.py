"""Refusals as problem documents (RFC 9457), with the sentence of the refusal."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from unbayes.data.refusal import Refused
from unbayes.ledger.errors import Conflict, DatabaseProblem, KeyProblem, LedgerError, Locked, NotFound

MEDIA_TYPE = "application/problem+json"
# The first that fits; what else the ledger refuses is bad input.
STATUS: dict[type[Exception], HTTPStatus] = {
    NotFound: HTTPStatus.NOT_FOUND,
    Conflict: HTTPStatus.CONFLICT,
    Locked: HTTPStatus.CONFLICT,
    DatabaseProblem: HTTPStatus.SERVICE_UNAVAILABLE,
    KeyProblem: HTTPStatus.INTERNAL_SERVER_ERROR,
    LedgerError: HTTPStatus.UNPROCESSABLE_ENTITY,
    Refused: HTTPStatus.UNPROCESSABLE_ENTITY,
}


class Problem(Exception):
    """A refusal by the service itself."""

    def __init__(self, status: HTTPStatus, sentence: str, headers: Mapping[str, str] | None = None):
        super().__init__(sentence)
        self.status, self.headers = status, headers


def problem(
    status: int, sentence: str, headers: Mapping[str, str] | None = None, **members: Any
) -> JSONResponse:
    """The document of a refusal."""
    title = HTTPStatus(status).phrase
    document = {"type": "about:blank", "title": title, "status": int(status), "detail": sentence, **members}
    return JSONResponse(document, int(status), headers, MEDIA_TYPE)


def add_problems(app: FastAPI) -> None:
    """Let an application answer refusals so."""
    app.add_exception_handler(Problem, _own)
    for kind in (LedgerError, Refused):
        app.add_exception_handler(kind, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unforeseen)


def status_of(error: Exception) -> HTTPStatus:
    """The status of what the ledger refuses."""
    return next(status for kind, status in STATUS.items() if isinstance(error, kind))


def _own(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, Problem)
    return problem(error.status, str(error), error.headers)


def _refused(_: Request, error: Exception) -> JSONResponse:
    return problem(status_of(error), str(error))


def _invalid(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    faults = [{"where": ".".join(map(str, each["loc"])), "what": each["msg"]} for each in error.errors()[:10]]
    sentence = "; ".join(f"{each['where']}: {each['what']}" for each in faults)
    return problem(HTTPStatus.UNPROCESSABLE_ENTITY, sentence, faults=faults)


def _http(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return problem(error.status_code, str(error.detail), error.headers)


def _unforeseen(_: Request, __: Exception) -> JSONResponse:
    return problem(
        HTTPStatus.INTERNAL_SERVER_ERROR, "something went wrong that was not foreseen; nothing was written"
    )
