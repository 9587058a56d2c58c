"""One source of records: the same batches of whatever holds them."""

import numpy as np
import pytest

import unbayes as ub
from problems import KEY
from unbayes.data.refusal import Refused

pa = pytest.importorskip("pyarrow", reason="needs the extra data")

ROWS = 100
COLUMNS = {"columns": ["b", "a"], "target": "y"}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return pa.table(
        {
            "a": rng.normal(size=ROWS),
            "b": rng.integers(0, 9, ROWS),
            "y": rng.random(ROWS) < 0.5,
            "id": [f"{i:03}" for i in range(ROWS)],
            "who": [f"p{i % 7}" for i in range(ROWS)],
        }
    )


def batches_of(rows):
    return [rows.slice(first, 30) for first in range(0, ROWS, 30)]


def as_pandas(rows):
    frame = rows.to_pandas()
    return frame.set_index(np.arange(ROWS) + 17)


def as_polars(rows):
    return pytest.importorskip("polars").from_arrow(rows)


def as_duckdb(rows):
    return pytest.importorskip("duckdb").connect().from_arrow(rows)


TABLES = {
    "arrow": lambda rows: rows,
    "record batch": lambda rows: rows.combine_chunks().to_batches()[0],
    "reader": lambda rows: rows.to_reader(max_chunksize=13),
    "pandas": as_pandas,
    "polars": as_polars,
    "duckdb": as_duckdb,
    "tables": batches_of,
    "iterator": lambda rows: iter(batches_of(rows)),
    "function": lambda rows: lambda: (each.to_pandas() for each in batches_of(rows)),
}


def read(scan):
    """Inputs, targets and identifiers of all batches."""
    found = list(scan.batches())
    assert [each.number for each in found] == list(range(len(found)))
    assert all(each.size == scan.batch_rows for each in found[:-1])
    ids = [name for each in found for name in each.ids or ()]
    inputs, targets = zip(*(each.records for each in found), strict=True)
    return np.concatenate(inputs), np.concatenate(targets), ids


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("batch_rows", [1, 16, 50, 1000])
def test_every_table_gives_the_same_batches(rows, kind, batch_rows):
    scan = ub.scan(TABLES[kind](rows), **COLUMNS, ids="id", batch_rows=batch_rows)
    inputs, targets, ids = read(scan)
    np.testing.assert_array_equal(inputs, np.stack([rows["b"], rows["a"]], axis=1))
    np.testing.assert_array_equal(targets, rows["y"])
    assert ids == rows["id"].to_pylist()
    assert scan.rows in (ROWS, None)


@pytest.mark.parametrize("kind", TABLES)
def test_every_table_takes_conditions(rows, kind):
    scan = ub.scan(TABLES[kind](rows), **COLUMNS, ids="id", where=[("who", "in", ["p3"]), ("b", ">", 2)])
    wanted = [i for i in range(3, ROWS, 7) if rows["b"][i].as_py() > 2]
    assert read(scan)[2] == [f"{i:03}" for i in wanted]
    assert scan.rows is None


def test_columns_are_all_others_where_they_are_not_named(rows):
    scan = ub.scan(rows, target="y", ids="id", where=("who", "==", "p0"))
    assert scan.columns == ["a", "b", "y", "id"]
    assert ub.scan(rows.select(["a", "b"])).columns == ["a", "b"]


def test_a_function_makes_records_of_pieces(rows):
    def sides(piece):
        return {"both": np.stack([piece["a"], piece["b"]], axis=1), "y": piece["y"].to_numpy(False)}

    found = [each.records for each in ub.scan(rows, columns=sides, batch_rows=30).batches()]
    np.testing.assert_array_equal(np.concatenate([each["both"][:, 0] for each in found]), rows["a"])
    with pytest.raises(Refused, match=r"batch 0: the table, row 0 .*one record for each row, got 1 for 100"):
        list(ub.scan(rows, columns=lambda piece: np.ones(1)).batches())


def test_arrays_and_pairs_of_them():
    x, y = np.arange(20.0).reshape(10, 2), np.arange(10)
    found = [each.records for each in ub.scan((x, y), batch_rows=4).batches()]
    assert [len(each[1]) for each in found] == [4, 4, 2]
    np.testing.assert_array_equal(np.concatenate([each[0] for each in found]), x)
    (whole,) = ub.scan(x).batches()
    np.testing.assert_array_equal(whole.records, x)


def test_an_iterator_is_read_once(rows):
    scan = ub.scan(iter(batches_of(rows)), **COLUMNS)
    assert scan.is_once
    read(scan)
    with pytest.raises(Refused, match="must be read more than once, which an iterator cannot"):
        read(scan)
    assert not ub.scan(lambda: batches_of(rows), **COLUMNS).is_once


def test_words_that_stand_for_few_values_are_numbers_all_the_same(rows):
    """A column that Arrow keeps as a dictionary."""
    coded = rows.set_column(1, "b", rows["b"].dictionary_encode())
    np.testing.assert_array_equal(read(ub.scan(coded, **COLUMNS))[0], read(ub.scan(rows, **COLUMNS))[0])


BAD = {
    "no number": (
        {"a": pa.array([0.0] * 77 + [float("nan")] + [0.0] * 22)},
        r"batch 7: the table, row 77 \(from 0\), column a must be a finite number",
    ),
    "a gap": (
        {"b": pa.array([1] * 42 + [None] + [1] * 57)},
        r"batch 4: the table, row 42 \(from 0\), column b is empty",
    ),
    "words": ({"a": pa.array(["secret"] * ROWS)}, "batch 0: the table, row 0 .*column a must hold numbers"),
    "an identifier is missing": (
        {"id": pa.array(["x"] * 95 + [None] * 5)},
        r"batch 9: the table, row 95 \(from 0\), column id must be words or whole numbers, but is empty",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_cell_is_named_and_not_shown(rows, name):
    changes, sentence = BAD[name]
    for column, cells in changes.items():
        rows = rows.set_column(rows.column_names.index(column), column, cells)
    with pytest.raises(Refused, match=sentence) as refused:
        read(ub.scan(rows, **COLUMNS, ids="id", batch_rows=10))
    assert "secret" not in str(refused.value)


def test_a_bad_batch_of_many_is_named():
    """Its number, and the row in it; and there is no sum of those before it."""

    def stream():
        for number in range(800):
            x = np.ones((8, 2))
            x[5, 1] = np.nan if number == 731 else 1
            yield x, np.ones(8)

    with pytest.raises(ValueError, match=r"batch 731 as given, row 5 \(from 0\), must hold finite numbers"):
        ub.fit(ub.linear_regression(2, noise_scale=1.0), ub.scan(stream, batch_rows=8), key=KEY)


def other_width():
    yield np.ones((4, 2)), np.ones(4)
    yield np.ones((4, 3)), np.ones(4)


def other_kind():
    yield np.ones((4, 2)), np.ones(4)
    yield pa.table({"a": [1.0]})


def other_names():
    yield pa.table({"a": [1.0], "b": [1.0], "y": [1.0]})
    yield pa.table({"a": [1.0], "c": [1.0], "y": [1.0]})


@pytest.mark.parametrize(
    ("stream", "settings", "sentence"),
    [
        (other_width, {}, r"batch 1 as given must be like those before it, .*n, 2.*but is .*n, 3"),
        (other_kind, {}, "batch 1 as given must be like those before it, .*but is a table"),
        (other_names, COLUMNS, "batch 1 as given has no column b; it has a, c, y"),
        (lambda: [np.array(["word"])], {}, "batch 0 as given: records must be numeric"),
        (lambda: [(np.ones(3), np.ones(4))], {}, "batch 0 as given: records must be arrays that share"),
        (other_width, {"where": ("a", "==", 1)}, "where must be left out for records that are no tables"),
        (other_width, COLUMNS, "columns, target and ids must be left out: batch 0 as given is no table"),
        (lambda: [pa.table({"a": [1.0]})], {}, "columns and target must be named: batch 0 .* is a table"),
    ],
)
def test_a_batch_unlike_the_others_is_named(stream, settings, sentence):
    with pytest.raises(Refused, match=sentence):
        list(ub.scan(stream, **settings, batch_rows=2).batches())


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"columns": ["a", "none"]}, "the data has no column none; it has a, b, y, id, who"),
        ({"columns": ["a", "a"]}, "a column must be named once"),
        ({"columns": "a"}, r"columns must be a list of names, got one name; give \[name\]"),
        ({"columns": ["a"], "batch_rows": 0}, "batch_rows must be a number of records, at least 1, got 0"),
        (
            {"columns": ["a"], "where": ("none", "==", 1)},
            "where must name columns of the data, which have no",
        ),
        ({"columns": ["a"], "where": ("a", "=", 1)}, "where must be a condition such as"),
        (
            {"columns": ["a"], "where": ("b", "==", "x")},
            "where must compare b with values of its type, int64",
        ),
    ],
)
def test_settings_that_make_no_sense(rows, settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        list(ub.scan(rows, **settings).batches())


@pytest.mark.parametrize("data", [None, b"rows.parquet", ("a.parquet", "b.parquet"), {"a": [1, 2]}, 3])
def test_what_holds_no_records(data):
    with pytest.raises(
        Refused, match=f"data must be a place, a table, arrays, .* got a {type(data).__name__}"
    ):
        ub.scan(data)


def test_where_needs_names():
    with pytest.raises(Refused, match="where must be left out for arrays"):
        ub.scan(np.ones((3, 2)), where=("a", "==", 1))
