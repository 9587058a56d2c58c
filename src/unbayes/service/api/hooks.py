"""Webhooks: where events are told to."""

import dataclasses
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Depends, Response

from unbayes.ledger import Ledger
from unbayes.ledger.hooks import Hook
from unbayes.ledger.tokens import Scope
from unbayes.service.api.forms import HookForm
from unbayes.service.api.replies import HookAnswer, HooksAnswer, NewHookAnswer
from unbayes.service.api.shared import RequestNumber, reply
from unbayes.service.authority import GuardedRoute, ledger_of, needs
from unbayes.service.document import refusals

ADMIN = [Depends(needs(Scope.ADMIN))]

router = APIRouter(prefix="/v1/hooks", tags=["hooks"], route_class=GuardedRoute)


@router.get("", response_model=HooksAnswer, dependencies=ADMIN)
def hooks(ledger: Ledger = Depends(ledger_of)) -> Response:
    """All webhooks, without their secrets."""
    return reply(HooksAnswer(hooks=[HookAnswer(**_fields(each)) for each in ledger.hooks.all()]))


@router.post("", status_code=HTTPStatus.CREATED, response_model=NewHookAnswer, dependencies=ADMIN)
def add(form: HookForm, ledger: Ledger = Depends(ledger_of)) -> Response:
    """Tell events to an address from now on; the secret by which they are signed is in this answer only."""
    hook, secret = ledger.hooks.add(form.url, form.kinds or ())
    return reply(NewHookAnswer(secret=secret, **_fields(hook)), HTTPStatus.CREATED)


@router.delete(
    "/{number}",
    status_code=HTTPStatus.NO_CONTENT,
    response_class=Response,
    responses=refusals(HTTPStatus.NOT_FOUND),
    dependencies=ADMIN,
)
def remove(number: RequestNumber, ledger: Ledger = Depends(ledger_of)) -> Response:
    """Tell an address nothing more."""
    ledger.hooks.remove(number)
    return Response(status_code=int(HTTPStatus.NO_CONTENT))


def _fields(hook: Hook) -> dict[str, Any]:
    return {field.name: getattr(hook, field.name) for field in dataclasses.fields(hook)} | {
        "kinds": list(hook.kinds)
    }
