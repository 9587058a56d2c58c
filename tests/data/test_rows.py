"""Tables of erased records: what is read, and what is refused."""

import datetime
import decimal

import numpy as np
import pytest

from unbayes.data.choosing import choose_columns, noted_columns, parse_names, told_columns
from unbayes.data.columns import Column, Columns
from unbayes.data.refusal import Refused
from unbayes.data.rows import open_rows

pa = pytest.importorskip("pyarrow", reason="needs the extra parquet")
pq = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def parquet(tmp_path):
    """Write columns to a Parquet file."""

    def write(name="rows.parquet", **columns):
        path = tmp_path / name
        pq.write_table(pa.table(columns), path)
        return path

    return write


def refusal(call, *arguments, **options):
    with pytest.raises(Refused) as caught:
        call(*arguments, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        "a,name,b\n1,x,2\n3,y,4.5\n",
        "a,name,b\r\n1,x,2\r\n3,y,4.5\r\n",
        "\ufeffa,name,b\n1,x,2\n3,y,4.5",
        " a ,name, b\n 1,x, 2\n3.0,y,45e-1\n\n\n",
        '"a","name","b"\n"1","x, or\nso","2"\n3,"",4.5\n',
    ],
    ids=["plain", "windows", "byte order mark", "spaces and empty lines", "quotes"],
)
def test_csv(text, content):
    table = open_rows(text(content))
    assert table.names == ["a", "name", "b"]
    assert table.numbers(["b", "a"]).tolist() == [[2, 1], [4.5, 3]]


def test_csv_without_a_header(text):
    table = open_rows(text("1,2\n3,4\n"), has_header=False)
    assert table.names == ["0", "1"]
    assert table.numbers(["1", "0"]).tolist() == [[2, 1], [4, 3]]


def test_csv_keeps_every_digit(text):
    values = np.random.default_rng(0).normal(size=100) * 10.0 ** np.arange(-50, 50)
    table = open_rows(text("a\n" + "\n".join(map(repr, values.tolist()))))
    assert np.array_equal(table.numbers(["a"])[:, 0], values)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "must hold records, but is empty"),
        ("\n1,2\n", "its first line is empty"),
        ("a,b\n", "has none below its header"),
        ("a,b\n\n", "has none below its header"),
        ("1,2\n3,4\n", "must name the columns, but holds numbers only; give --no-header"),
        ("a,b\n1,2\n3\n", "line 3 of .* must have 2 cells, got 1"),
        ("a,b\n1,2\n\n3,4\n", "line 3 of .* must hold a record, but is empty"),
        ("a,b\n1,2\n3,x7\n", "line 3, column b of .* must be a finite number, but is none"),
        ("a,b\n1,\n", "line 2, column b of .* must be a finite number, but is empty"),
        ("a,b\n1,nan\n", "line 2, column b of .* but is none"),
        ("a,b\n1,-inf\n", "line 2, column b of .* but is none"),
        ("a,b\n1,1_000\n", "line 2, column b of .* but is none"),
        ("a,b\n1,True\n", "line 2, column b of .* but is none"),
        ('a,b\n"x\ny",1\n', "line 3, column a of"),
        ('a,b\n1,"2\n', "must be CSV in UTF-8 or Parquet"),
        ("a,b\n1,2é\n".encode("latin-1"), "must be CSV in UTF-8 or Parquet"),
    ],
)
def test_bad_csv_is_refused(text, content, reason):
    path = text(content)
    with pytest.raises(Refused, match=reason) as caught:
        open_rows(path).numbers(["a", "b"])
    assert str(path) in str(caught.value)
    assert "x7" not in str(caught.value), "a record is quoted"


def test_parquet(parquet):
    path = parquet(
        a=pa.array([1, 2], pa.int8()),
        b=pa.array([0.5, 1.5], pa.float32()),
        c=[True, False],
        d=[decimal.Decimal("1.25"), decimal.Decimal("-2.50")],
        e=["x", "y"],
    )
    table = open_rows(path)
    assert table.names == ["a", "b", "c", "d", "e"]
    assert table.numbers(["c", "b", "d", "a"]).tolist() == [[1, 0.5, 1.25, 1], [0, 1.5, -2.5, 2]]


def test_parquet_is_known_by_its_bytes(parquet):
    assert open_rows(parquet("rows.csv", a=[1.0])).numbers(["a"]).tolist() == [[1]]


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (["x", "y"], "column a of .* must hold numbers, but is of type string"),
        ([datetime.date(2020, 1, 1)], "must hold numbers, but is of type date32"),
        ([1.0, None, 2.0], r"row 1 \(from 0\), column a of .* must be a finite number"),
        ([1, 2, None], r"row 2 \(from 0\), column a of .* must be a finite number"),
        ([1.0, float("nan")], r"row 1 \(from 0\), column a of .* must be a finite number"),
        ([2**53 + 1], "column a of .* must fit into float64"),
        (pa.array([], pa.float64()), "must hold records, but has none"),
    ],
)
def test_bad_parquet_is_refused(parquet, column, reason):
    table = open_rows(parquet(a=column))
    with pytest.raises(Refused, match=reason):
        table.numbers(["a"])


def test_what_is_no_parquet_is_refused(text, parquet):
    assert "cannot be read as Parquet" in refusal(open_rows, text("a\n1\n", "rows.parquet"))
    assert "cannot be read as Parquet" in refusal(open_rows, text(b"PAR1", "cut.csv"))
    assert "--no-header is for CSV" in refusal(open_rows, parquet(a=[1.0]), has_header=False)


def test_missing_files_and_folders_are_refused(tmp_path):
    assert "no such file" in refusal(open_rows, tmp_path / "none.csv")
    assert "is a directory" in refusal(open_rows, tmp_path)


@pytest.mark.parametrize(
    ("taken", "inputs", "target", "expected"),
    [
        (2, ["b", "a"], "c", Columns(["b", "a"], "c")),
        (2, None, "b", Columns(["a", "c"], "b")),
        (1, ["a"], "c", Columns(["a"], "c")),
        (None, None, "b", Columns([], "b")),
    ],
)
def test_columns(taken, inputs, target, expected):
    assert choose_columns(["a", "b", "c"], taken, inputs, target, "rows") == expected


def test_the_only_column_is_the_target():
    assert choose_columns(["a"], None, None, None, "rows") == Columns([], "a")


@pytest.mark.parametrize(
    ("taken", "inputs", "target", "reason"),
    [
        (2, None, None, "--target must name the target column of rows, which has a, b, c, c"),
        (None, None, None, "--target must name"),
        (2, None, "b", "rows must have 2 columns besides the target b, got 3"),
        (3, ["a", "b"], "c", "the model takes 3 inputs, but 2 are named: a, b"),
        (2, ["a", "x"], "y", "rows has no column x, y; it has a, b, c, c"),
        (2, ["a", "b"], "c", "rows has more than one column c"),
        (2, ["a", "a"], "b", "a column must be named once"),
        (2, ["a", "b"], "b", "a column must be named once"),
        (None, ["a"], "b", "--inputs must be left out"),
    ],
)
def test_columns_that_do_not_fit_are_refused(taken, inputs, target, reason):
    assert refusal(choose_columns, ["a", "b", "c", "c"], taken, inputs, target, "rows").startswith(reason)


def test_names_between_commas():
    assert parse_names(None) is None
    assert parse_names('a, "b, or c" ,d') == ["a", "b, or c", "d"]


def test_notes_of_another_kind_name_no_columns():
    assert noted_columns({"columns": ["a"], "target": "b"}) == ([Column("a")], Column("b"))
    assert noted_columns({"columns": 7, "target": 3}) == (None, None)
    assert noted_columns({"columns": ["a", 1]}) == (None, None)


def test_columns_that_training_encoded_take_no_other_names():
    notes = {"columns": [{"name": "a", "mean": 1.0, "scale": 2.0}, "b"], "target": "y"}
    assert told_columns(notes, None, None) == ([Column("a", mean=1.0, scale=2.0), Column("b")], Column("y"))
    for inputs, target in ((["a", "b"], None), (None, "y")):
        assert "inputs and target must be left out" in refusal(told_columns, notes, inputs, target)
    plain = {"columns": ["a", "b"], "target": "y"}
    assert told_columns(plain, ["c"], None) == (["c"], Column("y"))


def test_words_and_numbers_become_what_training_made_of_them(text, parquet):
    columns = Columns(
        [Column("a", mean=1.0, scale=2.0), Column("zone", ("eu", "us"))], Column("y", ("n", "y"))
    )
    expected = [[0.0, 1.0, 0.0, 1.0], [1.0, 0.0, 1.0, 0.0]]
    assert open_rows(text("zone,a,y\neu,1,y\nus,3,n\n")).encoded(columns).tolist() == expected
    table = parquet(y=["y", "n"], zone=["eu", "us"], a=[1, 3])
    assert open_rows(table).encoded(columns).tolist() == expected
    other = text("zone,a,y\neu,1,y\nsecret,3,n\n")
    assert refusal(open_rows(other).encoded, columns).startswith(
        f"row 1 (from 0) of {other}: column zone must"
    )
    words = Columns([Column("zone", ("eu", "us"))])
    assert "has none below its header" in refusal(open_rows(text("zone,a\n", "b.csv")).encoded, words)
