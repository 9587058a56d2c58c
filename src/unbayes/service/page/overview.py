"""The first page: what needs attention, how requests stand, and the models."""

import dataclasses
import datetime
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from unbayes.ledger import Ledger
from unbayes.ledger.entities import Model, Version
from unbayes.ledger.entities import Request as Asked
from unbayes.ledger.states import WAITING, RequestState
from unbayes.service.page import charts, words
from unbayes.service.page.rendering import show
from unbayes.service.page.visiting import SEES_ALL, SEES_REQUESTS, PageRoute, TheLedger, Visitor, visiting

router = APIRouter(route_class=PageRoute, include_in_schema=False)
# Waiting requests of a model that are looked at, the most urgent first.
LOOKED_AT = 1000
# Requests that the page names.
NAMED = 5
# Days ahead at which a retraining that comes due is named.
REBASE_SOON_DAYS = 30


@dataclasses.dataclass(frozen=True)
class Standing:
    """A model, and what waits for it.

    Attributes
    ----------
    waiting
        The most urgent requests that wait, at most `LOOKED_AT`.
    rebase
        By when its base should be replaced.
    """

    model: Model
    version: Version
    base: Version
    waiting: Sequence[Asked]
    rebase: datetime.date

    @property
    def due(self) -> Asked | None:
        """The request that is due first."""
        return self.waiting[0] if self.waiting else None

    @property
    def is_cut(self) -> bool:
        """Whether there are more than were looked at."""
        return len(self.waiting) == LOOKED_AT


@dataclasses.dataclass(frozen=True)
class Attention:
    """Something that somebody should look at: how many, what, where, and how it is marked."""

    number: int | None
    sentence: str
    address: str
    tone: str
    sign: str


@router.get("/")
def overview(
    request: Request,
    visitor: Annotated[Visitor, Depends(visiting())],
    ledger: TheLedger,
) -> Response:
    """What one should know first."""
    if not visitor.caller.may(*SEES_REQUESTS):
        return show(request, "nothing.html")
    today = ledger.today
    if not visitor.caller.may(*SEES_ALL):
        own = ledger.requests(client=visitor.client, limit=NAMED)
        return show(request, "own.html", models=ledger.models(), requests=own, today=today)
    standings = [_standing(ledger, model) for model in ledger.models()]
    urgent = sorted((r for each in standings for r in each.waiting), key=lambda r: (r.due, r.id))
    numbers = ledger.number_by_state()
    return show(
        request,
        "overview.html",
        today=today,
        standings=standings,
        urgent=urgent[:NAMED],
        numbers=numbers,
        bars=charts.shares(numbers),
        attention=_attention(standings, urgent, today),
        statistics=ledger.statistics(),
    )


def _standing(ledger: Ledger, model: Model) -> Standing:
    versions = {each.number: each for each in ledger.versions(model.name)}
    current = versions[model.head]
    base = versions[current.base]
    waiting = ledger.requests(model.name, states=WAITING, limit=LOOKED_AT, by_due=True)
    return Standing(model, current, base, waiting, words.rebase_date(model, base))


def _attention(
    standings: Sequence[Standing], urgent: Sequence[Asked], today: datetime.date
) -> list[Attention]:
    """What should not wait, the worst first."""
    late = sum((each.days_left(today) or 0) < 0 for each in urgent)
    to_decide = sum(each.state is RequestState.RECEIVED for each in urgent)
    held = [each for each in urgent if each.state is RequestState.APPROVED and each.hold is not None]
    retrain = sum(each.state is RequestState.NEEDS_RETRAIN for each in urgent)
    found = []
    if late:
        what = "request is overdue" if late == 1 else "requests are overdue"
        found.append(Attention(late, what, "/requests?overdue=yes", "bad", "▲"))
    if retrain:
        what = ("request needs" if retrain == 1 else "requests need") + " a model that is trained anew"
        found.append(Attention(retrain, what, "/requests?state=needs_retrain", "bad", "▲"))
    for each in standings:
        left = (each.rebase - today).days
        if left <= REBASE_SOON_DAYS:
            what = f"Retraining of {each.model.name} is due: {words.days_words(left)}"
            address = f"/models/{words.segment(each.model.name)}"
            found.append(Attention(None, what, address, "bad" if left < 0 else "warn", "↻"))
    if held:
        what = "approved request is on hold" if len(held) == 1 else "approved requests are on hold"
        one = f"/requests/{held[0].id}" if len(held) == 1 else "/requests?state=approved"
        found.append(Attention(len(held), what, one, "warn", "‖"))
    if to_decide:
        what = "request waits" if to_decide == 1 else "requests wait"
        address = "/requests?state=received"
        found.append(Attention(to_decide, f"{what} for a decision", address, "wait", "○"))
    return found
