"""Delta tables as a source: which rows are read, and how much of the files."""

import datetime
import pickle

import numpy as np
import pytest

import unbayes
from unbayes.data.files import FileReader
from unbayes.data.refusal import Refused

pa = pytest.importorskip("pyarrow", reason="needs the extra data")
deltalake = pytest.importorskip("deltalake", reason="needs the extra delta")

from deltalake import DeltaTable, WriterProperties, write_deltalake  # noqa: E402

from delta_tables import delete_by_vector, require_column_mapping  # noqa: E402

SIZE = 1000


@pytest.fixture
def rows():
    """Records in the order of their customers, two of each."""
    rng = np.random.default_rng(0)
    return pa.table(
        {
            "customer": [f"c{i // 2:04}" for i in range(SIZE)],
            "row": pa.array(range(SIZE)),
            "x": rng.normal(size=SIZE),
            "region": ["eu", "us", "a b%"] * (SIZE // 3) + ["eu"],
            "y": rng.random(SIZE) < 0.5,
        }
    )


@pytest.fixture
def table(tmp_path, rows):
    write_deltalake(tmp_path / "t", rows, writer_properties=WriterProperties(max_row_group_size=50))
    return tmp_path / "t"


def read(data, **settings):
    """The numbers of the rows that a scan yields, in order."""
    scan = unbayes.scan(data, columns=["row"], **settings)
    found = [batch.records[:, 0] for part in scan.parts() for batch in part.batches()]
    return sorted(np.concatenate(found).astype(int)) if found else []


def test_rows_that_were_deleted_are_not_read(table):
    DeltaTable(table).delete("row < 10")
    assert read(table) == list(range(10, SIZE))
    assert read(DeltaTable(table)) == list(range(10, SIZE))
    assert read(DeltaTable(table, version=0)) == list(range(SIZE))
    assert read(f"file://{table}") == list(range(10, SIZE))
    assert read(str(table) + "/", format="delta") == list(range(10, SIZE))
    assert len(read(table, format="parquet")) > SIZE


def test_records_are_those_of_the_arrow_table(table, rows):
    scan = unbayes.scan(table, columns=["x", "row"], target="y", ids="customer", batch_rows=300)
    inputs, targets, ids = [], [], []
    for batch in scan.batches():
        inputs.append(batch.records[0])
        targets.append(batch.records[1])
        ids += batch.ids
    assert scan.rows == SIZE
    np.testing.assert_array_equal(np.concatenate(inputs), np.stack([rows["x"], rows["row"]], axis=1))
    np.testing.assert_array_equal(np.concatenate(targets), rows["y"].to_numpy())
    assert ids == rows["customer"].to_pylist()


@pytest.mark.parametrize("is_partitioned", [False, True])
@pytest.mark.parametrize("is_rewritten", [False, True])
@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        (("customer", "in", ["c0003", "c0402"]), [6, 7, 804, 805]),
        (("customer", "named", ["c0003"]), [6, 7]),
        (("customer", "==", "c0003"), [6, 7]),
        ([("customer", "<", "c0100"), ("row", ">=", 195)], list(range(195, 200))),
        (("row", "not in", list(range(3, SIZE))), [0, 1, 2]),
        ([("region", "==", "a b%"), ("row", "<", 9)], [2, 5, 8]),
        (("customer", "==", "nobody"), []),
    ],
)
def test_where(tmp_path, rows, where, wanted, is_partitioned, is_rewritten):
    place = tmp_path / "t"
    write_deltalake(place, rows, partition_by=["region"] if is_partitioned else None)
    if is_rewritten:
        # deltalake writes string views then, which Arrow has no filters for.
        DeltaTable(place).delete("row = 900 or row = 901 or row = 902")
    assert read(place, where=where) == [each for each in wanted if not (is_rewritten and 900 <= each < 903)]


@pytest.mark.parametrize("is_rewritten", [False, True])
def test_only_row_groups_that_matter_are_read(table, is_rewritten):
    if is_rewritten:
        DeltaTable(table).delete("row = 900", writer_properties=WriterProperties(max_row_group_size=50))
    some = unbayes.scan(table, columns=["row"], where=("customer", "in", ["c0003"])).reader
    assert isinstance(some, FileReader)
    assert [file.rows for file in some.files] == [50]
    assert read(table, where=("customer", "in", ["c0003"])) == [6, 7]


def test_files_without_statistics_of_a_column_are_read(tmp_path):
    place = tmp_path / "t"
    settings = {"configuration": {"delta.dataSkippingStatsColumns": "x"}}
    write_deltalake(place, pa.table({"x": [1.0], "row": [0]}), **settings)
    DeltaTable(place).alter.set_table_properties({"delta.dataSkippingStatsColumns": "x,row"})
    write_deltalake(place, pa.table({"x": [1.0], "row": [1]}), mode="append")
    assert read(place, where=("row", ">=", 0)) == [0, 1]


def test_times_between_two_milliseconds_are_found(tmp_path):
    when = datetime.datetime(2020, 1, 1, 0, 0, 0, 1999)
    write_deltalake(tmp_path / "t", pa.table({"when": [when], "row": [0]}))
    assert read(tmp_path / "t", where=("when", ">", when.replace(microsecond=1500))) == [0]


def test_gaps_and_what_is_no_number_are_not_passed_over(tmp_path):
    values = pa.array([1.0, None, float("nan"), 1.0])
    write_deltalake(tmp_path / "t", pa.table({"x": values, "row": range(4), "p": ["a", None, "a", "b"]}))
    assert read(tmp_path / "t", where=("x", "not in", [1.0])) == [1, 2]
    assert read(tmp_path / "t", where=("x", "!=", 1.0)) == [2]
    assert read(tmp_path / "t", where=("x", "in", [None])) == [1]
    assert read(tmp_path / "t", where=("p", "in", ["a", None])) == [0, 1, 2]


def test_parts_are_sent_by_pickle(table):
    DeltaTable(table).delete("row < 10")
    scan = unbayes.scan(table, columns=["row"], where=("customer", "<", "c0300"))
    parts = [pickle.loads(pickle.dumps(part)) for part in scan.parts()]
    found = [batch.records[:, 0] for part in parts for batch in part.batches()]
    assert sorted(np.concatenate(found)) == list(range(10, 600))


def test_deletion_vectors(table):
    file = DeltaTable(table).file_uris()[0].rsplit("/", 1)[1]
    delete_by_vector(table, file, [], [3, 5, 990])
    gone = {3, 5, 990, 7, 110}
    delete_by_vector(table, file, [3, 5, 990], sorted(gone))
    assert read(table) == [row for row in range(SIZE) if row not in gone]
    assert unbayes.scan(table).rows == SIZE - len(gone)
    assert read(table, where=("row", "<", 9)) == [0, 1, 2, 4, 6, 8]
    assert read(table, where=("customer", "in", ["c0055", "c0100"])) == [111, 200, 201]
    assert read(DeltaTable(table, version=1), where=("row", "<", 9)) == [0, 1, 2, 4, 6, 7, 8]
    part = unbayes.scan(table, columns=["row"]).parts()[0]
    assert len(list(pickle.loads(pickle.dumps(part)).batches())) == 1


def test_files_of_a_table_are_refused(table):
    for data in (
        f"{table}/*.parquet",
        [str(table)],
        DeltaTable(table).file_uris()[0],
        [str(each) for each in table.glob("*.parquet")],
    ):
        with pytest.raises(Refused, match=rf"{table} is a Delta table, in whose folder deleted records"):
            unbayes.scan(data, columns=["row"])
    assert read(f"{table}/*.parquet", format="parquet") == list(range(SIZE))


@pytest.mark.parametrize("place", ["", "*", "t*", "**/*.parquet"])
def test_files_of_a_table_are_refused_from_above(table, place):
    """Wherever they are found, as deleted rows still stand in them."""
    link = table.parent.with_name(table.parent.name + "-link.parquet")
    link.symlink_to(next(table.glob("*.parquet")))
    for data in (f"{table.parent}/{place}", str(link), f"file://{table}/*.parquet"):
        with pytest.raises(Refused, match=rf"{table} is a Delta table, in whose folder deleted records"):
            unbayes.scan(data, columns=["row"])


def test_what_cannot_be_read_is_a_sentence(table, tmp_path):
    with pytest.raises(Refused, match="nowhere cannot be opened: there is no Delta table"):
        unbayes.scan(tmp_path / "nowhere", format="delta")
    with pytest.raises(Refused, match="must be one address, or a "):
        unbayes.scan([table], format="delta")
    with pytest.raises(Refused, match="where must name columns of the data, which have no weight"):
        unbayes.scan(table, where=("weight", "<", 1))
    with pytest.raises(Refused, match="storage_options must be left out for a table that is open"):
        unbayes.scan(DeltaTable(table), storage_options={})
    old = DeltaTable(table)
    new = DeltaTable(table)
    new.delete("row < 500")
    scan = unbayes.scan(old, columns=["row"])
    new.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(Refused, match=rf"{table}, version 0: files of it are gone, as they are after VACUUM"):
        unbayes.scan(old)
    with pytest.raises(Refused, match=rf"{table}/part.*parquet cannot be read"):
        list(scan.batches())
    for file in table.glob("*.parquet"):
        file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(Refused, match=rf"{table}, version {new.version()}: .*damaged"):
        unbayes.scan(table)


def test_features_that_change_what_is_read_are_refused(table):
    require_column_mapping(table)
    with pytest.raises(Refused, match=rf"{table} cannot be read: it needs columnMapping"):
        unbayes.scan(table)


def test_bad_cells_are_named_with_their_file(table):
    DeltaTable(table).update(predicate="row = 7", updates={"x": "cast('nan' as double)"})
    with pytest.raises(Refused, match=rf"{table}/part.*, row 7 .*column x must be a finite number"):
        list(unbayes.scan(table, columns=["x"]).batches())
