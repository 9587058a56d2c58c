"""Reading ahead changes neither what comes nor when it ends."""

import threading
import time

import numpy as np
import pyarrow
import pyarrow.parquet as pq
import pytest

import unbayes as ub
from unbayes.data import files
from unbayes.data.ahead import ahead


def threads():
    return [each for each in threading.enumerate() if each.name == "unbayes-ahead"]


def test_the_same_items_by_another_thread():
    makers = set()

    def items():
        for i in range(20):
            makers.add(threading.current_thread().name)
            yield i

    assert list(ahead(items())) == list(range(20))
    assert makers == {"unbayes-ahead"}
    assert threads() == []


def test_one_item_waits_at_most():
    begun = []

    def items():
        for i in range(20):
            begun.append(i)
            yield i

    found = ahead(items())
    next(found)
    time.sleep(0.05)
    # One was taken, one waits, and one is about to.
    assert len(begun) <= 3
    found.close()
    assert threads() == []


def test_errors_come_where_the_item_would():
    def items():
        yield 1
        raise KeyError("two")

    found = ahead(items())
    assert next(found) == 1
    with pytest.raises(KeyError, match="two"):
        next(found)
    assert threads() == []


def test_whoever_stops_early_ends_the_thread_and_the_reading():
    closed = []

    def items():
        try:
            while True:
                yield 0
        finally:
            closed.append(True)

    for taken in (0, 1, 5):
        found = ahead(items())
        for _ in range(taken + 1):
            next(found)
        found.close()
    assert closed == [True] * 3
    assert threads() == []


def test_files_are_read_ahead_with_the_same_records_and_refusals(tmp_path, monkeypatch):
    x = np.random.default_rng(0).normal(size=1000)
    x[777] = np.nan
    pq.write_table(pyarrow.table({"x": x, "y": x > 0}), tmp_path / "a.parquet")
    wanted = "a.parquet, row 777"
    for least in (0, 10_000):
        monkeypatch.setattr(files, "LEAST_AHEAD", least)
        source = ub.scan(tmp_path / "a.parquet", columns=["x"], target="y", batch_rows=64)
        assert source.reader.goes_ahead == (least == 0)
        taken = []
        with pytest.raises(ValueError, match=wanted):
            taken += (batch.records[0] for batch in source.batches())
        np.testing.assert_array_equal(np.concatenate(taken)[:, 0], x[: 777 // 64 * 64])
    monkeypatch.setattr(files, "LEAST_AHEAD", 0)
    own = ub.scan(tmp_path / "a.parquet", columns=lambda table: _here(table))
    assert [batch.size for batch in own.batches()] == [1000]


def _here(table):
    assert threading.current_thread() is threading.main_thread()
    return np.asarray(table["y"].to_numpy(zero_copy_only=False))
