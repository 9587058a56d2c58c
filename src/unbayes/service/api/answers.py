"""From what the ledger has to what callers get."""

import dataclasses
import datetime
from typing import Any

from unbayes.ledger import Request, Version
from unbayes.ledger.events import Event
from unbayes.ledger.tokens import Token
from unbayes.service.api.replies import EventAnswer, RequestAnswer, TokenAnswer, VersionAnswer

_OWN = ("id", "model_id", "secret_id")


def of_request(request: Request, today: datetime.date) -> RequestAnswer:
    """A request; nothing in it tells who asked."""
    left = request.days_left(today)
    return RequestAnswer.model_construct(
        number=request.id,
        model=request.model,
        client=request.client,
        state=request.state,
        received=request.received,
        age=(today - request.received_date).days,
        first_due=request.first_due,
        due=request.due,
        days_left=left,
        overdue=left is not None and left < 0,
        extended=request.is_extended,
        reference=request.reference,
        missing=request.missing,
        hold=request.hold,
        records=request.asked,
        erased=request.erased,
        already=request.already,
        unknown=request.unknown,
        ended=request.ended,
        version=request.version,
        verdict=request.verdict,
    )


def of_version(version: Version, head: int) -> VersionAnswer:
    """A version."""
    fields = {name: value for name, value in _fields(version).items() if name not in _OWN}
    return VersionAnswer(is_current=version.number == head, **fields)


def of_event(event: Event) -> EventAnswer:
    """An event."""
    return EventAnswer.model_construct(**_fields(event))


def of_token(token: Token) -> dict[str, Any]:
    """A token's fields."""
    shown = TokenAnswer.model_fields
    return {name: value for name, value in _fields(token).items() if name in shown} | {
        "scopes": sorted(token.scopes)
    }


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
