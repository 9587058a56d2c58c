"""One request never holds up others, whatever is wrong with it."""

import numpy as np
import pytest
import sqlalchemy as sa

import unbayes as ub
from ledger.setting import KEY, ask, current, require_equal
from unbayes.ledger import Ledger, LedgerError, ModelSettings, Records, RequestState, schema, verify_report


def rows_of(setting, rows, names, y=None):
    rows = list(rows)
    return Records.of_arrays(setting.x[rows], (setting.y if y is None else y)[rows], names)


def request(ledger, records, subject="p", **options):
    return ledger.approve(ledger.request("m", subject=subject, rows=records, **options).id).id


def quiet_row(setting):
    """A record that tells a model little."""
    return int(np.argmin((setting.x**2).sum(1)))


def ledger_of(folder, setting, trained, clock, **settings):
    setting.save(folder / "trained.unbayes", trained)
    ledger = Ledger.create(folder / "own", clock=clock)
    ledger.register("m", folder / "trained.unbayes", ids="id", settings=ModelSettings(**settings))
    return ledger


@pytest.fixture
def unnamed(tmp_path, setting, clock):
    """A ledger of a model that knows its records by their digits."""
    trained = ub.fit(setting.model, (setting.x, setting.y), key=KEY)
    with ledger_of(tmp_path, setting, trained, clock) as ledger:
        yield ledger


@pytest.fixture
def logistic(tmp_path, setting, clock):
    """A ledger of a logistic regression that needs much to be trusted, and its labels."""
    y = (setting.y > 0).astype(float)
    model = ub.logistic_regression(2, prior_scale=3.0)
    trained = ub.fit(model, (setting.x, y), ids=setting.ids, key=KEY)
    notes = {"columns": ["a", "b"], "target": "y"}
    ub.save(tmp_path / "m", trained.posterior, model, memory=trained.memory, notes=notes)
    with Ledger.create(tmp_path / "logistic", clock=clock) as ledger:
        ledger.register("m", tmp_path / "m", ids="id", settings=ModelSettings(accept="trusted"))
        yield ledger, y


def test_a_record_that_comes_again_under_another_identifier(unnamed, setting, tmp_path):
    request(unnamed, rows_of(setting, [0], ["4711"]))
    unnamed.apply("m")
    again, other = (request(unnamed, rows_of(setting, *each)) for each in (([0], ["4711.0"]), ([1], ["x"])))
    applied = unnamed.apply("m")
    assert applied.requests == (other,)
    assert applied.held.keys() == {again}
    assert "1 of 1 records were taken out before, under other identifiers" in applied.held[again]
    require_equal(current(unnamed, tmp_path), setting.without(0, 1))
    unnamed.approve(again, missing="skip")
    assert unnamed.apply("m").requests == (again,)
    assert unnamed.current("m").erased == 2
    require_equal(current(unnamed, tmp_path), setting.without(0, 1))


def test_a_record_that_comes_twice_at_once_under_two_identifiers(unnamed, setting, tmp_path):
    first, second, third = (
        request(unnamed, rows_of(setting, rows, names))
        for rows, names in (([0], ["4711"]), ([0, 2], ["4711.0", "z"]), ([1], ["x"]))
    )
    applied = unnamed.apply("m")
    assert applied.requests == (first, third)
    assert "1 of 2 records were taken out before" in applied.held[second]
    require_equal(current(unnamed, tmp_path), setting.without(0, 1))


def test_who_is_set_aside_leaves_a_record_to_the_next(logistic, setting):
    """Two ask for one record; the first cannot be carried out, so the second takes it out."""
    ledger, y = logistic
    quiet = quiet_row(setting)
    many = [int(row) for row in np.argsort(setting.x[:, 0])[:150] if row != quiet] + [quiet]
    first = request(ledger, rows_of(setting, many, [setting.ids[row] for row in many], y))
    second = request(ledger, rows_of(setting, [quiet], [setting.ids[quiet]], y))
    applied = ledger.apply("m")
    assert applied.needs_retrain.keys() == {first}
    assert applied.requests == (second,)
    found = ledger.show(second)
    assert (found.erased, found.already) == (1, 0)
    assert ledger.current("m").erased == 1


@pytest.mark.parametrize("end", [RequestState.DENIED, RequestState.WITHDRAWN])
def test_what_waits_for_a_new_model_can_be_ended(logistic, setting, end):
    ledger, y = logistic
    many = [int(row) for row in np.argsort(setting.x[:, 0])[:150]]
    number = request(ledger, rows_of(setting, many, [setting.ids[row] for row in many], y))
    assert ledger.apply("m").needs_retrain.keys() == {number}
    assert len(ledger.suppressed("m").digests) == 150
    if end is RequestState.DENIED:
        ledger.deny(number, "a ground")
    else:
        ledger.withdraw(number)
    found = ledger.show(number)
    assert (found.state, found.hold) == (end, None)
    assert found.ended is not None
    with ledger._desk.reading() as store:
        assert list(store.payloads([found])) == []
        assert store.to_shred() == []
    assert ledger._desk.keys.is_destroyed(found.secret_id)
    assert ledger.suppressed("m").digests == ()
    assert ledger.apply("m").requests == ()
    ledger.verify_log()


def test_rows_that_the_model_does_not_take(logistic, setting):
    ledger, y = logistic
    wrong = Records.of_arrays(setting.x[[0]], [7.25], ["record-0"])
    first = request(ledger, wrong)
    quiet = quiet_row(setting)
    second = request(ledger, rows_of(setting, [quiet], [setting.ids[quiet]], y))
    applied = ledger.apply("m")
    assert applied.requests == (second,)
    assert "the model does not take its rows" in applied.held[first]
    # What is kept in the clear repeats nothing of them.
    assert "7" not in applied.held[first].replace("70", "")


def alter(ledger, statement, *arguments):
    with ledger._desk.database.engine.connect() as connection, connection.begin():
        connection.exec_driver_sql("PRAGMA foreign_keys=OFF")
        connection.execute(statement, *arguments)


@pytest.mark.parametrize("change", ["altered", "removed"])
def test_rows_that_somebody_has_changed_in_the_database(ledger, setting, tmp_path, change):
    first, second = ask(ledger, setting, 0), ask(ledger, setting, 1)
    mine = schema.payload.c.request_id == first.id
    if change == "altered":
        alter(ledger, schema.payload.update().where(mine).values(blob=bytes(100)))
    else:
        alter(ledger, schema.payload.delete().where(mine))
    applied = ledger.apply("m")
    assert applied.requests == (second.id,)
    assert "its rows cannot be read" in applied.held[first.id]
    require_equal(current(ledger, tmp_path), setting.without(1))


@pytest.mark.parametrize("culprits", [(2,), (0, 4), (5, 6)])
def test_whoever_is_refused_together_with_others_is_found(ledger, setting, tmp_path, monkeypatch, culprits):
    """As a last resort: whatever cannot be computed is traced to the requests that bring it."""
    from unbayes.ledger.solving import Base

    requests = [ask(ledger, setting, row) for row in range(7)]
    bad, solve = {setting.records(row).to_bytes() for row in culprits}, Base.solve
    summarise, seen = Base.summarise, {}

    def note(self, records):
        statistics = summarise(self, records)
        seen[id(statistics)] = {records.at([row]).to_bytes() for row in range(len(records))}
        seen["kept"] = [*seen.get("kept", []), statistics]
        return statistics

    def refuse(self, statistics, progress=None):
        if seen[id(statistics)] & bad:
            raise ValueError("statistics must be otherwise")
        return solve(self, statistics, progress)

    monkeypatch.setattr(Base, "summarise", note)
    monkeypatch.setattr(Base, "solve", refuse)
    applied = ledger.apply("m")
    rest = [row for row in range(7) if row not in culprits]
    assert applied.requests == tuple(requests[row].id for row in rest)
    assert applied.held.keys() == {requests[row].id for row in culprits}
    assert all("statistics must be otherwise" in sentence for sentence in applied.held.values())
    require_equal(current(ledger, tmp_path), setting.without(*rest))


def test_a_sum_that_nothing_can_be_added_to_is_nobodys_fault(ledger, setting, monkeypatch):
    from unbayes.ledger.solving import Base
    from unbayes.unlearning import Statistics

    ask(ledger, setting, 0)
    ledger.apply("m")
    request = ask(ledger, setting, 1)
    summarise = Base.summarise

    def changed(self, records) -> Statistics:
        found = summarise(self, records)
        return Statistics(found.value, found.site, found.matches, found.records, "another version")

    monkeypatch.setattr(Base, "summarise", changed)
    with pytest.raises(LedgerError, match="another version of unbayes made"):
        ledger.apply("m")
    assert ledger.show(request.id).state is RequestState.APPROVED
    assert ledger.show(request.id).hold is None


def test_a_model_without_a_roster_says_so_in_every_report(tmp_path, setting, clock):
    trained = ub.fit(setting.model, (setting.x, setting.y), ids=setting.ids, roster=False, key=KEY)
    with ledger_of(tmp_path, setting, trained, clock) as ledger:
        (caveat,) = ledger.current("m").findings["caveats"]
        assert "without a roster" in caveat
        numbers = [ask(ledger, setting, row).id for row in (0, 1)]
        ledger.apply("m")
        for number in numbers:
            contents = verify_report(ledger.report(number), ledger.public_key).contents
            assert caveat in contents.caveats
        left_out = ledger.suppressed("m")
        keep = left_out.keep(setting.ids)
        setting.save(tmp_path / "new.unbayes", setting.fit(keep), left_out=left_out.note)
        assert ledger.rebase("m", tmp_path / "new.unbayes").findings == {}


def test_a_model_with_a_roster_has_nothing_of_that_to_say(ledger, setting):
    assert ledger.current("m").findings == {}
    number = ask(ledger, setting, 0).id
    ledger.apply("m")
    assert verify_report(ledger.report(number), ledger.public_key).contents.caveats == ()
    assert sa.inspect(ledger._desk.database.engine).has_table("payload")
