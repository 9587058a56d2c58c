"""Looking after a ledger: what is left undone, what need not be kept, what is wrong; and moving it."""

import dataclasses
import datetime
from collections.abc import Callable
from pathlib import Path

import sqlalchemy as sa

from unbayes._replace import replacing
from unbayes.ledger import outbox, schema
from unbayes.ledger.bases import read_file
from unbayes.ledger.clock import to_text
from unbayes.ledger.database import Database
from unbayes.ledger.desk import Desk
from unbayes.ledger.errors import Conflict, LedgerError
from unbayes.ledger.issuing import finish
from unbayes.ledger.kept import verify_log
from unbayes.ledger.states import WAITING, RequestState
from unbayes.ledger.store import MOVED, Store

# How long what a request was about is kept after its end: California asks for 24 months.
RETENTION = datetime.timedelta(days=730)
# Where the folder of a ledger says which database it uses, if it is not in it.
ADDRESS = "database.url"
# Rows that are copied at a time.
AT_ONCE = 5000


@dataclasses.dataclass(frozen=True)
class Finding:
    """Something that was looked at.

    Attributes
    ----------
    is_fine
        Whether nothing has to be done.
    what
        A sentence.
    """

    is_fine: bool
    what: str


def collect(desk: Desk) -> dict[str, int]:
    """Finish what was left undone, and delete details of requests that ended, and deliveries, long ago."""
    closed = finish(desk)
    before = to_text(desk.clock() - RETENTION)
    with desk.writing() as store:
        ended = sa.select(schema.request.c.id).where(schema.request.c.ended < before)
        events = sa.select(schema.event.c.sequence).where(schema.event.c.request_id.in_(ended))
        forgotten = store.run(schema.opening.delete().where(schema.opening.c.sequence.in_(events))).rowcount
        told = outbox.forget(store.connection, desk.clock())
    return {"closed": closed, "forgotten": forgotten, "told": told}


def examine(desk: Desk) -> list[Finding]:
    """Look at the database, the keys, the log, the models and the deadlines."""
    described = ", ".join(f"{name} {value}" for name, value in desk.database.describe().items())
    found = [Finding(True, described)]
    try:
        state = verify_log(desk)
        found.append(
            Finding(True, f"the log is whole: {state.events} events, {state.checkpoints} checkpoints")
        )
    except LedgerError as error:
        found.append(Finding(False, str(error)))
    with desk.reading() as store:
        left = len(store.to_shred())
        found.append(
            Finding(not left, f"{left} keys wait to be destroyed" + (": unbayes gc" if left else ""))
        )
        for model in store.models():
            head = store.version(model, model.head)
            base = store.version(model, head.base)
            try:
                for number in {head.number, base.number}:
                    read_file(desk, store, model, number)
                found.append(Finding(True, f"{model.name}: version {head.number} can be read"))
            except LedgerError as error:
                found.append(Finding(False, f"{model.name}: {error}"))
            age = (desk.today - datetime.date.fromisoformat(base.created[:10])).days
            is_fine = age <= model.settings.rebase_days
            found.append(
                Finding(is_fine, f"{model.name}: its base is {age} days old, of {model.settings.rebase_days}")
            )
        overdue = len(store.requests(states=WAITING, overdue_on=desk.today))
        found.append(Finding(not overdue, f"{overdue} requests are overdue"))
        held = [r for r in store.requests(states=[RequestState.APPROVED]) if r.hold is not None]
        found.append(Finding(not held, f"{len(held)} approved requests are on hold"))
        retrain = len(store.requests(states=[RequestState.NEEDS_RETRAIN]))
        found.append(Finding(not retrain, f"{retrain} requests wait for a model that is trained anew"))
    return found


def export(desk: Desk, db: str, progress: Callable[[str], None]) -> None:
    """Copy all tables to an empty database in one transaction, check the log there, and use that.

    Nobody writes here while it is copied, nor afterwards: what still has this database open is refused.
    Whoever is killed between the two can do it again.
    """
    target, folder = Database.open(db), desk.keys.folder.parent
    try:
        with desk.database.writing() as source:
            with target.engine.begin() as copy:
                if not _is_copied(source, copy) or _is_address(folder, db):
                    _copy_all(source, copy, progress)
                    verify_log(desk, copy=copy)
            if not Store(source).has_moved():
                Store(source).add_settings(**{MOVED: to_text(desk.clock())})
    finally:
        target.close()
    write_address(folder, db)


def _is_copied(source: sa.Connection, target: sa.Connection) -> bool:
    """Whether this is where the ledger has moved, and nothing has happened there since."""
    if not Store(source).has_moved() or not Store(target).has_settings():
        return False
    head = sa.select(schema.log_head.c.size, schema.log_head.c.frontier)
    return source.execute(head).one() == target.execute(head).one()


def _is_address(folder: Path, db: str) -> bool:
    place = folder / ADDRESS
    return place.exists() and place.read_text().strip() == db


def _copy_all(source: sa.Connection, target: sa.Connection, progress: Callable[[str], None]) -> None:
    if Store(target).has_settings():
        raise Conflict("db must be an empty database, but there is a ledger in it already")
    if Store(source).has_moved():
        raise Conflict("this ledger has moved to another database before")
    for table in schema.metadata.sorted_tables:
        progress(f"{table.name}: {_copy(table, source, target)}")


def _copy(table: sa.Table, source: sa.Connection, target: sa.Connection) -> int:
    """Copy a table's rows, and let PostgreSQL number new ones after them."""
    number = 0
    rows = source.execute(sa.select(table)).mappings()
    while some := rows.fetchmany(AT_ONCE):
        target.execute(table.insert(), [dict(row) for row in some])
        number += len(some)
    _advance(target, table)
    return number


def write_address(folder: Path, db: str) -> None:
    """Let the ledger in a folder use a database elsewhere."""
    with replacing(folder / ADDRESS) as file:
        file.write(f"{db}\n".encode())
    (folder / ADDRESS).chmod(0o600)


def _advance(copy: sa.Connection, table: sa.Table) -> None:
    """Let PostgreSQL number new rows after those that are there."""
    key = table.primary_key.columns.values()
    if copy.dialect.name != "postgresql" or len(key) != 1 or key[0].autoincrement is False:
        return
    if not isinstance(key[0].type, sa.Integer) or key[0].foreign_keys:
        return
    last = copy.scalar(sa.select(sa.func.max(key[0])))
    if last is not None:
        sequence = f"pg_get_serial_sequence('{table.name}', '{key[0].name}')"
        copy.exec_driver_sql(f"SELECT setval({sequence}, {int(last)})")
