"""A ledger in which everything has happened moves to another database, and goes on there."""

import pytest
import sqlalchemy as sa

from ledger.postgresql import folder_of_binaries, running
from ledger.setting import ask, current, require_equal
from unbayes.ledger import Conflict, Ledger, Records, RequestState, schema, verify_report
from unbayes.ledger.kept import FILE
from unbayes.ledger.solving import Base

ENDED = (RequestState.CLOSED, RequestState.DENIED, RequestState.WITHDRAWN)


@pytest.fixture(params=["sqlite", "postgresql"])
def target(request, tmp_path):
    """The address of an empty database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'elsewhere.sqlite'}"
        return
    pytest.importorskip("psycopg", reason="needs the extra postgresql")
    if (binaries := folder_of_binaries()) is None:
        pytest.skip("there is no PostgreSQL here: no initdb and pg_ctl")
    with running(binaries) as server:
        yield server.new_database("moved")


class Full:
    """A ledger with a request in every state, by name."""

    def __init__(self, ledger, setting, monkeypatch):
        self.ledger, self.setting = ledger, setting
        self.hook, _ = ledger.hooks.add("https://example.org/told", ["request_received"])
        self.closed = [self.ask(row) for row in (0, 1)]
        ledger.apply("m")
        self.late = self.ask(2)
        ledger.extend(self.late, days=30, reason="many requests")
        ledger.apply("m")
        stranger = Records.of_arrays([[1.0, 1.0]], [0.0], ["nobody"])
        self.held = ledger.approve(ledger.request("m", subject="p", rows=stranger).id).id
        self.retrain = self.ask(3)
        with monkeypatch.context() as patch:
            patch.setattr(Base, "solve", lambda *_: "train anew")
            ledger.apply("m")
        self.denied, self.withdrawn, self.received, self.extended = (
            self.ask(row, approve=False, reference=f"T-{row}", idempotency_key=f"k{row}")
            for row in (4, 5, 6, 7)
        )
        ledger.deny(self.denied, "a ground")
        ledger.withdraw(self.withdrawn)
        ledger.extend(self.extended, days=20, reason="much to do")
        self.approved = self.ask(8)
        self.token, _ = ledger.tokens.create("somebody", ["audit", "submit"])
        ledger.want("m")
        ledger.checkpoint()

    def ask(self, row, **options):
        return ask(self.ledger, self.setting, row, **options).id


@pytest.fixture
def full(ledger, setting, monkeypatch):
    full = Full(ledger, setting, monkeypatch)
    states = {each.id: each.state for each in ledger.requests(limit=None)}
    expected = {
        **dict.fromkeys([*full.closed, full.late], RequestState.CLOSED),
        **dict.fromkeys([full.held, full.approved], RequestState.APPROVED),
        **dict.fromkeys([full.received, full.extended], RequestState.RECEIVED),
        full.retrain: RequestState.NEEDS_RETRAIN,
        full.denied: RequestState.DENIED,
        full.withdrawn: RequestState.WITHDRAWN,
    }
    assert states == expected
    assert ledger.show(full.held).hold
    assert ledger.show(full.extended).is_extended
    return full


def contents(ledger):
    """All rows of all tables but the note that it has moved."""
    with ledger._desk.database.reading() as connection:
        found = {}
        for table in schema.metadata.sorted_tables:
            rows = connection.execute(sa.select(table).order_by(*table.primary_key.columns)).all()
            found[table.name] = [
                tuple(bytes(cell) if isinstance(cell, memoryview) else cell for cell in row) for row in rows
            ]
        found["setting"] = [row for row in found["setting"] if row[0] != "moved"]
        return found


def test_everything_is_there_and_it_goes_on(full, setting, target, tmp_path, clock):
    ledger, setting_file = full.ledger, tmp_path / "new.unbayes"
    before, state = contents(ledger), ledger.verify_log()
    reports = {number: ledger.report(number) for number in (*full.closed, full.late)}
    kept = (ledger._desk.keys.folder / FILE).read_bytes()
    copied = []
    ledger.export(target, progress=copied.append)
    assert len(copied) == len(schema.metadata.tables)
    with pytest.raises(Conflict, match="has moved to another database"):
        ask(ledger, setting, 20)
    folder = ledger._desk.keys.folder.parent
    with Ledger.open(folder, clock=clock) as moved:
        assert str(moved._desk.database.engine.url.database) in target
        assert contents(moved) == before
        assert moved.verify_log() == state
        assert (folder / "keys" / FILE).read_bytes() == kept
        assert {number: moved.report(number) for number in reports} == reports
        for number, report in reports.items():
            assert verify_report(report, moved.public_key).contents.request.number == number
        assert [each.id for each in moved.tokens.all()] == [full.token.id]
        assert [each.id for each in moved.hooks.all()] == [full.hook.id]
        assert len(before["delivery"]) == len(moved.requests(limit=None))
        assert all(finding.is_fine for finding in moved.doctor() if "log" in finding.what)
        go_on(full, moved, setting, setting_file)
        left_out = {row for row in range(10) if row not in (4, 5, 7)}
        require_equal(current(moved, tmp_path), setting.without(*left_out))
        moved.verify_log()
        assert {number: moved.report(number) for number in reports} == reports


def go_on(full, moved, setting, file):
    """Each request is brought to its end; and new ones come."""
    # The same idempotency key is the same request.
    assert ask(moved, setting, 6, approve=False, idempotency_key="k6").id == full.received
    moved.approve(full.held, missing="skip")
    moved.approve(full.received)
    moved.deny(full.extended, "no ground")
    new = ask(moved, setting, 9)
    assert new.id == full.approved + 1
    assert set(moved.apply("m").requests) == {full.held, full.received, full.approved, new.id}
    left_out = moved.suppressed("m")
    setting.save(file, setting.fit(left_out.keep(setting.ids)), left_out=left_out.note)
    moved.rebase("m", file)
    assert {each.state for each in moved.requests(limit=None)} == set(ENDED)
    assert moved.show(full.retrain).state is RequestState.CLOSED


def test_a_log_that_was_shortened_is_not_moved(full, tmp_path):
    """It is compared with the checkpoint beside the key before anything is changed."""
    from ledger.test_kept import truncate

    truncate(full.ledger, full.ledger.verify_log().events - 3)
    with pytest.raises(Exception, match="was signed over"):
        full.ledger.export(f"sqlite:///{tmp_path / 'elsewhere.sqlite'}")
    assert not (tmp_path / "ledger" / "database.url").exists()
