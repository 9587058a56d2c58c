"""The outbox: which hooks are told of which events, written in the transaction of the events themselves."""

import datetime
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from unbayes.ledger import schema
from unbayes.ledger.clock import to_text
from unbayes.ledger.events import Event
from unbayes.ledger.log import Happening

# How long what was delivered, or given up, is kept for whoever looks into it.
KEPT = datetime.timedelta(days=30)
_HOOKS = sa.select(schema.hook.c.id, schema.hook.c.kinds)


def post(connection: Connection, time: str, happenings: Sequence[Happening], places: list[int]) -> list[int]:
    """Put events, given with their places in the log, before the hooks that want them; the places."""
    rows = []
    for hook in connection.execute(_HOOKS):
        wanted = hook.kinds.split()
        rows += [
            {"hook_id": hook.id, "sequence": place, "attempts": 0, "next_try": time}
            for each, place in zip(happenings, places, strict=True)
            if not wanted or each.kind in wanted
        ]
    if rows:
        connection.execute(schema.delivery.insert(), rows)
    return places


def head(connection: Connection, hook: int) -> Any:
    """The event that a hook is told of next; None where there is none."""
    table = schema.delivery
    mine = (table.c.hook_id == hook, table.c.next_try.is_not(None))
    return connection.execute(sa.select(table).where(*mine).order_by(table.c.sequence).limit(1)).first()


def forget(connection: Connection, now: datetime.datetime) -> int:
    """Delete what was delivered or given up long ago; how many there were."""
    table, event = schema.delivery, schema.event
    delivered = table.c.delivered < to_text(now - KEPT)
    number = connection.execute(table.delete().where(delivered)).rowcount
    given_up = (table.c.delivered.is_(None), table.c.next_try.is_(None))
    asked = sa.select(table.c.hook_id, table.c.sequence, event.c.body).where(*given_up)
    for row in connection.execute(asked.join(event, event.c.sequence == table.c.sequence)).all():
        if Event.from_body(bytes(row.body)).time < to_text(now - KEPT):
            mine = (table.c.hook_id == row.hook_id, table.c.sequence == row.sequence)
            number += connection.execute(table.delete().where(*mine)).rowcount
    return number
