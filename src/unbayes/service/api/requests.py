"""Requests: looking at them, and deciding on them."""

from http import HTTPStatus
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Response

from unbayes.ledger import Ledger, RequestState, verify_report
from unbayes.ledger import Request as Asked
from unbayes.ledger.tokens import Scope
from unbayes.service.api.answers import of_event, of_request
from unbayes.service.api.forms import (
    LARGEST,
    MOST_LISTED,
    ApprovalForm,
    DenialForm,
    ExtensionForm,
    Name,
    SearchForm,
)
from unbayes.service.api.replies import EventsAnswer, RequestAnswer, RequestsAnswer
from unbayes.service.api.shared import SEE, SEE_ALL, RequestNumber, client_of, reply, visible
from unbayes.service.authority import Caller, GuardedRoute, ledger_of, needs
from unbayes.service.document import refusals

# The page of a report has its style in itself, and nothing else.
REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; sandbox"
NOT_FOUND = refusals(HTTPStatus.NOT_FOUND)
DECIDED = refusals(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)

router = APIRouter(prefix="/v1/requests", tags=["requests"], route_class=GuardedRoute)

Seeing = Annotated[Caller, Depends(needs(*SEE))]
Deciding = Annotated[Caller, Depends(needs(Scope.APPROVE))]


@router.get("", response_model=RequestsAnswer, responses=NOT_FOUND)
def listing(
    caller: Seeing,
    model: Annotated[Name | None, Query(description="Of this model.")] = None,
    state: Annotated[
        list[RequestState] | None, Query(max_length=len(RequestState), description="In one of these states.")
    ] = None,
    overdue: Annotated[bool, Query(description="Those that should have been answered.")] = False,
    limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = 100,
    after: Annotated[int | None, Query(ge=1, le=LARGEST, description="Go on below this number.")] = None,
    ledger: Ledger = Depends(ledger_of),
) -> Response:
    """Requests, the newest first: one's own, or all of them with approve, operate or audit."""
    states = None if not state else list(dict.fromkeys(state))
    client = client_of(caller, *SEE_ALL)
    found = ledger.requests(model, states=states, overdue=overdue, client=client, limit=limit, after=after)
    return _page(ledger, found, found[-1].id if len(found) == limit else None)


@router.post("/search", response_model=RequestsAnswer)
def search(form: SearchForm, caller: Seeing, ledger: Ledger = Depends(ledger_of)) -> Response:
    """One person's requests, the newest first; the identifier is in the body, so that no log has it."""
    client = client_of(caller, *SEE_ALL)
    return _page(ledger, ledger.requests(subject=form.subject, client=client, limit=MOST_LISTED), None)


@router.get("/{number}", response_model=RequestAnswer, responses=NOT_FOUND)
def show(number: RequestNumber, caller: Seeing, ledger: Ledger = Depends(ledger_of)) -> Response:
    """One request."""
    return _one(ledger, visible(ledger, caller, number))


@router.post("/{number}/approve", response_model=RequestAnswer, responses=DECIDED)
def approve(
    number: RequestNumber,
    caller: Deciding,
    form: ApprovalForm | None = None,
    ledger: Ledger = Depends(ledger_of),
) -> Response:
    """Let a request be carried out, or release it where it is on hold."""
    missing = None if form is None else form.missing
    return _one(ledger, ledger.approve(number, missing=missing, by=caller.name))


@router.post("/{number}/deny", response_model=RequestAnswer, responses=DECIDED)
def deny(
    number: RequestNumber, form: DenialForm, caller: Deciding, ledger: Ledger = Depends(ledger_of)
) -> Response:
    """Refuse a request, on a ground; its rows are destroyed."""
    return _one(ledger, ledger.deny(number, form.ground, by=caller.name))


@router.post("/{number}/extend", response_model=RequestAnswer, responses=DECIDED)
def extend(
    number: RequestNumber, form: ExtensionForm, caller: Deciding, ledger: Ledger = Depends(ledger_of)
) -> Response:
    """Put the due date off, once, with a reason."""
    return _one(ledger, ledger.extend(number, days=form.days, reason=form.reason, by=caller.name))


@router.post("/{number}/withdraw", response_model=RequestAnswer, responses=DECIDED)
def withdraw(
    number: RequestNumber,
    caller: Annotated[Caller, Depends(needs(Scope.SUBMIT, Scope.APPROVE))],
    ledger: Ledger = Depends(ledger_of),
) -> Response:
    """Take a request back for whoever asked: one's own, or any with approve."""
    visible(ledger, caller, number, Scope.APPROVE)
    return _one(ledger, ledger.withdraw(number, by=caller.name))


@router.get("/{number}/events", response_model=EventsAnswer, responses=NOT_FOUND)
def events(number: RequestNumber, caller: Seeing, ledger: Ledger = Depends(ledger_of)) -> Response:
    """What has happened to a request, as the log has it."""
    visible(ledger, caller, number)
    return reply(
        EventsAnswer.model_construct(events=[of_event(each) for each in ledger.log.of_request(number)])
    )


@router.get(
    "/{number}/report",
    response_class=Response,
    responses={
        int(HTTPStatus.OK): {
            "description": "The signed report, in a DSSE envelope; or a page that shows it.",
            "content": {
                "application/json": {"schema": {"type": "object"}},
                "text/html": {"schema": {"type": "string"}},
            },
        },
        **NOT_FOUND,
    },
)
def report(
    number: RequestNumber,
    caller: Seeing,
    format: Annotated[Literal["json", "html"], Query()] = "json",
    ledger: Ledger = Depends(ledger_of),
) -> Response:
    """The signed report on a request that was applied."""
    visible(ledger, caller, number)
    data = ledger.report(number)
    if format == "json":
        return Response(data, media_type="application/json")
    from unbayes.ledger.report_page import page

    text = page(verify_report(data, ledger.public_key))
    return Response(text, headers={"Content-Security-Policy": REPORT_POLICY}, media_type="text/html")


def _one(ledger: Ledger, request: Asked) -> Response:
    return reply(of_request(request, ledger.today))


def _page(ledger: Ledger, found: list[Asked], following: int | None) -> Response:
    today = ledger.today
    requests = [of_request(each, today) for each in found]
    return reply(RequestsAnswer.model_construct(requests=requests, next=following))
