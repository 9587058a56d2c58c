"""The log: events, checkpoints, and proofs that they belong together."""

import dataclasses
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from unbayes.ledger import Ledger
from unbayes.ledger.tokens import Scope
from unbayes.service.api.answers import of_event
from unbayes.service.api.forms import LARGEST_EVENT, MOST_LISTED
from unbayes.service.api.replies import (
    CheckpointAnswer,
    CheckpointsAnswer,
    ConsistencyAnswer,
    EventsAnswer,
    InclusionAnswer,
    LogAnswer,
)
from unbayes.service.api.shared import reply
from unbayes.service.authority import GuardedRoute, ledger_of, needs
from unbayes.service.document import refusals

PEM = "application/x-pem-file"
NOT_FOUND = refusals(HTTPStatus.NOT_FOUND)
AUDITING = [Depends(needs(Scope.AUDIT))]
Place = Annotated[int, Query(ge=0, le=LARGEST_EVENT)]
Size = Annotated[int | None, Query(ge=0, le=LARGEST_EVENT)]

router = APIRouter(prefix="/v1/log", tags=["log"], route_class=GuardedRoute)


@router.get("", response_model=LogAnswer, dependencies=AUDITING)
def state(ledger: Ledger = Depends(ledger_of)) -> Response:
    """How long the log is, and its root."""
    found = ledger.log.state()
    return reply(LogAnswer(size=found.size, root=found.root))


@router.get("/events", response_model=EventsAnswer, dependencies=AUDITING)
def events(
    start: Place = 0,
    limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = 100,
    ledger: Ledger = Depends(ledger_of),
) -> Response:
    """Entries of the log, from a place on."""
    found = ledger.log.events(start, limit)
    return reply(EventsAnswer.model_construct(events=[of_event(each) for each in found]))


@router.get("/checkpoints", response_model=CheckpointsAnswer, dependencies=AUDITING)
def checkpoints(ledger: Ledger = Depends(ledger_of)) -> Response:
    """Signed statements of how the log stood."""
    found = [CheckpointAnswer(**dataclasses.asdict(each)) for each in ledger.log.checkpoints()]
    return reply(CheckpointsAnswer(checkpoints=found))


@router.post(
    "/checkpoints",
    status_code=HTTPStatus.CREATED,
    response_model=CheckpointAnswer,
    dependencies=[Depends(needs(Scope.AUDIT, Scope.OPERATE))],
)
def sign(ledger: Ledger = Depends(ledger_of)) -> Response:
    """Sign how the log stands now."""
    return reply(CheckpointAnswer(**dataclasses.asdict(ledger.log.sign())), HTTPStatus.CREATED)


@router.get("/proof", response_model=InclusionAnswer, responses=NOT_FOUND, dependencies=AUDITING)
def proof(index: Place, size: Size = None, ledger: Ledger = Depends(ledger_of)) -> Response:
    """That the log of a size holds an event."""
    return reply(InclusionAnswer(**dataclasses.asdict(ledger.log.inclusion(index, size))))


@router.get("/consistency", response_model=ConsistencyAnswer, responses=NOT_FOUND, dependencies=AUDITING)
def consistency(first: Place, second: Size = None, ledger: Ledger = Depends(ledger_of)) -> Response:
    """That a later log is an earlier one with more at its end."""
    return reply(ConsistencyAnswer(**dataclasses.asdict(ledger.log.consistency(first, second))))


@router.get(
    "/key",
    response_class=Response,
    responses={int(HTTPStatus.OK): {"content": {PEM: {"schema": {"type": "string"}}}}},
    dependencies=[Depends(needs())],
)
def key(ledger: Ledger = Depends(ledger_of)) -> Response:
    """The public key that checks reports and checkpoints."""
    return Response(ledger.public_key.to_pem(), media_type=PEM)
