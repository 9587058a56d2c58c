"""What the routes share."""

from http import HTTPStatus
from typing import Annotated

from fastapi import Path, Response
from pydantic import BaseModel

from unbayes.ledger import Ledger, NotFound, Request
from unbayes.ledger.tokens import Scope
from unbayes.service.api.forms import LARGEST, PLAIN
from unbayes.service.authority import Caller

# Who sees requests of others, and who sees models.
SEE_ALL = (Scope.APPROVE, Scope.OPERATE, Scope.AUDIT)
SEE = (*SEE_ALL, Scope.SUBMIT)

ModelName = Annotated[
    str, Path(min_length=1, max_length=200, pattern=PLAIN, description="Name of the model.")
]
RequestNumber = Annotated[int, Path(ge=1, le=LARGEST, description="Number of the request.")]


def reply(
    answer: BaseModel, status: HTTPStatus = HTTPStatus.OK, headers: dict[str, str] | None = None
) -> Response:
    """An answer in JSON."""
    return Response(answer.model_dump_json(), int(status), headers, "application/json")


def client_of(caller: Caller, *scopes: Scope) -> str | None:
    """Whose requests somebody sees: their own, or everybody's where they have one of these scopes."""
    return None if caller.may(*scopes) else caller.name


def visible(ledger: Ledger, caller: Caller, number: int, *scopes: Scope) -> Request:
    """A request that somebody sees; others are not there for them."""
    request, client = ledger.show(number), client_of(caller, *(scopes or SEE_ALL))
    if client is not None and request.client != client:
        raise NotFound(f"there is no request {number}")
    return request
