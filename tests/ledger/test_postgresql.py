"""The same on PostgreSQL: requests take effect once, through a crash, and after moving there."""

import itertools

import numpy as np
import pytest

import unbayes as ub
from ledger.postgresql import folder_of_binaries, running
from problems import KEY
from unbayes.ledger import Conflict, DatabaseProblem, Ledger, Records, RequestState, schema

pytest.importorskip("psycopg", reason="needs the extra postgresql")
ROWS = 100
numbers = itertools.count()


@pytest.fixture(scope="module")
def server():
    if (binaries := folder_of_binaries()) is None:
        pytest.skip("there is no PostgreSQL here: no initdb and pg_ctl")
    with running(binaries) as server:
        yield server


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, 2))
    y = x @ [1.0, -2.0] + 0.3 * rng.normal(size=ROWS)
    model = ub.linear_regression(2, prior_scale=3.0, noise_scale=0.3)
    ids = [f"r{i}" for i in range(ROWS)]
    trained = ub.fit(model, (x, y), ids=ids, key=KEY)
    path = tmp_path_factory.mktemp("trained") / "model.unbayes"
    notes = {"columns": ["a", "b"], "target": "y"}
    ub.save(path, trained.posterior, model, memory=trained.memory, notes=notes)

    def records(*rows):
        return Records.of_arrays(x[list(rows)], y[list(rows)], [ids[row] for row in rows])

    def mean_without(*rows):
        rows, names = list(rows), [ids[row] for row in rows]
        erased, memory = (x[rows], y[rows]), trained.memory
        found = ub.unlearn(trained.posterior, model, erased, memory=memory, ids=names, key=KEY)
        return found.posterior.mean

    return path, records, mean_without


def current_mean(ledger, tmp_path):
    ledger.serve_model("m", tmp_path / "current.unbayes")
    return ub.load(tmp_path / "current.unbayes").posterior.mean


def new_ledger(tmp_path, path, db):
    ledger = Ledger.create(tmp_path / f"ledger{next(numbers)}", db=db)
    ledger.register("m", path, ids="id")
    return ledger


def ask(ledger, records, subject):
    return ledger.approve(ledger.request("m", subject=subject, rows=records).id)


def test_requests_take_effect_once_through_a_crash_of_the_server(server, trained, tmp_path):
    path, records, mean_without = trained
    ledger = new_ledger(tmp_path, path, server.new_database("crash"))
    ask(ledger, records(0, 1), "a")
    ledger.apply("m")
    waiting = ask(ledger, records(1, 2), "b")
    server.stop("immediate")
    with pytest.raises(DatabaseProblem, match="does not answer"):
        ledger.apply("m")
    server.start()
    ledger.apply("m")
    assert ledger.show(waiting.id).state is RequestState.CLOSED
    np.testing.assert_allclose(current_mean(ledger, tmp_path), mean_without(0, 1, 2), atol=1e-9)
    ledger.verify_log()
    ledger.close()


def test_the_migrations_make_the_schema(server, trained, tmp_path):
    from alembic.autogenerate import compare_metadata
    from alembic.runtime.migration import MigrationContext

    with new_ledger(tmp_path, trained[0], server.new_database("schema")) as ledger:
        assert ledger._desk.database.revision() == schema.REVISION
        with ledger._desk.database.engine.connect() as connection:
            assert compare_metadata(MigrationContext.configure(connection), schema.metadata) == []


def test_moving_a_ledger_there(server, trained, tmp_path):
    path, records, mean_without = trained
    ledger = new_ledger(tmp_path, path, None)
    folder = ledger._desk.keys.folder.parent
    ask(ledger, records(0, 1), "a")
    ledger.apply("m")
    ask(ledger, records(2), "b")
    before = ledger.requests()
    url = server.new_database("moved")
    ledger.export(url)
    with pytest.raises(Conflict, match="must be an empty database"):
        ledger.export(url)
    ledger.close()
    with Ledger.open(folder) as moved:
        assert not moved._desk.database.is_sqlite
        assert moved.requests() == before
        assert ask(moved, records(3), "c").id == 3
        moved.apply("m")
        np.testing.assert_allclose(current_mean(moved, tmp_path), mean_without(0, 1, 2, 3), atol=1e-9)
        assert moved.verify_log().events > 10
