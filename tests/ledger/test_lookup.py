"""The records of people, found where the operator keeps them."""

import dataclasses

import numpy as np
import pytest

import unbayes as ub
from unbayes.data.refusal import Refused
from unbayes.ledger import Lookup, NotFound
from unbayes.ledger.lookup import by_person
from unbayes.ledger.records import TableColumns

pa = pytest.importorskip("pyarrow")
from pyarrow import csv, dataset, feather, parquet  # noqa: E402

ROWS = 60
COLUMNS = TableColumns(("a", "b"), "y", "id")


def table(**more):
    rng = np.random.default_rng(0)
    return pa.table(
        {
            "y": rng.normal(size=ROWS),
            "id": [f"{i:04}" for i in range(ROWS)],
            "who": [f"p{i % 7}" for i in range(ROWS)],
            "note": ["left alone"] * ROWS,
            "b": rng.integers(0, 9, ROWS),
            "a": rng.normal(size=ROWS),
            **more,
        }
    )


def in_memory(value, who):
    """What must be found, by the rows themselves."""
    rows = [i for i, cell in enumerate(value.column("who").to_pylist()) if cell is not None and cell == who]
    numbers = np.stack([value.column(name).to_numpy()[rows] for name in COLUMNS.columns], axis=1)
    return [value.column("id")[row].as_py() for row in rows], numbers


def require(found, value, people):
    for name, who in people.items():
        ids, numbers = in_memory(value, who)
        order = np.argsort(found[name].ids)
        assert sorted(found[name].ids) == ids
        np.testing.assert_array_equal(found[name].numbers[order], numbers)


def one_parquet(value, folder):
    parquet.write_table(value, folder / "rows.parquet", row_group_size=7)
    return folder / "rows.parquet"


def some_files(value, folder):
    for part in range(3):
        parquet.write_table(value.slice(20 * part, 20), folder / f"{part}.parquet")
    return folder


def a_pattern(value, folder):
    return f"{some_files(value, folder)}/*.parquet"


def partitioned(value, folder):
    dataset.write_dataset(value, folder, format="parquet", partitioning=["who"], partitioning_flavor="hive")
    return folder


def one_feather(value, folder):
    feather.write_feather(value, str(folder / "rows.feather"))
    return folder / "rows.feather"


def one_csv(value, folder):
    csv.write_csv(value, folder / "rows.csv")
    return folder / "rows.csv"


def an_address(value, folder):
    return one_parquet(value, folder).as_uri()


WRITERS = (one_parquet, some_files, a_pattern, partitioned, one_feather, one_csv, an_address)


@pytest.mark.parametrize("write", WRITERS)
def test_people_are_found_wherever_they_are(write, tmp_path):
    value = table()
    place = write(value, tmp_path)
    found = Lookup(place, "who").find(["p3", "nobody", "p0", "p3"], COLUMNS)
    assert list(found) == ["p3", "p0"]
    require(found, value, {"p3": "p3", "p0": "p0"})
    assert Lookup(place, "who").find(["nobody"], COLUMNS) == {}


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.int64(), pa.uint64(), pa.float64(), pa.float32(), pa.decimal128(21, 2)]
)
@pytest.mark.parametrize("write", [one_parquet, partitioned, one_csv])
def test_people_may_be_numbers(write, kind, tmp_path):
    if write is partitioned and not pa.types.is_integer(kind):
        pytest.skip("folders are named by words and whole numbers")
    if write is one_csv and pa.types.is_decimal(kind):
        pytest.skip("a word such as 7.00 is none for a person")
    value = table(who=[i % 7 for i in range(ROWS)])
    value = value.set_column(2, "who", value.column("who").cast(kind))
    place = write(value, tmp_path)
    found = Lookup(place, "who").find(["3", "03", "3.0", "٣", "9" * 40, "x", "", "-3"], COLUMNS)
    assert list(found) == ["3"]
    require(found, value, {"3": 3})


def test_people_may_be_codes_or_have_gaps(tmp_path):
    value = table()
    value = value.set_column(2, "who", value.column("who").dictionary_encode())
    require(Lookup(one_parquet(value, tmp_path), "who").find(["p5"], COLUMNS), value, {"p5": "p5"})
    gaps = table(who=[float(i % 7) if i % 2 else None for i in range(ROWS)])
    require(Lookup(one_parquet(gaps, tmp_path), "who").find(["5"], COLUMNS), gaps, {"5": 5})


def test_words_in_csv_are_no_numbers(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("who,id,a,b,y\n007,0001,1,2,3\n7,0002,1,2,3\n07,0003,1,2,3\n")
    found = Lookup(path, "who").find(["007", "7"], COLUMNS)
    assert {who: records.ids for who, records in found.items()} == {"007": ("0001",), "7": ("0002",)}


def test_a_person_may_be_the_record(tmp_path):
    found = Lookup(one_parquet(table(), tmp_path), "id").find(["0007"], COLUMNS)
    assert found["0007"].ids == ("0007",)


def test_row_groups_that_hold_nobody_who_is_asked_for_are_not_read(tmp_path):
    value = table(who=[i // 10 for i in range(ROWS)])
    path = tmp_path / "rows.parquet"
    parquet.write_table(value, path, row_group_size=10, compression="none", use_dictionary=False)
    metadata = parquet.ParquetFile(path).metadata
    data = bytearray(path.read_bytes())
    for group in (0, 1, 3, 4, 5):
        for column in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(column)
            start, size = chunk.data_page_offset, chunk.total_compressed_size
            data[start : start + size] = bytes(size)
    path.write_bytes(data)
    require(Lookup(path, "who").find(["2"], COLUMNS), value, {"2": 2})
    with pytest.raises(Refused, match=r"rows\.parquet cannot be read"):
        Lookup(path, "who").find(["3"], COLUMNS)


def test_files_of_other_people_are_not_opened(tmp_path):
    value = table()
    partitioned(value, tmp_path)
    for path in tmp_path.glob("who=p[1-6]/*"):
        path.write_bytes(b"no Parquet")
    require(Lookup(tmp_path, "who").find(["p0"], COLUMNS), value, {"p0": "p0"})


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"who": pa.array([None] * ROWS, pa.timestamp("s"))}, "column who must hold words or whole numbers"),
        ({"id": ["same"] * ROWS}, "ids must name each record once"),
        ({"id": [None] * ROWS}, r"rows.parquet, row 0 \(from 0\), column id must be words"),
        ({"a": [1.0] * 8 + [None] * (ROWS - 8)}, r"rows.parquet, row 14 \(from 0\), column a is empty"),
        ({"b": [1.0, np.inf] * (ROWS // 2)}, r"row 7 \(from 0\), column b must be a finite number"),
        ({"b": ["secret"] * ROWS}, "column b must hold numbers, but is of type string"),
    ],
)
def test_records_that_no_model_takes_are_refused(columns, sentence, tmp_path):
    path = tmp_path / "rows.parquet"
    parquet.write_table(table(**columns), path)
    with pytest.raises(Refused, match=sentence) as refused:
        Lookup(path, "who").find(["p0"], COLUMNS)
    assert "secret" not in str(refused.value)
    assert "p0" not in str(refused.value)


def test_columns_and_places_that_are_missing(tmp_path):
    path = one_parquet(table(), tmp_path)
    with pytest.raises(Refused, match="have no person"):
        Lookup(path, "person").find(["p0"], COLUMNS)
    with pytest.raises(Refused, match="the source has no column c"):
        Lookup(path, "who").find(["p0"], dataclasses.replace(COLUMNS, inputs=("a", "c")))
    with pytest.raises(Refused, match="there is no such file"):
        Lookup(tmp_path / "none.parquet", "who").find(["p0"], COLUMNS)
    Lookup(path, "who").require(COLUMNS)
    Lookup(path, "who").require()
    for lookup, columns in (
        (Lookup(path, "person"), None),
        (Lookup(path, "who"), dataclasses.replace(COLUMNS, ids="number")),
        (Lookup(tmp_path / "none.csv", "who"), None),
    ):
        with pytest.raises(Refused):
            lookup.require(columns)


def test_what_storage_is_opened_with_is_not_shown(tmp_path):
    assert "hunter2" not in repr(Lookup("s3://bucket/data", "who", storage_options={"secret": "hunter2"}))


def test_by_person_in_a_table_in_memory():
    value = table()
    found = by_person(ub.scan(value, columns=["a"]), COLUMNS, "who")
    assert list(found) == [f"p{i}" for i in range(7)]
    require(found, value, {f"p{i}": f"p{i}" for i in range(7)})


@pytest.fixture
def people(tmp_path, setting):
    x, y = setting.x, setting.y
    columns = {"id": setting.ids, "y": y, "b": x[:, 1], "a": x[:, 0], "who": [i // 3 for i in range(len(y))]}
    parquet.write_table(pa.table(columns), tmp_path / "people.parquet")
    return tmp_path / "people.parquet"


def test_a_ledger_looks_people_up(ledger, setting, people):
    request = ledger.request("m", subject="5", rows=Lookup(people, "who"), idempotency_key="k")
    assert request.asked == 3
    # The same as if the rows had been given.
    same = ledger.request("m", subject="5", rows=setting.records(15, 16, 17), idempotency_key="k")
    assert same.id == request.id
    with pytest.raises(NotFound, match="the source has no records of this person"):
        ledger.request("m", subject="500", rows=Lookup(people, "who"))
    assert len(ledger.requests()) == 1


def test_a_ledger_takes_a_scan_of_one_person(ledger, setting, people):
    scan = ub.scan(people, where=("who", "==", 5))
    request = ledger.request("m", subject="5", rows=scan, idempotency_key="k")
    same = ledger.request("m", subject="5", rows=setting.records(15, 16, 17), idempotency_key="k")
    assert same.id == request.id
    with pytest.raises(Refused, match="must hold the person's records, but has none"):
        ledger.request("m", subject="5", rows=ub.scan(people, where=("who", "==", 500)))
    with pytest.raises(Refused, match="these are records without names"):
        ledger.request("m", subject="5", rows=ub.scan((setting.x, setting.y)))
