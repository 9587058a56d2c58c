"""Conditions on columns: as they are typed, and by what records are called."""

import decimal

import pytest

from unbayes.data.names import names_of
from unbayes.data.refusal import Refused
from unbayes.data.where import Text, expression_of, read_condition

pa = pytest.importorskip("pyarrow", reason="needs the extra data")


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("customer in 17,35", ("customer", "in", ["17", "35"])),
        (" customer in 17 ,  35 ", ("customer", "in", ["17", "35"])),
        ("age>=18", ("age", ">=", "18")),
        ("age != -1.5", ("age", "!=", "-1.5")),
        ("when < 2020-01-01 10:00", ("when", "<", "2020-01-01 10:00")),
        ("town not  in New York, Rome", ("town", "not in", ["New York", "Rome"])),
        ('"in" in "a, b", "say ""x""", c', ("in", "in", ["a, b", 'say "x"', "c"])),
        ('"first name" == "O\'Neill, A."', ("first name", "==", "O'Neill, A.")),
        ("not in in", ("not", "in", ["in"])),
    ],
)
def test_conditions_as_they_are_typed(text, condition):
    assert read_condition(text) == condition


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "customer",
            "in 17",
            "customer 17",
            "customer=17",
            "customer in",
            "customer in 17,,35",
            "a == ",
        ),
        *("a == 1, 2", "a in (1, 2)", "a != 'x'", 'a in "1', "a < = 3", "a in [1]", "a b == 3", 'a in x"y"'),
    ],
)
def test_what_is_no_condition(text):
    with pytest.raises(Refused, match=r"a condition must be like|takes one value"):
        read_condition(text)


CELLS = {
    "int8": pa.array([2, 5, -7], pa.int8()),
    "uint64": pa.array([2, 5, 2**64 - 1], pa.uint64()),
    "words": pa.array(["2", "5", "-7"]),
    "large": pa.array(["2", "5", "-7"], pa.large_string()),
    "codes": pa.array(["2", "5", "2"]).dictionary_encode(),
    "float": pa.array([2.0, None, 5.0]),
    "decimal": pa.array([decimal.Decimal(2), decimal.Decimal(5), decimal.Decimal("5.5")]),
}
TABLE = pa.table(CELLS)


def found(*conditions):
    from pyarrow import dataset

    expression = expression_of(conditions, TABLE.schema)
    numbered = TABLE.append_column("row", pa.array(range(TABLE.num_rows)))
    return dataset.dataset(numbered).to_table(filter=expression).column("row").to_pylist()


@pytest.mark.parametrize("column", CELLS)
def test_records_by_what_they_are_called(column):
    called = {}
    for row, cell in enumerate(CELLS[column].to_pylist()):
        if cell not in (None, decimal.Decimal("5.5")):
            (name,) = names_of([cell], column)
            called.setdefault(name, []).append(row)
    for name in (*called, "2.0", "02", "300", "x", "9" * 99, "+2", " 2", "٢", ""):
        assert found((column, "named", [name])) == called.get(name, []), name
    assert found((column, "named", ["x", *called])) == sorted(row for rows in called.values() for row in rows)


def test_what_cannot_say_who():
    schema = pa.schema({"when": pa.timestamp("s")})
    with pytest.raises(Refused, match=r"column when must hold words or whole numbers to say who, but is of"):
        expression_of([("when", "named", ["2020"])], schema)


def test_typed_values_take_the_type_of_the_column():
    assert found(("int8", ">=", Text("2")), ("int8", "!=", Text("5"))) == [0]
    assert found(("words", "<", Text("2"))) == [2]
    assert found(("codes", "not in", [Text("2")])) == [1]
    assert found(("codes", "==", "5")) == [1]
    for value in ("many", "2.5", "1000"):
        with pytest.raises(Refused, match="where must compare int8 with values of its type, int8") as refused:
            found(("int8", "in", [Text(value)]))
        assert value not in str(refused.value)
