"""A model that was trained anew, or trained on, takes the place of the base."""

import contextlib

import numpy as np
import pandas as pd
import pytest

from ledger.setting import ask, current, require_equal
from unbayes.ledger import Ledger, LedgerError, RequestState, verify_report
from unbayes.progress import AbstractProgress


def test_a_new_base_leaves_out_who_asked_and_destroys_the_old(ledger, setting, tmp_path):
    ask(ledger, setting, 0)
    ledger.apply("m")
    waiting = ask(ledger, setting, 1)
    left_out = ledger.suppressed("m")
    keep = left_out.keep(setting.ids)
    assert np.flatnonzero(~keep).tolist() == [0, 1]
    late = ask(ledger, setting, 2)
    trained = setting.fit(keep)
    setting.save(tmp_path / "unsaid.unbayes", trained)
    with pytest.raises(LedgerError, match="left out of its training"):
        ledger.rebase("m", tmp_path / "unsaid.unbayes")
    setting.save(tmp_path / "new.unbayes", trained, left_out=left_out.note)
    assert ledger.rebase("m", tmp_path / "new.unbayes").kind == "base"
    assert ledger.show(waiting.id).state is RequestState.CLOSED
    assert ledger.show(late.id).state is RequestState.APPROVED
    old = ledger.versions("m")[:2]
    assert not any(version.is_kept for version in old)
    assert all(ledger._desk.keys.is_destroyed(version.secret_id) for version in old)
    ledger.apply("m")
    require_equal(current(ledger, tmp_path), setting.without(0, 1, 2))
    assert verify_report(ledger.report(waiting.id), ledger.public_key).contents.base.version == 3


def test_a_new_base_that_does_not_leave_out_who_was_erased_since_is_refused(ledger, setting, tmp_path):
    ask(ledger, setting, 0)
    left_out = ledger.suppressed("m")
    setting.save(tmp_path / "new.unbayes", setting.fit(left_out.keep(setting.ids)), left_out=left_out.note)
    late = ask(ledger, setting, 1)
    ledger.apply("m")
    with pytest.raises(LedgerError, match=f"1 requests .* the first of them {late.id}"):
        ledger.rebase("m", tmp_path / "new.unbayes")
    require_equal(current(ledger, tmp_path), setting.without(0, 1))


def test_who_is_erased_from_the_old_base_is_not_taken_out_of_the_new(ledger, setting, tmp_path):
    ask(ledger, setting, 0)
    ledger.apply("m")
    waiting = ask(ledger, setting, 1, 2)
    left_out = ledger.suppressed("m")
    setting.save(tmp_path / "new.unbayes", setting.fit(left_out.keep(setting.ids)), left_out=left_out.note)
    ledger.rebase("m", tmp_path / "new.unbayes")
    assert ledger.show(waiting.id).state is RequestState.CLOSED
    again = ask(ledger, setting, 0, 2, 3)
    ledger.apply("m")
    found = ledger.show(again.id)
    assert (found.state, found.erased, found.already) == (RequestState.CLOSED, 1, 2)
    require_equal(current(ledger, tmp_path), setting.without(0, 1, 2, 3))


def write_table(path, setting, rows):
    rows = list(rows)
    columns = {"id": [setting.ids[row] for row in rows], "y": setting.y[rows]}
    pd.DataFrame({**columns, "a": setting.x[rows, 0], "b": setting.x[rows, 1]}).to_csv(path, index=False)
    return path


def test_training_on_with_the_remaining_records(ledger, setting, tmp_path):
    erased = ask(ledger, setting, 0)
    ledger.apply("m")
    waiting = ask(ledger, setting, 1)
    everything = write_table(tmp_path / "all.csv", setting, range(len(setting.ids)))
    with pytest.raises(LedgerError, match="2 are of people to be left out"):
        ledger.refine("m", everything)
    remaining = write_table(tmp_path / "remaining.csv", setting, range(2, len(setting.ids)))
    version = ledger.refine("m", remaining)
    assert (version.kind, version.number) == ("refined", 3)
    require_equal(current(ledger, tmp_path), setting.without(0, 1))
    assert ledger.show(waiting.id).state is RequestState.CLOSED
    assert verify_report(ledger.report(waiting.id), ledger.public_key).contents.into.version == 3
    assert ledger.show(erased.id).state is RequestState.CLOSED
    # What is out stays out, and counts once, though the new base has no list of its records.
    ask(ledger, setting, 0, 1, 2)
    ledger.apply("m")
    require_equal(current(ledger, tmp_path), setting.without(0, 1, 2))


class Meters(AbstractProgress):
    """Remembers how far each meter has come."""

    def __init__(self):
        self.found = {}

    @contextlib.contextmanager
    def track(self, description, total):
        self.found[description] = [0, total]

        def advance(steps, note):
            self.found[description][0] += steps

        yield advance


def test_what_takes_long_tells_how_far_it_is(tmp_path, setting, clock):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    meters = Meters()
    with Ledger.create(tmp_path / "ledger", clock=clock) as ledger:
        ledger.register("m", setting.file, ids="id", progress=meters)
        ask(ledger, setting, 0)
        ledger.apply("m", progress=meters)
        assert meters.found.pop("registering") == [2, 2]
        assert meters.found.pop("signing reports") == [1, 1]
        ask(ledger, setting, 1)
        left_out = ledger.suppressed("m")
        pq.write_table(pa.table({"id": setting.ids}), tmp_path / "all.parquet")
        left_out.filter_parquet(tmp_path / "all.parquet", tmp_path / "kept.parquet", progress=meters)
        assert meters.found.pop("filtering") == [300, 300]
        trained = setting.fit(left_out.keep(setting.ids))
        setting.save(tmp_path / "new.unbayes", trained, left_out=left_out.note)
        ledger.rebase("m", tmp_path / "new.unbayes", progress=meters)
        assert meters.found.pop("replacing the base") == [2, 2]
        assert meters.found.pop("signing reports") == [1, 1]
        ledger.verify_log(progress=meters)
        done, total = meters.found.pop("reading the log")
        assert done == total > 10
