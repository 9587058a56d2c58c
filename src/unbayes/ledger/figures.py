"""How many requests there were, and how long their answers took: the figures that laws ask for."""

import dataclasses
import datetime
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from unbayes.ledger import schema
from unbayes.ledger.clock import from_text
from unbayes.ledger.desk import Desk
from unbayes.ledger.errors import LedgerError
from unbayes.ledger.states import TAKEN_OUT, WAITING, RequestState

DAY = datetime.timedelta(days=1)


@dataclasses.dataclass(frozen=True)
class Statistics:
    """Requests that were received in a time.

    Attributes
    ----------
    received
        How many there were; each is one of the four that follow.
    applied, denied, withdrawn, waiting
        What has become of them.
    overdue
        Waiting, and past their due date.
    answered_in_time
        Applied or denied on their due date or before it.
    mean_days, median_days
        From receipt until a request was applied or denied; None where none was.
    by_model
        The same of each model that had any, by name.
    """

    received: int
    applied: int
    denied: int
    withdrawn: int
    waiting: int
    overdue: int
    answered_in_time: int
    mean_days: float | None
    median_days: float | None
    by_model: dict[str, "Statistics"] = dataclasses.field(default_factory=dict)


def figures(desk: Desk, since: datetime.date | None = None, until: datetime.date | None = None) -> Statistics:
    """The figures of requests that were received from one day to another, both included."""
    if since is not None and until is not None and since > until:
        raise LedgerError(f"since must not be later than until, got {since} and {until}")
    table, conditions = schema.request, []
    if since is not None:
        conditions.append(table.c.received >= since.isoformat())
    if until is not None:
        # Later than any time of that day, which goes on with a T.
        conditions.append(table.c.received < until.isoformat() + "Z")
    columns = (table.c.state, table.c.received, table.c.due, table.c.ended)
    asked = sa.select(schema.model.c.name, *columns).join(schema.model).where(*conditions)
    by_model: dict[str, list[Any]] = {}
    with desk.reading() as store:
        for row in store.run(asked):
            by_model.setdefault(row.name, []).append(row)
    each = {name: _of(rows, desk.today) for name, rows in sorted(by_model.items())}
    whole = _of([row for rows in by_model.values() for row in rows], desk.today)
    return dataclasses.replace(whole, by_model=each)


def _of(rows: Sequence[Any], today: datetime.date) -> Statistics:
    answered = [row for row in rows if row.state in (*TAKEN_OUT, RequestState.DENIED)]
    waiting = [row for row in rows if row.state in WAITING]
    days = [(from_text(row.ended) - from_text(row.received)) / DAY for row in answered]
    return Statistics(
        received=len(rows),
        applied=_number(rows, TAKEN_OUT),
        denied=_number(rows, [RequestState.DENIED]),
        withdrawn=_number(rows, [RequestState.WITHDRAWN]),
        waiting=len(waiting),
        overdue=sum(row.due < today.isoformat() for row in waiting),
        answered_in_time=sum(row.ended[:10] <= row.due for row in answered),
        mean_days=statistics.fmean(days) if days else None,
        median_days=statistics.median(days) if days else None,
    )


def _number(rows: Iterable[Any], states: Iterable[RequestState]) -> int:
    wanted = set(states)
    return sum(row.state in wanted for row in rows)
