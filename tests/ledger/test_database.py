"""Many threads on one database: writers take turns, and nobody waits for a connection in vain."""

import threading

import pytest

from unbayes.ledger import DatabaseProblem, Ledger, LedgerError, database


def test_a_writer_who_waits_holds_no_connection(ledger):
    place = ledger._desk.database
    with place.writing():
        waiting = [threading.Thread(target=ledger.want, args=("m",)) for _ in range(5)]
        for each in waiting:
            each.start()
        waiting[0].join(0.2)
        assert all(each.is_alive() for each in waiting)
        assert place.engine.pool.checkedout() == 1
        assert ledger.model("m").wanted is None
    for each in waiting:
        each.join()
    assert ledger.model("m").wanted is not None


def test_patience_ends(ledger, monkeypatch):
    monkeypatch.setattr(database, "PATIENCE", 0.05)
    with ledger._desk.database.writing(), pytest.raises(DatabaseProblem, match="others have kept writing"):
        ledger.want("m")
    ledger.want("m")


def test_two_that_opened_one_ledger_take_turns_too(ledger, monkeypatch):
    monkeypatch.setattr(database, "PATIENCE", 0.05)
    impatient = pytest.raises(DatabaseProblem, match="others have kept writing")
    with Ledger.open(ledger._desk.keys.folder.parent) as other, other._desk.database.writing(), impatient:
        ledger.want("m")


def test_as_many_read_at_once_as_a_service_has_threads(ledger):
    together = threading.Barrier(40, timeout=30)
    seen = []

    def read():
        with ledger._desk.reading() as store:
            together.wait()
            seen.append(store.model("m").name)

    readers = [threading.Thread(target=read) for _ in range(40)]
    for each in readers:
        each.start()
    for each in readers:
        each.join()
    assert seen == ["m"] * 40


def test_too_many_are_told_so(ledger, monkeypatch):
    pool = ledger._desk.database.engine.pool
    monkeypatch.setattr(pool, "_timeout", 0.05)
    held = [ledger._desk.database.engine.connect() for _ in range(sum(database.FILE_POOL))]
    with pytest.raises(DatabaseProblem, match="too many others"):
        ledger.models()
    for each in held:
        each.close()
    assert len(ledger.models()) == 1


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "mysql://a/b", "nothing"])
def test_databases_that_are_none(tmp_path, url):
    with pytest.raises(LedgerError, match="db must be sqlite:///FILE"):
        Ledger.create(tmp_path / "ledger", db=url)
