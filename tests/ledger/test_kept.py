"""Whoever has the database alone cannot take events off the log unnoticed."""

import shutil

import pytest
import sqlalchemy as sa

from ledger.setting import ask
from unbayes.ledger import Ledger, LedgerError, log, schema
from unbayes.ledger.checkpoint import read_checkpoint
from unbayes.ledger.errors import TamperedLog
from unbayes.ledger.kept import FILE, kept_checkpoint
from unbayes.ledger.merkle import Frontier, leaf_hash


@pytest.fixture
def busy(ledger, setting):
    """A ledger with two reports."""
    for row in (0, 1):
        ask(ledger, setting, row)
        ledger.apply("m")
    return ledger


def truncate(ledger, size):
    """What somebody can do who has the database: a shorter log that agrees with itself."""
    with ledger._desk.database.engine.connect() as connection, connection.begin():
        connection.exec_driver_sql("PRAGMA foreign_keys=OFF")
        for table in (schema.event, schema.opening):
            connection.execute(table.delete().where(table.c.sequence >= size))
        connection.execute(schema.checkpoint.delete())
        frontier = Frontier()
        for body in connection.scalars(sa.select(schema.event.c.body).order_by(schema.event.c.sequence)):
            frontier = frontier.append(leaf_hash(bytes(body)))
        connection.execute(schema.log_head.update(), {"size": size, "frontier": frontier.to_hex()})


def kept_file(ledger):
    return ledger._desk.keys.folder / FILE


def test_events_taken_off_the_end(busy):
    before = busy.verify_log()
    given_away = busy.checkpoint()
    assert (before.compared, before.covered) == (1, before.events - 1)
    truncate(busy, before.events - 4)
    with pytest.raises(TamperedLog, match="was signed over"):
        busy.verify_log()
    # Nor does it help to have the keys' folder in part, where somebody else has a checkpoint.
    kept_file(busy).unlink()
    assert busy.verify_log().compared == 0
    with pytest.raises(TamperedLog, match=f"over {before.events} events, but the log has"):
        busy.verify_log([given_away])
    assert not all(finding.is_fine for finding in busy.doctor()) or not kept_file(busy).exists()


def test_events_taken_off_and_others_put_in_their_place(busy, setting):
    given_away, kept = busy.checkpoint(), kept_file(busy).read_text()
    truncate(busy, busy.verify_log().events - 4)
    for row in range(2, 9):
        ask(busy, setting, row, approve=False)
    assert busy.log.state().size > read_checkpoint(given_away, busy.public_key).size
    with pytest.raises(TamperedLog, match="are not those that were signed"):
        busy.verify_log([given_away])
    with pytest.raises(TamperedLog):
        busy.verify_log()
    # Nobody signs it, and what is kept is not replaced.
    with pytest.raises(TamperedLog, match="does not continue the checkpoint"):
        busy.checkpoint()
    ask(busy, setting, 10)
    busy.apply("m")
    assert kept_file(busy).read_text() == kept == given_away
    assert "events are not those" in str([each for each in busy.doctor() if not each.is_fine])


def test_a_backup_that_was_brought_back(busy, setting, tmp_path, clock):
    database = tmp_path / "ledger" / "ledger.sqlite"
    backup = database.read_bytes()
    ask(busy, setting, 2)
    busy.apply("m")
    busy.close()
    database.write_bytes(backup)
    with Ledger.open(tmp_path / "ledger", clock=clock) as ledger:
        with pytest.raises(TamperedLog):
            ledger.verify_log()
        kept_file(ledger).unlink()
        assert ledger.verify_log().compared == 0


def test_the_newest_is_kept(ledger, setting):
    assert kept_checkpoint(ledger._desk.keys) is None
    assert ledger.verify_log().compared == 0
    ask(ledger, setting, 0)
    ledger.apply("m")
    first = kept_checkpoint(ledger._desk.keys)
    assert first is not None
    assert kept_file(ledger).stat().st_mode & 0o777 == 0o600
    text = ledger.checkpoint()
    assert kept_file(ledger).read_text() == text
    state = ledger.verify_log([text, text])
    assert (state.compared, state.covered) == (3, state.events)
    assert first.size == state.events - 1


def test_whoever_was_killed_before_it_was_kept_leaves_it_to_the_next(busy, tmp_path, clock):
    text = kept_file(busy).read_text()
    kept_file(busy).unlink()
    busy.close()
    with Ledger.open(tmp_path / "ledger", clock=clock) as ledger:
        ledger.finish()
        assert kept_file(ledger).read_text() == text


@pytest.mark.parametrize("damage", ["", "no checkpoint", "é".encode("latin-1")])
def test_a_damaged_one_is_said_and_stops_nothing_else(busy, setting, damage):
    kept_file(busy).write_bytes(damage if isinstance(damage, bytes) else damage.encode())
    with pytest.raises(LedgerError, match="checkpoint"):
        busy.verify_log()
    assert ask(busy, setting, 2).id in busy.apply("m").requests
    assert not all(finding.is_fine for finding in busy.doctor())


def test_a_checkpoint_by_another_key(busy, tmp_path):
    with Ledger.create(tmp_path / "other") as other:
        text = other.checkpoint()
    with pytest.raises(LedgerError, match="not signed by the key"):
        busy.verify_log([text])


def test_a_checkpoint_of_another_ledger_with_the_same_key(busy, tmp_path):
    Ledger.create(tmp_path / "other").close()
    shutil.rmtree(tmp_path / "other" / "keys")
    shutil.copytree(busy._desk.keys.folder, tmp_path / "other" / "keys")
    (tmp_path / "other" / "keys" / FILE).unlink()
    with Ledger.open(tmp_path / "other") as other, pytest.raises(TamperedLog, match="of another ledger"):
        busy.verify_log([other.checkpoint()])


def test_progress_is_told_of_all_events(ledger, monkeypatch):
    from contextlib import contextmanager

    from unbayes.progress import AbstractProgress

    monkeypatch.setattr(log, "TOLD", 2)
    told = []

    class Meter(AbstractProgress):
        @contextmanager
        def track(self, description, total):
            yield lambda steps, note: told.append((steps, total))

    for _ in range(3):
        ledger.tokens.create("somebody", ["audit"])
    events = ledger.verify_log(progress=Meter()).events
    assert events == 5
    assert told == [(2, 5), (2, 5), (1, 5)]
