"""Requests: a list with filters, a person's, and one of them with all that happened to it."""

import dataclasses
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request
from starlette.responses import Response

from unbayes.ledger import Ledger
from unbayes.ledger.entities import Request as Asked
from unbayes.ledger.errors import LedgerError, NotFound
from unbayes.ledger.states import TAKEN_OUT, RequestState
from unbayes.ledger.tokens import Scope
from unbayes.ledger.verify import verify_report
from unbayes.service.page import words
from unbayes.service.page.rendering import show
from unbayes.service.page.visiting import (
    SEES_ALL,
    SEES_REQUESTS,
    Form,
    PageRoute,
    TheLedger,
    Visitor,
    posting,
    visiting,
)

router = APIRouter(route_class=PageRoute, include_in_schema=False)
# Requests on one page of the list.
LISTED = 50
# What the database counts requests by.
LARGEST_NUMBER = 2**31 - 1
Number = Annotated[int, Path(ge=1, le=LARGEST_NUMBER)]
# The way that most requests go.
WAY: tuple[str, ...] = ("received", "approved", "applied", "reported", "closed")


@dataclasses.dataclass(frozen=True)
class Filters:
    """Which requests are listed; empty words mean all."""

    model: str = ""
    state: str = ""
    overdue: str = ""
    after: int | None = None

    @classmethod
    def read(cls, request: Request) -> "Filters":
        """From an address; what it misspells counts as not there."""
        given = request.query_params
        state = given.get("state", "")
        after = given.get("after", "")
        return cls(
            model=given.get("model", ""),
            state=state if state in set(RequestState) else "",
            overdue="yes" if given.get("overdue") else "",
            after=int(after) if after.isascii() and after.isdigit() and len(after) < 10 else None,
        )

    @property
    def others(self) -> dict[str, str]:
        """All but the place in the list."""
        every = {"model": self.model, "state": self.state, "overdue": self.overdue}
        return {name: value for name, value in every.items() if value}


@router.get("/requests")
def listing(
    request: Request,
    visitor: Annotated[Visitor, Depends(visiting(*SEES_REQUESTS))],
    ledger: TheLedger,
) -> Response:
    """Requests, the newest first."""
    filters = Filters.read(request)
    models = ledger.models()
    if filters.model not in {"", *(each.name for each in models)}:
        raise NotFound("there is no such model")
    found = ledger.requests(
        filters.model or None,
        states=[RequestState(filters.state)] if filters.state else None,
        overdue=bool(filters.overdue),
        client=visitor.client,
        after=filters.after,
        limit=LISTED + 1,
    )
    return show(
        request,
        "requests.html",
        requests=found[:LISTED],
        has_more=len(found) > LISTED,
        filters=filters,
        models=models,
        today=ledger.today,
    )


@router.post("/requests/search")
def search(
    request: Request,
    form: Annotated[Form, Depends(posting(*SEES_REQUESTS))],
    ledger: TheLedger,
) -> Response:
    """The requests of one person, who is named in a form and never in an address."""
    if not (subject := form.text("subject")):
        raise LedgerError("a search needs an identifier of the person, but it is empty")
    found = ledger.requests(subject=subject, client=form.visitor.client, limit=LISTED)
    return show(request, "found.html", requests=found, today=ledger.today, limit=LISTED)


@router.get("/requests/{number}")
def request_page(
    request: Request,
    number: Number,
    visitor: Annotated[Visitor, Depends(visiting(*SEES_REQUESTS))],
    ledger: TheLedger,
    done: str = "",
) -> Response:
    """All about a request."""
    asked = visible(ledger, visitor, number)
    return page_of(request, ledger, visitor, asked, message=words.DONE.get(done))


def visible(ledger: Ledger, visitor: Visitor, number: int, *scopes: Scope) -> Asked:
    """A request of this visitor, or of anybody where they have one of these scopes; others are not there.

    Where none is named, any scope will do by which one sees all requests.
    """
    asked = ledger.show(number)
    if asked.client != visitor.caller.name and not visitor.caller.may(*(scopes or SEES_ALL)):
        raise NotFound(f"there is no request {number}")
    return asked


def page_of(
    request: Request, ledger: Ledger, visitor: Visitor, asked: Asked, status: int = 200, **more: Any
) -> Response:
    """The page of a request, with a message or a refusal."""
    model = ledger.model(asked.model)
    openings = ledger.log.openings(asked.id)
    events = [
        (event, openings[event.sequence].details if event.sequence in openings else {})
        for event in ledger.log.of_request(asked.id)
    ]
    version = None
    if asked.version is not None:
        version = next(each for each in ledger.versions(asked.model) if each.number == asked.version)
    report = None
    if asked.state in TAKEN_OUT and asked.state is not RequestState.APPLIED:
        report = verify_report(ledger.report(asked.id), ledger.public_key)
    rule = model.settings.deadline_rule
    values = {
        "asked": asked,
        "model": model,
        "events": events,
        "version": version,
        "report": report,
        "today": ledger.today,
        "latest": rule.latest(asked.received_date),
        "way": _way(asked),
        "actions": _actions(asked, visitor, ledger),
        "message": None,
        "wrong": None,
    }
    return show(request, "request.html", status, **(values | more))


def _way(asked: Asked) -> list[tuple[str, str]]:
    """The steps of a request: which are past, where it stands, which are ahead."""
    if asked.state in (RequestState.DENIED, RequestState.WITHDRAWN):
        return [("received", "past"), (str(asked.state), "now")]
    if asked.state is RequestState.NEEDS_RETRAIN:
        steps: list[str] = ["received", "approved", "needs_retrain", "applied", "reported", "closed"]
    else:
        steps = list(WAY)
    place = steps.index(asked.state)
    is_over = asked.state is RequestState.CLOSED
    return [
        (step, "past" if i < place or (is_over and i == place) else "now" if i == place else "ahead")
        for i, step in enumerate(steps)
    ]


def _actions(asked: Asked, visitor: Visitor, ledger: Ledger) -> set[str]:
    """What this visitor may do with a request as it stands."""
    state, found = asked.state, set()
    if visitor.caller.may(Scope.APPROVE):
        if state is RequestState.RECEIVED:
            found |= {"approve", "deny"}
        if state is RequestState.APPROVED:
            found |= {"deny"} | ({"approve"} if asked.hold is not None else set())
        if asked.days_left(ledger.today) is not None and not asked.is_extended:
            found.add("extend")
    if state in (RequestState.RECEIVED, RequestState.APPROVED, RequestState.NEEDS_RETRAIN) and (
        visitor.caller.may(Scope.APPROVE) or asked.client == visitor.caller.name
    ):
        found.add("withdraw")
    return found
