"""The records of a request: from tables and arrays, to bytes and back."""

import numpy as np
import pytest

from unbayes.data.refusal import Refused
from unbayes.ledger.records import Records, TableColumns, find_columns

COLUMNS = TableColumns(("a", "b"), "y", "id")


def test_bytes_and_back():
    numbers = np.random.default_rng(0).normal(size=(5, 3)) * 10.0 ** np.arange(-2, 1)
    records = Records(("x", "y\n", "z", "ü", '"'), numbers)
    back = Records.from_bytes(records.to_bytes())
    assert back.ids == records.ids
    assert np.array_equal(back.numbers, numbers)


def test_from_a_table_in_the_order_of_the_model(text):
    path = text("y,id,b,a\n1,p,2,3\n0,q,5,6\n")
    records = Records.of_table(path, COLUMNS)
    assert records.ids == ("p", "q")
    assert records.numbers.tolist() == [[3, 2, 1], [6, 5, 0]]
    assert (
        records.numbers.tolist() == Records.of_arrays([[3, 2], [6, 5]], [1, 0], ["p", "q"]).numbers.tolist()
    )


def test_by_person(text):
    path = text("y,id,b,a,who\n1,p,2,3,ann\n0,q,5,6,bob\n1,r,7,8,ann\n")
    found = dict(Records.by_subject(path, COLUMNS, "who"))
    assert {who: records.ids for who, records in found.items()} == {"ann": ("p", "r"), "bob": ("q",)}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("y,b,a\n1,2,3\n", "has no column id"),
        ("y,id,b,a\n1,p,2,3\n1,p,2,3\n", "ids must name each record once"),
        ("y,id,b,a\n1,p,x,3\n", "must be a finite number"),
    ],
)
def test_tables_that_are_refused(text, content, sentence):
    with pytest.raises(Refused, match=sentence):
        Records.of_table(text(content), COLUMNS)


def test_arrays_that_are_refused():
    for inputs, targets, ids in (
        ([[1.0]], [1], ["a", "b"]),
        ([[np.nan]], [1], ["a"]),
        ([[1.0]], [[1]], ["a"]),
        (np.empty((0, 1)), [], []),
    ):
        with pytest.raises(Refused):
            Records.of_arrays(inputs, targets, ids)


def test_which_columns_a_model_has():
    assert find_columns(["a", "b"], "y", "id", 2, "file") == COLUMNS
    assert find_columns(None, "y", "id", None, "file") == TableColumns((), "y", "id")
    for inputs, target, ids in ((None, "y", "id"), (["a"], "y", "id"), (["a", "b"], None, "id")):
        with pytest.raises(Refused):
            find_columns(inputs, target, ids, 2, "file")
    for ids in ("a", "y"):
        with pytest.raises(Refused, match=r"own|once"):
            find_columns(["a", "b"], "y", ids, 2, "file")
