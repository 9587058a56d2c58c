"""What was taken out of a Delta table since a version, told from its files or its change feed."""

import collections
import pickle

import numpy as np
import pytest

import unbayes as ub
from problems import KEY
from unbayes.data.deleted import Counts, DeletedReader, Digests, FeedReader
from unbayes.data.refusal import Refused

pa = pytest.importorskip("pyarrow", reason="needs the extra data")
deltalake = pytest.importorskip("deltalake", reason="needs the extra delta")

from deltalake import DeltaTable, write_deltalake  # noqa: E402

from delta_tables import delete_by_vector  # noqa: E402

SIZE = 60
FEED = {"delta.enableChangeDataFeed": "true"}


def rows(first=0, size=SIZE):
    rng = np.random.default_rng(first)
    return pa.table(
        {
            "id": [f"r{row}" for row in range(first, first + size)],
            "who": pa.array([row % 7 for row in range(first, first + size)], pa.int32()),
            "x": rng.normal(size=size),
            "zone": pa.array(["eu", "us", None] * (size // 3)),
            "y": rng.normal(size=size),
        }
    )


@pytest.fixture(params=["files", "feed"])
def table(request, tmp_path):
    """A table in a few files, with a change feed and without."""
    place = tmp_path / "t"
    settings = {"configuration": FEED} if request.param == "feed" else {}
    for first in range(0, SIZE, 15):
        write_deltalake(place, rows(first, 15), mode="append", **settings)
    kind = FeedReader if request.param == "feed" else object
    assert isinstance(deleted(place).reader.before, kind)
    return place


SINCE = 3


def deleted(place, since=SINCE, **settings):
    return ub.scan_deleted(place, since=since, **{"columns": ["x"], "ids": "id", **settings})


def names(place, since=SINCE, **settings):
    """Identifiers of the rows that are missing, in order."""
    found = [name for batch in deleted(place, since, **settings).batches() for name in batch.ids]
    return sorted(found, key=lambda name: int(name[1:]))


def of(*numbers):
    return [f"r{number}" for number in numbers]


def test_rows_that_a_delete_took_out(table):
    assert names(table) == []
    DeltaTable(table).delete("who = 3")
    gone = of(*(row for row in range(SIZE) if row % 7 == 3))
    assert names(table) == gone
    assert names(DeltaTable(table)) == gone
    assert names(table, batch_rows=2) == gone
    assert names(table, since=SINCE + 1) == []
    assert names(DeltaTable(table, version=SINCE)) == []
    DeltaTable(table).delete("x > 0")
    x = np.concatenate([rows(first, 15)["x"].to_numpy() for first in range(0, SIZE, 15)])
    expected = [row for row in range(SIZE) if row % 7 == 3 or x[row] > 0]
    assert names(table) == of(*expected)
    assert names(table, since=SINCE + 1) == of(*(row for row in expected if row % 7 != 3))


def test_the_records_are_those_of_then(table):
    full = {
        batch.ids[i]: batch.records[i, 0]
        for batch in ub.scan(DeltaTable(table), columns=["x"], ids="id").batches()
        for i in range(batch.size)
    }
    DeltaTable(table).update(updates={"x": "x + 1"}, predicate="who = 2")
    DeltaTable(table).delete("who = 2")
    (batch,) = deleted(table).batches()
    assert sorted(batch.ids) == sorted(of(*(row for row in range(SIZE) if row % 7 == 2)))
    assert batch.records[:, 0].tolist() == [full[name] for name in batch.ids]


def test_rows_that_changed_are_as_they_were(table):
    DeltaTable(table).update(updates={"x": "x + 1"}, predicate="who = 2")
    assert names(table) == of(*(row for row in range(SIZE) if row % 7 == 2))
    # What is not read has not changed.
    assert names(table, columns=["y"]) == []


def test_rows_that_came_and_went_are_none(table):
    write_deltalake(table, rows(90, 3), mode="append")
    DeltaTable(table).delete("id = 'r91' or id = 'r4'")
    assert names(table) == of(4)
    DeltaTable(table).optimize.compact()
    assert names(table) == of(4)
    write_deltalake(table, rows(0, 15).slice(4, 1), mode="append")
    assert names(table) == []


def test_rows_that_an_overwrite_left_out(table):
    write_deltalake(table, rows(15, 15).slice(3), mode="overwrite")
    assert names(table) == of(*range(18), *range(30, SIZE))


def test_conditions_hold_for_what_is_missing(table):
    DeltaTable(table).delete("who < 3")
    found = names(table, where=[("who", "in", [1, 5]), ("zone", "==", "eu")])
    assert found == of(*(row for row in range(SIZE) if row % 7 == 1 and row % 3 == 0))
    with pytest.raises(Refused, match="which have no lost"):
        deleted(table, where=("lost", "==", 1))


def test_of_equal_rows_as_many_are_missing_as_were_taken_out(tmp_path):
    place = tmp_path / "t"
    same = pa.table({"x": [1.0, 1.0, 1.0, 2.0], "y": [0, 1, 2, 3]})
    write_deltalake(place, same)
    DeltaTable(place).delete("y in (0, 2, 3)")
    (batch,) = ub.scan_deleted(place, since=0, columns=["x"]).batches()
    assert sorted(batch.records[:, 0]) == [1.0, 1.0, 2.0]


def test_deletion_vectors_tell_without_comparing(tmp_path):
    place = tmp_path / "t"
    write_deltalake(place, rows(), configuration=FEED)
    (file,) = (path.name for path in place.glob("*.parquet"))
    delete_by_vector(place, file, [], [3, 5])
    version = delete_by_vector(place, file, [3, 5], [3, 5, 8, 50])
    assert names(place, since=0) == of(3, 5, 8, 50)
    scan = deleted(place, since=version - 1)
    assert not isinstance(scan.reader.before, FeedReader)
    assert list(scan.reader.now.pieces(["x"], 100)) == []
    assert [batch.ids for batch in scan.batches()] == [of(8, 50)]
    assert scan.rows is None


def test_partitions_and_changed_types(tmp_path):
    place = tmp_path / "t"
    write_deltalake(place, rows(), partition_by=["who"])
    DeltaTable(place).delete("who = 1 and x > 0")
    DeltaTable(place).delete("who = 4")
    wide = rows(90, 3).set_column(0, "id", [of(90, 91, 92)])
    write_deltalake(place, wide.append_column("more", [[1, 2, 3]]), mode="append", schema_mode="merge")
    x = rows()["x"].to_numpy()
    gone = [row for row in range(SIZE) if (row % 7 == 1 and x[row] > 0) or row % 7 == 4]
    assert names(place, since=0) == of(*gone)
    assert names(place, since=0, columns=["x", "who"]) == of(*gone)


def test_a_feed_that_was_off_for_a_while_is_not_relied_on(tmp_path):
    place = tmp_path / "t"
    write_deltalake(place, rows(), configuration=FEED)
    for value, who in (("false", 1), ("true", 2)):
        DeltaTable(place).alter.set_table_properties({"delta.enableChangeDataFeed": value})
        DeltaTable(place).delete(f"who = {who}")
    assert names(place, since=0) == of(*(row for row in range(SIZE) if row % 7 in (1, 2)))
    assert not isinstance(deleted(place, since=0).reader.before, FeedReader)


def test_after_vacuum_it_is_refused(table):
    DeltaTable(table).delete("who = 3")
    write_deltalake(table, rows(90, 3), mode="overwrite")
    DeltaTable(table).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    with pytest.raises(Refused, match="are gone, as they are after VACUUM"):
        names(table)


def test_versions_that_there_are_not_are_refused(table):
    for since in (-1, 4, "3", None, True):
        with pytest.raises(Refused, match=r"since must be a version of .*, from 0 to 3"):
            deleted(table, since=since)
    with pytest.raises(Refused, match="there is no Delta table"):
        deleted(table / "nowhere")
    with pytest.raises(Refused, match="has no column lost"):
        deleted(table, columns=["lost"])


def test_it_is_sent_to_workers(table):
    DeltaTable(table).delete("who = 3")
    scan = pickle.loads(pickle.dumps(deleted(table)))
    assert isinstance(scan.reader, DeletedReader)
    assert sum(batch.size for batch in scan.batches()) == len(names(table))


def test_digests_are_those_of_equal_cells():
    cells = {
        "float": pa.array([0.0, -0.0, None, float("nan"), 1.5, float("nan")]),
        "word": pa.array(["a", "a", None, "", "b", ""]),
        "whole": pa.array([1, 1, None, 0, -1, 0], pa.int16()),
        "either": pa.array([True, True, None, False, True, False]),
        "exact": pa.array([1, 1, None, 2, 3, 2], pa.decimal128(5, 2)),
        "list": pa.array([[1], [1], None, [], [2], []]),
        "when": pa.array([1, 1, None, 2, 3, 2], pa.timestamp("us")),
    }
    for name, column in cells.items():
        found = Digests().of(pa.record_batch([column], names=["x"]))
        assert found[0] == found[1]
        assert found[3] == found[5]
        assert len({*found.tolist()}) == (3 if name == "either" else 4)
    digests = Digests()
    one, other = pa.record_batch(list(cells.values()), names=list(cells)), cells["float"]
    assert (digests.of(one) == digests.of(one)).all()
    swapped = [pa.record_batch([pa.array([1, 2]), pa.array([2, 1])], names=["a", "b"]), other]
    assert len({*digests.of(swapped[0]).tolist()}) == 2


def test_counts_are_those_of_a_counter():
    rng = np.random.default_rng(0)
    here, there = rng.integers(0, 9, 70, np.uint64), rng.integers(0, 9, 200, np.uint64)
    counts = Counts([here[:30], here[30:]])
    found = np.concatenate(
        [there[rows][counts.beyond(there[rows])] for rows in np.split(np.arange(200), [11, 64])]
    )
    assert collections.Counter(found.tolist()) == collections.Counter(there.tolist()) - collections.Counter(
        here.tolist()
    )
    assert Counts([]).beyond(here).all()


def test_a_delete_in_the_table_reaches_the_model(table):
    """The whole way: train on a table, DELETE in it, unlearn what is missing; the same as retraining."""
    then = DeltaTable(table)
    columns = ub.Columns.of(table, target="y", inputs=["x", "who"], ids="id")
    model = ub.linear_regression(columns.width, prior_scale=3.0, noise_scale=0.5)
    trained = ub.fit(model, ub.scan(then, columns=columns, ids="id"), key=KEY)
    DeltaTable(table).delete("who = 3")
    DeltaTable(table).optimize.compact()
    gone = ub.scan_deleted(table, since=then.version(), columns=columns, ids="id")
    left = ub.unlearn(trained.posterior, model, gone, memory=trained.memory, key=KEY)
    again = ub.fit(model, ub.scan(table, columns=columns, ids="id"), key=KEY)
    assert left.records == 9
    np.testing.assert_allclose(left.posterior.mean, again.posterior.mean, rtol=1e-10)
    np.testing.assert_allclose(left.posterior.covariance, again.posterior.covariance, rtol=1e-10)
