"""The figures that laws ask for."""

import dataclasses
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from unbayes.ledger import Ledger
from unbayes.ledger.tokens import Scope
from unbayes.service.api.forms import Day
from unbayes.service.api.replies import AllStatisticsAnswer, StatisticsAnswer
from unbayes.service.api.shared import reply
from unbayes.service.authority import GuardedRoute, ledger_of, needs

router = APIRouter(prefix="/v1/statistics", tags=["statistics"], route_class=GuardedRoute)


@router.get("", response_model=AllStatisticsAnswer, dependencies=[Depends(needs(Scope.AUDIT, Scope.OPERATE))])
def statistics(
    since: Annotated[Day | None, Query(description="First day of receipt.")] = None,
    until: Annotated[Day | None, Query(description="Last day of receipt.")] = None,
    ledger: Ledger = Depends(ledger_of),
) -> Response:
    """Requests that were received in a time: what became of them, and days until an answer."""
    found = dataclasses.asdict(ledger.statistics(since, until))
    each = {name: _of(figures) for name, figures in found.pop("by_model").items()}
    return reply(AllStatisticsAnswer(by_model=each, **found))


def _of(figures: dict) -> StatisticsAnswer:
    return StatisticsAnswer(**{name: value for name, value in figures.items() if name != "by_model"})
