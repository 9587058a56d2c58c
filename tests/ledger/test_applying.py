"""Requests take effect once: the version is what one call on all their records gives."""

import datetime
import itertools

import numpy as np
import pytest
import sqlalchemy as sa

import unbayes as ub
from ledger.setting import KEY, START, ask, current, require_equal
from unbayes.ledger import (
    Conflict,
    KeyDestroyed,
    Ledger,
    LedgerError,
    ModelSettings,
    NotFound,
    Records,
    RequestState,
    Submission,
    schema,
    verify_report,
)
from unbayes.ledger.intake import payload_label


@pytest.mark.parametrize("order", list(itertools.permutations(range(3)))[::2])
def test_several_applies_are_one_call_in_any_order(ledger, setting, tmp_path, order):
    parts = [(0, 1), (2,), (3, 4, 5)]
    for place in order:
        ask(ledger, setting, *parts[place])
        ledger.apply("m")
    assert ledger.current("m").number == 4
    assert ledger.current("m").erased == 6
    require_equal(current(ledger, tmp_path), setting.without(*range(6)))


def test_a_record_in_several_requests_is_taken_out_once(ledger, setting, tmp_path):
    first, second = ask(ledger, setting, 0, 1), ask(ledger, setting, 1, 2)
    ledger.apply("m")
    third = ask(ledger, setting, 2, 0)
    applied = ledger.apply("m")
    assert applied.version == 2
    assert applied.records == 0
    counts = [(r.erased, r.already, r.unknown) for r in (ledger.show(n.id) for n in (first, second, third))]
    assert counts == [(2, 0, 0), (1, 1, 0), (0, 2, 0)]
    assert {ledger.show(n.id).state for n in (first, second, third)} == {RequestState.CLOSED}
    require_equal(current(ledger, tmp_path), setting.without(0, 1, 2))


def test_submitting_again_changes_nothing(ledger, setting):
    first = ask(ledger, setting, 0, approve=False, idempotency_key="k")
    assert ask(ledger, setting, 0, approve=False, idempotency_key="k").id == first.id
    assert ask(ledger, setting, 0, approve=False, idempotency_key="k", client="other").id != first.id
    with pytest.raises(Conflict, match="used for another request"):
        ask(ledger, setting, 1, approve=False, idempotency_key="k")
    assert sum(ledger.number_by_state().values()) == 2


def test_many_are_taken_in_or_none(ledger, setting):
    wrong = Records.of_arrays([[1.0]], [1.0], ["x"])
    with pytest.raises(LedgerError, match="3 columns"):
        ledger.request_many("m", [Submission("p", setting.records(0)), Submission("q", wrong)])
    assert ledger.number_by_state() == {}
    assert len(ledger.request_many("m", [Submission(f"p{i}", setting.records(i)) for i in range(30)])) == 30


def test_what_is_withdrawn_or_denied_has_no_effect(ledger, setting, tmp_path):
    ask(ledger, setting, 0)
    withdrawn, denied = ask(ledger, setting, 1), ask(ledger, setting, 2, approve=False)
    ledger.withdraw(withdrawn.id)
    ledger.deny(denied.id, "a ground")
    ledger.apply("m")
    require_equal(current(ledger, tmp_path), setting.without(0))
    with pytest.raises(Conflict):
        ledger.approve(denied.id)
    with pytest.raises(NotFound):
        ledger.report(denied.id)


def test_records_that_were_never_there_hold_a_request_back(ledger, setting, tmp_path):
    stranger = Records.of_arrays([[1.0, 1.0]], [0.0], ["nobody"])
    mixed = Records.together([setting.records(5), stranger])
    request = ledger.approve(ledger.request("m", subject="p", rows=mixed).id)
    ask(ledger, setting, 6)
    assert list(ledger.apply("m").held) == [request.id]
    assert "1 of 2 records" in (ledger.show(request.id).hold or "")
    require_equal(current(ledger, tmp_path), setting.without(6))
    ledger.approve(request.id, missing="skip")
    ledger.apply("m")
    found = ledger.show(request.id)
    assert (found.state, found.erased, found.unknown) == (RequestState.CLOSED, 1, 1)
    require_equal(current(ledger, tmp_path), setting.without(5, 6))


def test_what_is_too_much_waits_for_a_new_model(tmp_path, setting, clock):
    """Half of the records of a logistic regression, without a memory, and a tolerance that asks for much."""
    y = (setting.y > 0).astype(float)
    model = ub.logistic_regression(2, prior_scale=3.0)
    trained = ub.fit(model, (setting.x, y), ids=setting.ids, key=KEY)
    notes = {"columns": ["a", "b"], "target": "y"}
    ub.save(tmp_path / "m", trained.posterior, model, memory=trained.memory, notes=notes)
    with Ledger.create(tmp_path / "ledger", clock=clock) as ledger:
        ledger.register("m", tmp_path / "m", ids="id", settings=ModelSettings(accept="trusted"))
        rows = np.argsort(setting.x[:, 0])[:150]
        quiet = np.argsort((setting.x**2).sum(1))[:1]
        rows = rows[rows != quiet[0]]
        many = Records.of_arrays(setting.x[rows], y[rows], [setting.ids[row] for row in rows])
        few = Records.of_arrays(setting.x[quiet], y[quiet], [setting.ids[row] for row in quiet])
        for subject, records in (("many", many), ("few", few)):
            ledger.approve(ledger.request("m", subject=subject, rows=records).id)
        applied = ledger.apply("m")
        assert list(applied.needs_retrain) == [1]
        assert applied.requests == (2,)
        assert ledger.show(1).state is RequestState.NEEDS_RETRAIN
        assert "would be" in (ledger.show(1).hold or "")
        with pytest.raises(Conflict, match="trained anew"):
            ledger.approve(1)


def test_two_who_apply_at_once_apply_once(ledger, setting, tmp_path, monkeypatch):
    from unbayes.ledger import applying
    from unbayes.ledger.errors import Locked

    ask(ledger, setting, 0)
    solve = applying._solve
    other = Ledger.open(tmp_path / "ledger", clock=ledger._desk.clock)

    def meanwhile(work, progress):
        with pytest.raises(Locked, match="somebody else is at work"):
            other.apply("m")
        return solve(work, progress)

    monkeypatch.setattr(applying, "_solve", meanwhile)
    assert ledger.apply("m").requests == (1,)
    other.close()
    require_equal(current(ledger, tmp_path), setting.without(0))


def test_whoever_was_taken_over_cannot_write(ledger, setting, clock, tmp_path, monkeypatch):
    """A worker sleeps through its lease; another one does the work; the first wakes up."""
    from unbayes.ledger import applying

    ask(ledger, setting, 0)
    solve = applying._solve
    other = Ledger.open(tmp_path / "ledger", clock=clock)

    def asleep(work, progress):
        monkeypatch.setattr(applying, "_solve", solve)
        clock.now += datetime.timedelta(hours=1)
        assert other.apply("m").version == 2
        return solve(work, progress)

    monkeypatch.setattr(applying, "_solve", asleep)
    with pytest.raises(Conflict, match="nothing was written"):
        ledger.apply("m")
    other.close()
    assert ledger.current("m").number == 2
    require_equal(current(ledger, tmp_path), setting.without(0))


def test_withdrawn_while_it_is_applied(ledger, setting, tmp_path, monkeypatch):
    from unbayes.ledger import applying

    first, second = ask(ledger, setting, 0), ask(ledger, setting, 1)
    solve = applying._solve

    def meanwhile(work, progress):
        monkeypatch.setattr(applying, "_solve", solve)
        ledger.withdraw(first.id)
        return solve(work, progress)

    monkeypatch.setattr(applying, "_solve", meanwhile)
    with pytest.raises(Conflict):
        ledger.apply("m")
    assert ledger.apply("m").requests == (second.id,)
    require_equal(current(ledger, tmp_path), setting.without(1))


def test_a_clock_that_jumps_back_holds_nothing_up(ledger, setting, clock):
    ask(ledger, setting, 0)
    clock.now += datetime.timedelta(days=100)
    with ledger._desk.writing() as store:
        store.take_lease(store.model("m"), "elsewhere:1:x", "2027-03-01T00:00:00.000000Z", "9999")
    clock.now = START
    assert ledger.apply("m").requests == (1,)
    ledger.verify_log()


def test_nothing_of_a_request_is_kept(ledger, setting, tmp_path):
    canary = 1234.5678901234
    x, y = np.array([[canary, 0.5]]), np.array([canary])
    records = Records.of_arrays(x, y, ["canary-record"])
    request = ledger.request("m", subject="canary-person", rows=records, missing="skip")
    backup = (tmp_path / "ledger" / "ledger.sqlite").read_bytes()
    wanted = [b"canary-", str(canary).encode(), np.float64(canary).tobytes(), np.float32(canary).tobytes()]

    def require_nothing():
        for path in (tmp_path / "ledger").rglob("*"):
            data = path.read_bytes() if path.is_file() else b""
            assert not [each for each in wanted if each in data], path

    require_nothing()
    with ledger._desk.reading() as store:
        ((_, sealed),) = store.payloads([request])
    assert bytes(sealed) in backup
    assert (
        canary
        in Records.from_bytes(
            ledger._desk.keys.unseal(request.secret_id, sealed, payload_label(request.id))
        ).numbers
    )
    ledger.approve(request.id)
    ledger.apply("m")
    assert ledger.show(request.id).state is RequestState.CLOSED
    require_nothing()
    assert not [each for each in wanted if each in ledger.report(request.id)]
    # Not even with a backup of the database from before.
    with pytest.raises(KeyDestroyed):
        ledger._desk.keys.unseal(request.secret_id, sealed, payload_label(request.id))


ALTERATIONS = {
    "a changed event": "UPDATE event SET body = replace(body, 'request_approved', 'request_withdrawn')",
    "changed bytes": "UPDATE event SET body = CAST(replace(body, 'approved', 'denied') AS BLOB)",
    "a removed event": "DELETE FROM event WHERE sequence = 2",
    "a moved event": "UPDATE event SET sequence = 1000 WHERE sequence = 2",
    "two that changed places": "UPDATE event SET sequence = CASE sequence WHEN 2 THEN -3 ELSE -2 END "
    "WHERE sequence IN (2, 3)",
    "a shorter log": "UPDATE log_head SET size = size - 1",
    "other details": "UPDATE opening SET details = '{}'",
    "a changed checkpoint": "UPDATE checkpoint SET text = replace(text, 'unbayes', 'unbaves')",
}


@pytest.mark.parametrize("alteration", ALTERATIONS)
def test_a_log_that_was_altered(ledger, setting, alteration):
    ask(ledger, setting, 0)
    ledger.apply("m")
    assert ledger.verify_log().checkpoints == 1
    with ledger._desk.database.engine.connect() as connection, connection.begin():
        connection.exec_driver_sql("PRAGMA foreign_keys=OFF")
        connection.exec_driver_sql(ALTERATIONS[alteration])
        connection.exec_driver_sql("UPDATE event SET sequence = -sequence WHERE sequence < 0")
    with pytest.raises(LedgerError):
        ledger.verify_log()


def test_deadlines(ledger, setting, clock):
    request = ask(ledger, setting, 0, approve=False)
    assert request.due == "2026-12-18"
    with pytest.raises(LedgerError, match="days must be at most 62"):
        ledger.extend(request.id, days=63, reason="many requests")
    assert ledger.extend(request.id, days=60, reason="many requests").due == "2027-02-16"
    with pytest.raises(Conflict, match="extended before"):
        ledger.extend(request.id, days=1, reason="again")
    assert ledger.overdue() == 0
    clock.now += datetime.timedelta(days=91)
    assert ledger.overdue() == 1
    ledger.approve(request.id)
    ledger.apply("m")
    dates = verify_report(ledger.report(request.id), ledger.public_key).contents.dates
    assert (dates.on_time, dates.extended_until) == (False, "2027-02-16")
    assert ledger.overdue() == 0


def test_lazy(ledger, setting, clock):
    ask(ledger, setting, 0)
    assert ledger.apply("m", when="every 2 requests").requests == ()
    assert not ledger.is_time("m")
    clock.now += datetime.timedelta(days=24)
    assert ledger.is_time("m")
    assert ledger.apply("m", when="due-in 7d").requests == (1,)


def test_the_doctor_and_gc(ledger, setting, clock):
    ask(ledger, setting, 0)
    ledger.apply("m")
    assert all(finding.is_fine for finding in ledger.doctor())
    clock.now += datetime.timedelta(days=800)
    assert not all(finding.is_fine for finding in ledger.doctor())
    assert ledger.gc() == {"closed": 0, "forgotten": 1, "told": 0}
    ledger.verify_log()


def test_the_migrations_make_the_schema(ledger):
    from alembic.autogenerate import compare_metadata
    from alembic.runtime.migration import MigrationContext

    assert ledger._desk.database.revision() == schema.REVISION
    with ledger._desk.database.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), schema.metadata) == []
        assert set(sa.inspect(connection).get_table_names()) == {*schema.metadata.tables, "alembic_version"}
