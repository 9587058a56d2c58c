"""The OpenAPI document, with what every route may answer."""

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from unbayes.service.api.replies import Problem
from unbayes.service.problems import MEDIA_TYPE

SCHEMA = "Problem"
# What any call may be answered, by what stands before the routes.
COMMON = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.SERVICE_UNAVAILABLE,
)
GUARDED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
# What FastAPI writes by itself, and this service answers in another form.
UNUSED = ("HTTPValidationError", "ValidationError")


def refusals(*statuses: HTTPStatus) -> dict[int | str, dict[str, Any]]:
    """Refusals of a route, for its declaration."""
    return {int(status): _refusal(status) for status in statuses}


def describe(app: FastAPI) -> dict[str, Any]:
    """The document of an application; made once."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        for name in UNUSED:
            schemas.pop(name, None)
        schemas[SCHEMA] = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        for operations in document["paths"].values():
            for operation in operations.values():
                _complete(operation)
        app.openapi_schema = document
    return app.openapi_schema


def _complete(operation: dict[str, Any]) -> None:
    statuses = COMMON + (GUARDED if operation.get("security") else ())
    operation["responses"].update({str(int(each)): _refusal(each) for each in statuses})
    headers = {
        "X-Request-ID": {"schema": {"type": "string"}, "description": "Names the call in the service's log."}
    }
    for answer in operation["responses"].values():
        answer["headers"] = headers | answer.get("headers", {})


def _refusal(status: HTTPStatus) -> dict[str, Any]:
    return {
        "description": status.phrase,
        "content": {MEDIA_TYPE: {"schema": {"$ref": f"#/components/schemas/{SCHEMA}"}}},
    }
