"""Records in files: what is read, how much of it, and what cannot be."""

import datetime
import random
import re
import traceback
from pathlib import Path

import fsspec
import numpy as np
import pytest
from fsspec.implementations.local import LocalFileSystem

import unbayes as ub
from problems import KEY
from unbayes.data.files import FileReader
from unbayes.data.refusal import Refused
from unbayes.data.where import Text

pa = pytest.importorskip("pyarrow", reason="needs the extra data")
from pyarrow import csv, dataset, feather, parquet  # noqa: E402

ROWS = 300
COLUMNS = {"columns": ["b", "a"], "target": "y"}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return pa.table(
        {
            "who": [f"p{i // 30}" for i in range(ROWS)],
            "a": rng.normal(size=ROWS).round(6),
            "b": rng.integers(0, 9, ROWS),
            "y": rng.random(ROWS).round(6),
            "id": [f"{i:03}" for i in range(ROWS)],
        }
    )


def in_parquet(rows, folder):
    parquet.write_table(rows, folder / "rows.parquet", row_group_size=37)
    return folder / "rows.parquet"


def in_several(rows, folder):
    for part in range(3):
        parquet.write_table(rows.slice(100 * part, 100), folder / f"part-{part}.parquet", row_group_size=41)
    (folder / "_SUCCESS").touch()
    (folder / ".part-0.parquet.crc").touch()
    return f"{folder}/*.parquet"


def in_folders(rows, folder):
    dataset.write_dataset(
        rows, folder, format="parquet", partitioning=["who"], partitioning_flavor="hive", max_rows_per_group=7
    )
    return folder


def in_csv(rows, folder):
    csv.write_csv(rows, folder / "rows.csv")
    return folder / "rows.csv"


def in_packed_csv(rows, folder):
    with pa.CompressedOutputStream(str(folder / "rows.csv.gz"), "gzip") as packed:
        csv.write_csv(rows, packed)
    return [str(folder / "rows.csv.gz")]


def in_feather(rows, folder):
    feather.write_feather(rows, folder / "rows.feather", chunksize=50)
    return folder


def in_a_bucket(rows, folder):
    bucket = fsspec.filesystem("memory")
    for part in range(2):
        with bucket.open(f"/{folder.name}/{part}.parquet", "wb") as file:
            parquet.write_table(rows.slice(150 * part, 150), file, row_group_size=50)
    return f"memory://{folder.name}/*.parquet"


def in_arrows_dataset(rows, folder):
    return dataset.dataset(in_parquet(rows, folder))


WAYS = [in_parquet, in_several, in_folders, in_csv, in_packed_csv, in_feather, in_a_bucket, in_arrows_dataset]


def read(scan):
    """Inputs, targets and identifiers of all batches, part by part."""
    found = [batch for part in scan.parts() for batch in part.batches()]
    if not found:
        return np.empty((0, 2)), np.empty(0), []
    inputs, targets = zip(*(batch.records for batch in found), strict=True)
    return np.concatenate(inputs), np.concatenate(targets), [name for batch in found for name in batch.ids]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("batch_rows", [32, 4096])
def test_every_file_gives_the_same_records(rows, way, batch_rows, tmp_path):
    scan = ub.scan(way(rows, tmp_path), **COLUMNS, ids="id", batch_rows=batch_rows)
    inputs, targets, ids = read(scan)
    assert ids == rows["id"].to_pylist()
    np.testing.assert_array_equal(inputs, np.stack([rows["b"], rows["a"]], axis=1))
    np.testing.assert_array_equal(targets, rows["y"])
    assert scan.rows in (ROWS, None)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        (("who", "in", ["p1", "p8"]), lambda row: row["who"] in ("p1", "p8")),
        ([("who", "==", "p2"), ("a", ">", 0.5)], lambda row: row["who"] == "p2" and row["a"] > 0.5),
        (("b", "not in", [0, 1, 2, 3, 4]), lambda row: row["b"] > 4),
        (("who", "==", "nobody"), lambda row: False),
    ],
)
def test_conditions(rows, way, where, wanted, tmp_path):
    _, _, ids = read(ub.scan(way(rows, tmp_path), **COLUMNS, ids="id", where=where))
    assert ids == [row["id"] for row in rows.to_pylist() if wanted(row)]


def test_what_is_no_number_is_not_passed_over(tmp_path):
    """Though the bounds of its row group say that all of it is one."""
    cells = pa.table({"a": [1.0, float("nan"), 1.0, 2.0], "b": [0, 1, 2, 3]})
    parquet.write_table(cells, tmp_path / "rows.parquet", row_group_size=3)
    (batch,) = ub.scan(tmp_path, columns=["b"], where=("a", "!=", 1)).batches()
    assert batch.records.ravel().tolist() == [1, 3]


@pytest.mark.parametrize("zero", [0.0, -0.0, 0])
@pytest.mark.parametrize("operator", ["in", "named"])
def test_both_zeros_are_found(tmp_path, zero, operator):
    """Of a row group of zeros, Parquet says that it lies between -0.0 and 0.0."""
    cells = pa.table({"who": [0.0, 0.0, -0.0, 0.0, 1.0, 1.0], "a": range(6)})
    parquet.write_table(cells, tmp_path / "rows.parquet", row_group_size=2)
    wanted = ["0"] if operator == "named" else [zero, 5]
    for data in (tmp_path / "rows.parquet", cells):
        found = [
            batch.records for batch in ub.scan(data, columns=["a"], where=("who", operator, wanted)).batches()
        ]
        assert np.concatenate(found).ravel().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("name", "operator", "value"),
    [
        ("age", "<", 18.5),
        ("age", "==", np.float64(17.9)),
        ("age", "in", [18, 17.9]),
        ("day", "<", datetime.datetime(2024, 1, 2, 12)),
        ("when", "==", 5),
        ("there", ">=", datetime.datetime(2024, 1, 2)),
    ],
)
def test_values_that_would_be_cut_are_refused(name, operator, value):
    rows = pa.table(
        {
            "age": [17, 18, 19],
            "day": pa.array([datetime.date(2024, 1, day) for day in (1, 2, 3)]),
            "when": pa.array([0, 1, 2], pa.timestamp("us")),
            "there": pa.array([0, 1, 2], pa.timestamp("us", "Europe/Berlin")),
        }
    )
    with pytest.raises(Refused, match=f"where must compare {name} with values of its type"):
        list(ub.scan(rows, columns=["age"], where=(name, operator, value)).batches())


def test_empty_cells_are_asked_for_among_several():
    rows = pa.table({"a": [1.0, 2.0], "g": ["x", None]})
    with pytest.raises(Refused, match="where must ask for empty cells of g by in or not in, with None among"):
        ub.scan(rows, columns=["a"], where=("g", "==", None))
    (batch,) = ub.scan(rows, columns=["a"], where=("g", "in", [None])).batches()
    assert batch.records.tolist() == [[2.0]]


def test_words_of_csv_are_not_put_in_order(tmp_path):
    """Identifiers are words there, of which "10" comes before "9"."""
    (tmp_path / "rows.csv").write_text("id,k,a\n9,1,1\n10,2,2\n")
    columns = ub.Columns([ub.Column("k", categories=("1", "2")), "a"])
    for name, settings in (("id", {"columns": ["a"], "ids": "id"}), ("k", {"columns": columns})):
        with pytest.raises(Refused, match=f"where must compare {name} by ==, !=, in or not in"):
            ub.scan(tmp_path / "rows.csv", **settings, where=(name, ">", Text("1")))


def test_what_is_true_or_false_is_a_number_in_csv_too(tmp_path):
    (tmp_path / "rows.csv").write_text("a,y\ntrue,1\nfalse,0\n")
    columns = ub.Columns.of(tmp_path / "rows.csv", target="y", standardise=False)
    (batch,) = ub.scan(tmp_path / "rows.csv", columns=columns).batches()
    assert batch.records[0].tolist() == [[1.0], [0.0]]


@pytest.mark.parametrize(
    "kinds", [("float32", "float64"), ("float64", "float32"), ("int8", "float64"), ("int8", "int64")]
)
def test_no_digits_are_lost_by_the_type_of_the_first_file(tmp_path, kinds):
    value = 2.0**24 + 1
    for number, (kind, cell) in enumerate(
        zip(kinds, (1, value) if kinds[1] != "float32" else (value, 1), strict=True)
    ):
        cells = pa.table({"a": np.array([cell], kind), "b": [number]})
        parquet.write_table(cells, tmp_path / f"{number}.parquet")
    for where in (None, ("a", ">", 1)):
        scan = ub.scan(tmp_path, columns=["a"], where=where)
        found = np.concatenate([batch.records for batch in scan.batches()])
        assert found.max() == value


def test_a_file_is_read_once(rows, tmp_path):
    path = in_parquet(rows, tmp_path)
    (tmp_path / "again.parquet").symlink_to(path)
    for places in (
        [str(path), f"{tmp_path}/r*.parquet"],
        [str(path), f"{tmp_path}/./rows.parquet"],
        tmp_path,
    ):
        with pytest.raises(Refused, match=r"data must name each file once, got .*rows.parquet 2 times"):
            ub.scan(places, **COLUMNS)


def test_folders_above_what_was_named_are_no_columns(rows, tmp_path):
    folder = tmp_path / "run=7"
    folder.mkdir()
    assert "run" not in ub.scan(in_parquet(rows, folder)).columns
    assert "run" not in ub.scan(f"{folder}/*.parquet").columns
    assert "run" in ub.scan(f"{tmp_path}/run=*/*.parquet").columns


def test_numbers_of_folders_that_are_meant_as_words(rows, tmp_path):
    for name in ("007", "7"):
        (tmp_path / f"customer={name}").mkdir()
        parquet.write_table(rows, tmp_path / f"customer={name}" / "rows.parquet")
    with pytest.raises(Refused, match=r"customer=007/rows.parquet: the folder customer=… must hold words"):
        ub.scan(tmp_path, **COLUMNS, where=("customer", "named", ["7"]))


def test_addresses_that_nobody_knows():
    with pytest.raises(Refused, match="foo://bar/x cannot be opened: fsspec knows no such address"):
        ub.scan("foo://bar/x", columns=["a"])


def test_words_that_look_like_numbers_stay_words(tmp_path):
    (tmp_path / "rows.csv").write_text("id,a\n007,1\n7,2\n")
    (batch,) = ub.scan(tmp_path / "rows.csv", columns=["a"], ids="id").batches()
    assert batch.ids == ["007", "7"]


def test_numbers_of_csv_are_those_of_its_later_lines(tmp_path):
    """Arrow would take the column for whole numbers, by its first block."""
    lines = [*("1" for _ in range(300_000)), "2.5"]
    (tmp_path / "rows.csv").write_text("a\n" + "\n".join(lines))
    found = [batch.records for batch in ub.scan(tmp_path / "rows.csv", columns=["a"]).batches()]
    assert np.concatenate(found)[-1] == 2.5


def test_a_person_is_read_from_the_row_groups_that_hold_them(rows, tmp_path):
    scan = ub.scan(in_parquet(rows, tmp_path), **COLUMNS, where=("who", "==", "p3"))
    assert isinstance(scan.reader, FileReader)
    assert [(each.first, each.rows) for each in scan.reader.files] == [(74, 37), (111, 37)]
    scan = ub.scan(in_folders(rows, tmp_path / "f"), **COLUMNS, where=("who", "==", "p3"))
    assert isinstance(scan.reader, FileReader)
    assert {Path(each.name).parent.name for each in scan.reader.files} == {"who=p3"}


class CountedFileSystem(LocalFileSystem):
    """Files whose bytes are counted as they are read."""

    protocol = "counted"
    read = 0

    def _open(self, path, mode="rb", block_size=None, **settings):
        file = super()._open(path, mode, block_size, **settings)
        whole = file.f.read

        def counted(*given):
            found = whole(*given)
            CountedFileSystem.read += len(found)
            return found

        file.read = counted
        return file


def bytes_read(place):
    """What this process has read of a file so far: as the system or, from afar, the file system tells."""
    if place.startswith("counted:"):
        return CountedFileSystem.read
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(lines[0].removeprefix("rchar: "))


@pytest.mark.parametrize("kind", ["here", "afar"])
def test_few_bytes_are_read_for_few_people(tmp_path, kind):
    """At most 2% of a sorted file for 0.1% of the people in it."""
    if kind == "here" and not Path("/proc/self/io").exists():
        pytest.skip("this system does not tell how much was read")
    people, each = 1000, 1000
    rng = np.random.default_rng(0)
    columns = {f"x{i}": rng.normal(size=people * each) for i in range(6)}
    table = pa.table({"who": np.repeat(np.arange(people), each), **columns})
    path = tmp_path / "rows.parquet"
    parquet.write_table(table, path, row_group_size=2500, use_dictionary=False)
    fsspec.register_implementation("counted", CountedFileSystem, clobber=True)
    place = str(path) if kind == "here" else f"counted://{path}"
    wanted = random.Random(0).sample(range(people), people // 1000)

    def find():
        scan = ub.scan(place, columns=[*columns], where=("who", "in", wanted))
        return np.concatenate([batch.records for batch in scan.batches()])

    find()
    before = bytes_read(place)
    found = find()
    assert bytes_read(place) - before <= 0.02 * path.stat().st_size
    rows = np.concatenate([np.arange(who * each, (who + 1) * each) for who in sorted(wanted)])
    np.testing.assert_array_equal(found[:, 0], columns["x0"][rows])


def test_columns_that_nobody_asked_for_are_not_read(rows, tmp_path):
    """Whatever is wrong with them."""
    path = in_parquet(rows, tmp_path)
    start = parquet.ParquetFile(path).metadata.row_group(2).column(4).dictionary_page_offset
    damaged = bytearray(path.read_bytes())
    damaged[start : start + 20] = bytes(20)
    path.write_bytes(damaged)
    assert sum(batch.size for batch in ub.scan(path, **COLUMNS).batches()) == ROWS
    with pytest.raises(Refused, match=r"batch 2: .*rows.parquet cannot be read beyond row 74: it is damaged"):
        list(ub.scan(path, **COLUMNS, ids="id", batch_rows=37).batches())


def other_type(table):
    return table.set_column(1, "a", [["x"] * len(table)])


def without_a(table):
    return table.drop_columns(["a"])


def other_width(table):
    return table.set_column(1, "a", table["a"].cast(pa.float32()))


def test_files_of_another_schema_are_refused_before_any_is_read(rows, tmp_path):
    place = in_several(rows, tmp_path)
    middle = tmp_path / "part-1.parquet"
    part = parquet.read_table(middle)
    parquet.write_table(other_type(part), middle)
    with pytest.raises(
        Refused, match=r"column a of .*part-1.parquet must be double as in the first file, got"
    ):
        ub.scan(place, **COLUMNS)
    parquet.write_table(without_a(part), middle)
    with pytest.raises(Refused, match=r"part-1.parquet has no column a; it has who, b, y, id"):
        ub.scan(place, **COLUMNS)
    parquet.write_table(other_width(part).select(["y", "id", "b", "a"]), middle)
    inputs, _, ids = read(ub.scan(place, **COLUMNS, ids="id"))
    assert ids == rows["id"].to_pylist()
    np.testing.assert_allclose(inputs[:, 1], rows["a"], rtol=1e-7)


def cut_short(path):
    path.write_bytes(path.read_bytes()[:700])


def of_another_format(path):
    path.write_bytes(b"PAR1, or so it says")


def changed_on_the_way(path):
    """Two bytes in the middle of the pages, which their checksum tells."""
    content = bytearray(path.read_bytes())
    content[200:202] = bytes(255 - each for each in content[200:202])
    path.write_bytes(content)


def gone(path):
    path.unlink()


@pytest.mark.parametrize("harm", [cut_short, of_another_format, changed_on_the_way, gone])
@pytest.mark.parametrize("is_open", [False, True])
def test_a_file_that_cannot_be_read_is_named(rows, tmp_path, harm, is_open):
    """Before anything is computed, or where it is reached; there is no sum of what came before it."""
    for part in range(3):
        path = tmp_path / f"part-{part}.parquet"
        parquet.write_table(rows.slice(100 * part, 100), path, write_page_checksum=True)
    last, model = tmp_path / "part-2.parquet", ub.linear_regression(2, noise_scale=1.0)
    places = [str(tmp_path / f"part-{part}.parquet") for part in range(3)]
    source = ub.scan(places, **COLUMNS) if is_open else None
    harm(last)
    with pytest.raises(ValueError, match=r"part-2.parquet cannot be read") as refused:
        ub.fit(model, source or ub.scan(places, **COLUMNS), key=KEY)
    assert not re.search(r"p\d\b(?!art)", str(refused.value).replace(str(tmp_path), ""))


def test_a_bad_line_of_csv_is_named_and_not_shown(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("a,y\n1,2\nsecret,3\n")
    with pytest.raises(Refused, match=r"rows.csv.* line 3 is not of the columns' types") as refused:
        list(ub.scan(path, columns=["a"], target="y").batches())
    assert "secret" not in "".join(traceback.format_exception(refused.value))
    path.write_text("a,y\n1,2\n3\n")
    with pytest.raises(Refused, match=r"rows.csv cannot be read as csv: line 3 is not of"):
        ub.scan(path, columns=["a"], target="y")
    path.write_text("a,y\n1,2\n,3\n")
    with pytest.raises(Refused, match=r"rows.csv, row 1 \(from 0\), column a is empty"):
        list(ub.scan(path, columns=["a"], target="y").batches())


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        ("none.parquet", "none.parquet cannot be read: there is no such file"),
        ("*.csv", r"\*.csv must match some files, but matches none"),
        ("empty", "empty must hold files, but holds none"),
        ("mixed", "data must be of one format, got csv and parquet"),
    ],
)
def test_places_where_nothing_is(tmp_path, place, sentence):
    (tmp_path / "empty").mkdir()
    (tmp_path / "mixed").mkdir()
    for name in ("a.csv", "a.parquet"):
        (tmp_path / "mixed" / name).touch()
    with pytest.raises(Refused, match=sentence):
        ub.scan(tmp_path / place, columns=["a"])
    with pytest.raises(Refused, match="data must name at least one file, got none"):
        ub.scan([], columns=["a"])
    with pytest.raises(Refused, match="data must be all here or all at one address, got both"):
        ub.scan([str(tmp_path / place), "memory://x"], columns=["a"])
