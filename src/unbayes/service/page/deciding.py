"""Deciding on requests: each is a form that says what it does; refusals are shown beside it."""

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from unbayes.ledger import Ledger
from unbayes.ledger.errors import LedgerError
from unbayes.ledger.tokens import Scope
from unbayes.service.page.rendering import go
from unbayes.service.page.requests import Number, page_of, visible
from unbayes.service.page.visiting import Form, PageRoute, TheLedger, posting
from unbayes.service.problems import status_of

router = APIRouter(route_class=PageRoute, include_in_schema=False)
MOST_DAYS_DIGITS = 4


@router.post("/requests/{number}/approve")
def approve(
    request: Request,
    number: Number,
    form: Annotated[Form, Depends(posting(Scope.APPROVE))],
    ledger: TheLedger,
) -> Response:
    """Let a request be carried out, or release it."""
    missing, by = form.text("missing") or None, form.visitor.caller.name
    return _decide(
        request, form, ledger, number, "approved", lambda: ledger.approve(number, missing=missing, by=by)
    )


@router.post("/requests/{number}/deny")
def deny(
    request: Request,
    number: Number,
    form: Annotated[Form, Depends(posting(Scope.APPROVE))],
    ledger: TheLedger,
) -> Response:
    """Refuse a request, on a ground."""
    ground, by = form.text("ground"), form.visitor.caller.name
    return _decide(request, form, ledger, number, "denied", lambda: ledger.deny(number, ground, by=by))


@router.post("/requests/{number}/extend")
def extend(
    request: Request,
    number: Number,
    form: Annotated[Form, Depends(posting(Scope.APPROVE))],
    ledger: TheLedger,
) -> Response:
    """Put a due date off, with a reason."""
    reason, by = form.text("reason"), form.visitor.caller.name
    return _decide(
        request,
        form,
        ledger,
        number,
        "extended",
        lambda: ledger.extend(number, days=_days(form.text("days")), reason=reason, by=by),
    )


@router.post("/requests/{number}/withdraw")
def withdraw(
    request: Request,
    number: Number,
    form: Annotated[Form, Depends(posting(Scope.APPROVE, Scope.SUBMIT))],
    ledger: TheLedger,
) -> Response:
    """Take a request back: whoever submitted it, or whoever decides."""
    by = form.visitor.caller.name
    visible(ledger, form.visitor, number, Scope.APPROVE)
    return _decide(request, form, ledger, number, "withdrawn", lambda: ledger.withdraw(number, by=by))


def _decide(
    request: Request, form: Form, ledger: Ledger, number: int, done: str, act: Callable[[], object]
) -> Response:
    asked = visible(ledger, form.visitor, number)
    try:
        act()
    except LedgerError as error:
        return page_of(request, ledger, form.visitor, asked, status_of(error), wrong=str(error))
    return go(f"/requests/{number}?done={done}")


def _days(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= MOST_DAYS_DIGITS):
        raise LedgerError(f"days must be a whole number from 1, got {text!r}")
    return int(text)
