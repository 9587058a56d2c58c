"""The database: SQLite in the ledger's folder, or PostgreSQL. Opening it brings its schema up to date."""

import contextlib
import functools
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event, exc
from sqlalchemy.engine import URL, Connection, Engine, make_url

from unbayes.ledger import schema
from unbayes.ledger.errors import DatabaseProblem, LedgerError

MIGRATIONS = Path(__file__).with_name("migrations")
# Write-ahead logs of earlier versions could be damaged when they were reset.
SOUND_WAL = (3, 51, 3)
# Seconds to wait for another writer.
PATIENCE = 60.0
# Connections that are kept, and that are made beyond them: a service has about 40 threads, and a server of
# PostgreSQL takes 100 connections, unless it is told otherwise, from all its clients together.
FILE_POOL, SERVER_POOL = (20, 30), (10, 15)
WRITING = "BEGIN IMMEDIATE"
# Any number that no other program locks.
UPGRADING = 7_061_706


class Database:
    """Connections whose transactions take effect whole, one writer at a time."""

    def __init__(self, engine: Engine):
        self.engine = engine
        # SQLite's transactions always see one state.
        self._snapshots = (
            engine if self.is_sqlite else engine.execution_options(isolation_level="REPEATABLE READ")
        )

    @classmethod
    def open(cls, url: str) -> "Database":
        """Connect, and bring the schema up to date."""
        parsed = _read_url(url)
        engine = _sqlite(parsed) if parsed.get_backend_name() == "sqlite" else _postgresql(parsed)
        database = cls(engine)
        with database._problems():
            database._upgrade()
        return database

    @property
    def is_sqlite(self) -> bool:
        """Whether it is a file."""
        return self.engine.dialect.name == "sqlite"

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that sees one state of the database."""
        with self._problems(), self._snapshots.connect() as connection, connection.begin():
            yield connection

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """The one transaction that writes: it takes effect whole at the end of the block, or not at all."""
        with self._problems(), self._one_at_a_time(), self.engine.connect() as connection:
            connection = connection.execution_options(begin=WRITING)
            with connection.begin():
                if not self.is_sqlite:
                    connection.execute(sa.select(schema.log_head.c.id).with_for_update())
                yield connection

    def close(self) -> None:
        """Let go of all connections."""
        self.engine.dispose()

    def describe(self) -> dict[str, Any]:
        """Which database it is, and how it keeps what it is told."""
        with self.reading() as connection:
            if self.is_sqlite:
                ask = {name: f"PRAGMA {name}" for name in ("journal_mode", "synchronous", "secure_delete")}
                found = {name: connection.exec_driver_sql(text).scalar() for name, text in ask.items()}
                return {"database": f"SQLite {sqlite3.sqlite_version}", **found}
            return {"database": str(connection.exec_driver_sql("SELECT version()").scalar())}

    def revision(self) -> str | None:
        """The schema that the database has; None for a new one."""
        with self.engine.connect() as connection:
            if not sa.inspect(connection).has_table("alembic_version"):
                return None
            return connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()

    def _upgrade(self) -> None:
        """Run the migrations that are missing; Alembic is imported only then."""
        if self.revision() == schema.REVISION:
            return
        with self.engine.connect().execution_options(begin=WRITING) as connection, connection.begin():
            if not self.is_sqlite:
                # Two processes that open a new ledger at once take turns.
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({UPGRADING})")
            migrate(connection)

    @contextlib.contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        """Writers of this process wait for each other here, and hold no connection meanwhile."""
        turn = _turn(str(self.engine.url))
        if not turn.acquire(timeout=PATIENCE):
            raise DatabaseProblem("the database does not answer: others have kept writing to it for too long")
        try:
            yield
        finally:
            turn.release()

    @contextlib.contextmanager
    def _problems(self) -> Iterator[None]:
        """What the database says, as a sentence."""
        try:
            yield
        except exc.IntegrityError:
            raise
        except exc.DBAPIError as error:
            raise DatabaseProblem(f"the database does not answer: {_words(error)}") from error
        except exc.TimeoutError as error:
            raise DatabaseProblem("the database does not answer: too many others ask it") from error


@functools.cache
def _turn(_url: str) -> threading.Lock:
    """The lock of those who write to one database."""
    return threading.Lock()


def _words(error: exc.DBAPIError) -> str:
    """The first line of what a driver says: never its parameters."""
    lines = str(error.orig).strip().splitlines()
    return lines[0] if lines else type(error.orig).__name__


def _read_url(url: str) -> URL:
    try:
        parsed = make_url(url)
    except exc.ArgumentError:
        parsed = None
    if parsed is None or parsed.get_backend_name() not in ("sqlite", "postgresql") or not parsed.database:
        raise LedgerError("db must be sqlite:///FILE or postgresql://USER@HOST/NAME")
    return parsed


def _postgresql(url: URL) -> Engine:
    kept, more = SERVER_POOL
    try:
        return sa.create_engine(
            url.set(drivername="postgresql+psycopg"),
            pool_size=kept,
            max_overflow=more,
            pool_pre_ping=True,
            connect_args={"connect_timeout": 10},
        )
    except ModuleNotFoundError as error:
        raise DatabaseProblem("PostgreSQL needs pip install 'unbayes[postgresql]'") from error


def _sqlite(url: URL) -> Engine:
    kept, more = FILE_POOL
    engine = sa.create_engine(
        url, poolclass=sa.QueuePool, pool_size=kept, max_overflow=more, connect_args={"timeout": PATIENCE}
    )
    journal = "WAL" if sqlite3.sqlite_version_info >= SOUND_WAL else "DELETE"

    def prepare(connection: sqlite3.Connection, _record: Any) -> None:
        # The driver would begin transactions in its own way.
        connection.isolation_level = None
        # EXTRA: what has taken effect stays so even if the power fails, for keys are destroyed upon it.
        for pragma in (f"journal_mode={journal}", "synchronous=EXTRA", "secure_delete=ON", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")

    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))

    event.listen(engine, "connect", prepare)
    event.listen(engine, "begin", begin)
    return engine


def migrate(connection: Connection, revision: str = "head") -> None:
    """Bring the schema to a revision, in the transaction of the connection."""
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, revision)
    except CommandError as error:
        raise DatabaseProblem(
            f"this version of unbayes does not know the database's schema: {error}"
        ) from error
