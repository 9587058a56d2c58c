"""Columns: what training records tell of them, and that records are encoded the same way ever after."""

import json

import jax
import numpy as np
import pytest

import unbayes as ub
from problems import KEY
from unbayes.data.refusal import Refused

pa = pytest.importorskip("pyarrow", reason="needs the extra data")
from pyarrow import csv, parquet  # noqa: E402

ZONES = ("eu", "sea", "us")


def table(rows=60):
    rng = np.random.default_rng(3)
    return pa.table(
        {
            "id": [f"r{row}" for row in range(rows)],
            "age": rng.normal(50, 8, rows),
            "zone": rng.choice(ZONES, rows),
            "month": rng.integers(1, 13, rows),
            "won": rng.choice(["no", "yes"], rows),
        }
    )


@pytest.fixture
def columns():
    return ub.Columns.of(table(), target="won", categories=["month"], ids="id")


def encoded(data, columns, **settings):
    """All records of a scan."""
    found = [batch.records for batch in ub.scan(data, columns=columns, **settings).batches()]
    return jax.tree.map(lambda *parts: np.concatenate(parts), *found)


def test_what_training_records_tell(columns):
    age, zone, month = columns.inputs
    values = table()["age"].to_numpy()
    np.testing.assert_allclose((age.mean, age.scale), (values.mean(), values.std()), rtol=1e-14)
    assert zone == ub.Column("zone", ZONES)
    assert month == ub.Column("month", tuple(str(each) for each in range(1, 13)))
    assert columns.target == ub.Column("won", ("no", "yes"))
    assert columns.columns == ["age", "zone", "month", "won"]
    assert columns.width == 16


def test_records_are_encoded_by_hand_likewise(columns):
    x, y = encoded(table(), columns)
    value = table().to_pydict()
    ages = np.array(value["age"])
    np.testing.assert_allclose(x[:, 0], (ages - ages.mean()) / ages.std(), rtol=1e-12, atol=1e-14)
    assert x[:, 1:4].tolist() == [[zone == each for each in ZONES] for zone in value["zone"]]
    assert x[:, 4:].tolist() == [[month == each for each in range(1, 13)] for month in value["month"]]
    assert y.tolist() == [won == "yes" for won in value["won"]]


def test_a_few_records_are_encoded_as_among_all(columns):
    x, y = encoded(table(), columns)
    some, classes = encoded(table().slice(20, 3), columns)
    np.testing.assert_array_equal(some, x[20:23])
    np.testing.assert_array_equal(classes, y[20:23])


def test_json_and_back(columns):
    again = ub.Columns.from_json(json.loads(json.dumps(columns.to_json())))
    assert again == columns
    assert ub.Columns(["a", "b"], "y").to_json() == {"columns": ["a", "b"], "target": "y"}
    for part in (ub.Columns(["a"]), ub.Columns(target="y")):
        assert ub.Columns.from_json(part.to_json()) == part


@pytest.mark.parametrize("chunk", [1, 7, 60])
def test_whatever_the_batches_the_statistics_are_the_same(chunk, columns):
    def stream():
        for first in range(0, 60, chunk):
            yield table().slice(first, chunk)

    found = ub.Columns.of(stream, target="won", categories=["month"], ids="id", batch_rows=max(chunk // 2, 1))
    np.testing.assert_allclose(
        (found.inputs[0].mean, found.inputs[0].scale),
        (columns.inputs[0].mean, columns.inputs[0].scale),
        rtol=1e-14,
    )
    assert found.inputs[1:] == columns.inputs[1:]


def test_digits_are_not_lost_to_a_large_mean():
    values = 1e9 + np.random.default_rng(0).random(1000)
    (found,) = ub.Columns.of(pa.table({"a": values}), batch_rows=17).inputs
    # A mean near 1e9 is known to 1e-7, the spacing of floats there.
    np.testing.assert_allclose(found.scale, (values - 1e9).std(), rtol=1e-6)


def test_of_a_constant_column_only_the_mean_is_taken():
    columns = ub.Columns.of(pa.table({"a": [0.1] * 7}), batch_rows=2)
    assert columns == ub.Columns([ub.Column("a", mean=0.1)])
    assert encoded(pa.table({"a": [0.1, 1.1]}), columns).tolist() == [[0.0], [1.0]]


def test_numbers_stay_as_they_are_where_that_is_asked_for():
    assert ub.Columns.of(table().select(["age", "month"]), target="month", standardise=False) == ub.Columns(
        ["age"], "month"
    )


FORMS = {
    "arrow": lambda value, _: value,
    "another order": lambda value, _: value.select(["won", "month", "id", "zone", "age"]),
    "pandas": lambda value, _: value.to_pandas(),
    "polars": lambda value, _: pytest.importorskip("polars").from_arrow(value),
    "categories of pandas": lambda value, _: value.to_pandas().astype({"zone": "category"}),
    "floats": lambda value, _: value.to_pandas().astype({"month": float}),
    "csv": lambda value, path: csv.write_csv(value, path / "a.csv") or path / "a.csv",
    "parquet": lambda value, path: (
        parquet.write_table(value, path / "a.parquet", row_group_size=9) or str(path / "*.parquet")
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_wherever_records_come_from(form, columns, tmp_path):
    data = FORMS[form](table(), tmp_path)
    expected = encoded(table(), columns)
    jax.tree.map(np.testing.assert_array_equal, encoded(data, columns, ids="id", batch_rows=11), expected)
    again = ub.Columns.of(data, target="won", inputs=["age", "zone", "month"], categories=["month"], ids="id")
    np.testing.assert_allclose(again.inputs[0].mean, columns.inputs[0].mean, rtol=1e-13)
    assert again.inputs[1:] == columns.inputs[1:]


def with_column(name, values):
    value = table()
    return value.set_column(value.schema.get_field_index(name), name, pa.array(values))


REFUSED = {
    "another category": (
        with_column("zone", ["eu"] * 41 + ["secret"] * 19),
        r"a.parquet, row 41 \(from 0\), column zone must be one of the categories of training "
        r"\(eu, sea, us\), but is another",
    ),
    "more categories": (with_column("month", [13] * 60), r"row 0 .* training \(1, 2, 3, 4, 5, …\)"),
    "no column": (table().drop_columns("zone"), "no column zone"),
    "words": (with_column("age", ["secret"] * 60), "a.parquet, row 0 .*column age must hold numbers"),
    "numbers": (with_column("zone", [0.5] * 60), "a.parquet, row 0 .*column zone must be words"),
    "nothing": (with_column("zone", ["eu"] * 7 + [None] * 53), "row 7 .*column zone is empty"),
    "no number": (with_column("age", [1.0] * 9 + [np.nan] * 51), "row 9 .*column age must be a finite"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_records_of_another_kind_are_a_sentence(case, columns, tmp_path):
    value, sentence = REFUSED[case]
    parquet.write_table(value, tmp_path / "a.parquet")
    with pytest.raises(Refused, match=sentence) as caught:
        encoded(tmp_path / "a.parquet", columns, batch_rows=16)
    assert "secret" not in str(caught.value)


def test_what_tells_nothing_is_refused():
    many = pa.table({"name": [f"n{row}" for row in range(1001)]})
    for data, settings, sentence in (
        (many, {}, "column name must have at most 1000 categories"),
        (table(0), {}, "data must hold at least one record"),
        (iter([table()]), {}, "which an iterator cannot"),
        ((np.ones((3, 2)), np.ones(3)), {}, "data must be tables"),
        (table(), {"target": "lost"}, "has no column lost"),
        (table(), {"categories": ["lost"]}, "categories must be among the inputs"),
        (table(), {"inputs": "age"}, "must be lists of names"),
        (pa.table({"a": [1e200, -1e200]}), {}, "column a must have a finite mean and scale"),
        (pa.table({"a": [1.0, None]}), {}, r"row 1 \(from 0\), column a is empty"),
    ):
        with pytest.raises(Refused, match=sentence):
            ub.Columns.of(data, **settings)
    with pytest.raises(TypeError, match="not columns"):
        ub.Columns.of(table(), columns=["age"])


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: ub.Columns(), "columns must name inputs, a target, or both"),
        (lambda: ub.Columns("age"), "inputs must be a list of names"),
        (lambda: ub.Column(""), "must have a name"),
        (lambda: ub.Column("a", scale=0.0), "must have a positive scale"),
        (lambda: ub.Column("a", mean=float("nan")), "must have a finite mean"),
        (lambda: ub.Column("a", ("x", "x")), "must have different words"),
        (lambda: ub.Column("a", ("x",), mean=1.0), "got both"),
        (lambda: ub.Columns.from_json([]), "must be a dict such as"),
        (lambda: ub.Columns.from_json({"columns": [{"nom": "a"}]}), "must be a name, or a dict"),
    ],
)
def test_columns_that_say_nothing_are_refused(make, sentence):
    with pytest.raises(Refused, match=sentence):
        make()


def test_columns_are_saved_with_the_model(columns, tmp_path):
    model = ub.logistic_regression(features=columns.width)
    trained = ub.fit(model, ub.scan(table(), columns=columns), key=KEY)
    path = tmp_path / "model.unbayes"
    ub.save(path, trained.posterior, model, memory=trained.memory, columns=columns, notes={"by": "me"})
    saved = ub.load(path)
    assert saved.columns == columns
    assert saved.notes == {"by": "me", **columns.to_json()}
    erased = ub.scan(table().slice(50, 5), columns=saved.columns)
    left = ub.unlearn(saved.posterior, saved.model, erased, memory=saved.memory, key=KEY)
    assert left.memory.records == 55
    ub.save(path, trained.posterior)
    assert ub.load(path).columns is None
    with pytest.raises(Refused, match="the model takes 3 inputs, but the columns age, zone, month become 16"):
        ub.save(path, trained.posterior, ub.logistic_regression(features=3), columns=columns)
    with pytest.raises(ValueError, match='must not hold "columns" or "target"'):
        ub.save(path, trained.posterior, model, columns=columns, notes={"target": "won"})
    with pytest.raises(TypeError, match="columns must be Columns"):
        ub.save(path, trained.posterior, model, columns=["age"])
