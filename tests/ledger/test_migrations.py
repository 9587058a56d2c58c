"""A ledger that was made with the first schema is opened with the newest one, and nothing is lost."""

import json
import shutil

import pytest
import sqlalchemy as sa

from ledger.postgresql import folder_of_binaries, running
from ledger.setting import ask, current, require_equal
from unbayes.ledger import Ledger, ModelSettings, Records, RequestState, schema, verify_report
from unbayes.ledger.database import Database, migrate
from unbayes.ledger.events import EventKind
from unbayes.ledger.upkeep import _advance, write_address

# Tables, and columns, that the first schema did not have.
LATER = {"token": None, "hook": None, "delivery": None, "model": {"wanted", "progress"}}


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
def address(request, tmp_path):
    """The address of an empty database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'first.sqlite'}"
        return
    pytest.importorskip("psycopg", reason="needs the extra postgresql")
    if (binaries := folder_of_binaries()) is None:
        pytest.skip("there is no PostgreSQL here: no initdb and pg_ctl")
    with running(binaries) as server:
        yield server.new_database("first")


def live(ledger, setting):
    """Requests in all kinds of states; which of them waits."""
    closed = [ask(ledger, setting, row, idempotency_key=f"k{row}").id for row in (0, 1)]
    ledger.apply("m")
    denied, withdrawn, extended = (ask(ledger, setting, row, approve=False).id for row in (2, 3, 4))
    ledger.deny(denied, "a ground")
    ledger.withdraw(withdrawn)
    ledger.extend(extended, days=10, reason="a reason")
    held = ledger.request("m", subject="x", rows=Records.of_arrays([[1.0, 1.0]], [0.0], ["nobody"])).id
    ledger.approve(held)
    ledger.apply("m")
    ledger.checkpoint()
    return closed, ask(ledger, setting, 5).id


def as_at_first(source, address):
    """The same rows in a database with the first schema, as far as it has a place for them."""
    target = sa.create_engine(address.replace("postgresql:", "postgresql+psycopg:"))
    with target.begin() as copy, source.reading() as connection:
        migrate(copy, "0001")
        first = sa.MetaData()
        first.reflect(copy)
        for table in schema.metadata.sorted_tables:
            later = LATER.get(table.name, set())
            if later is None:
                assert table.name not in first.tables
                continue
            names = [column.name for column in table.c if column.name not in later]
            assert set(names) == set(first.tables[table.name].c.keys())
            rows = [
                dict(row)
                for row in connection.execute(sa.select(*(table.c[name] for name in names))).mappings()
            ]
            if table.name == "model":
                for row in rows:
                    row["settings"] = without_later_settings(row["settings"])
            if rows:
                copy.execute(first.tables[table.name].insert(), rows)
            _advance(copy, table)
    target.dispose()


def without_later_settings(text):
    settings = json.loads(text)
    del settings["four_eyes"]
    return json.dumps(settings)


def test_everything_is_still_there(ledger, setting, address, clock, tmp_path):
    closed, waiting = live(ledger, setting)
    before = ledger.requests(limit=None)
    reports = {number: ledger.report(number) for number in closed}
    state, versions, model = ledger.verify_log(), ledger.versions("m"), ledger.model("m")
    checkpoints, events = ledger.log.checkpoints(), ledger.log.events(0, 1000)
    as_at_first(ledger._desk.database, address)
    folder = tmp_path / "old"
    shutil.copytree(ledger._desk.keys.folder, folder / "keys")
    write_address(folder, address)
    with Ledger.open(folder, clock=clock) as upgraded:
        assert upgraded._desk.database.revision() == schema.REVISION
        assert upgraded.requests(limit=None) == before
        assert (upgraded.verify_log(), upgraded.versions("m")) == (state, versions)
        assert (upgraded.log.checkpoints(), upgraded.log.events(0, 1000)) == (checkpoints, events)
        assert upgraded.model("m") == model
        assert upgraded.model("m").settings == ModelSettings()
        assert {number: upgraded.report(number) for number in closed} == reports
        for report in reports.values():
            verify_report(report, upgraded.public_key)
        # What is new works, too.
        token, shown = upgraded.tokens.create("somebody", ["audit"])
        assert upgraded.tokens.find(shown) == token
        hook, _ = upgraded.hooks.add("https://a.example/", [EventKind.REQUEST_CLOSED])
        upgraded.want("m")
        assert ask(upgraded, setting, 0, approve=True, idempotency_key="new").id == waiting + 1
        assert upgraded.apply("m").requests == (waiting, waiting + 1)
        assert upgraded.hooks.all()[0].waiting == 2
        assert hook.id == token.id == 1
        assert upgraded.show(waiting).state is RequestState.CLOSED
        require_equal(current(upgraded, tmp_path), setting.without(0, 1, 5))
        upgraded.verify_log()


def test_the_migrations_make_the_schema(tmp_path):
    from alembic.autogenerate import compare_metadata
    from alembic.runtime.migration import MigrationContext

    database = Database.open(f"sqlite:///{tmp_path / 'new.sqlite'}")
    with database.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), schema.metadata) == []
        indexes = sa.inspect(connection).get_indexes("delivery")
    database.close()
    assert [each["name"] for each in indexes] == ["ix_delivery_waiting"]


def test_the_next_event_of_a_hook_is_found_without_looking_at_those_before(tmp_path):
    database = Database.open(f"sqlite:///{tmp_path / 'plan.sqlite'}")
    with database.reading() as connection:
        asked = "SELECT * FROM delivery WHERE hook_id = 1 AND next_try IS NOT NULL ORDER BY sequence LIMIT 1"
        (plan,) = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {asked}").all()
        mine = "SELECT id FROM request WHERE client = 'a' ORDER BY id DESC LIMIT 9"
        (other,) = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {mine}").all()
    database.close()
    assert "USING INDEX ix_delivery_waiting (hook_id=?)" in plan.detail
    assert "ix_request_client_id (client=?)" in other.detail
