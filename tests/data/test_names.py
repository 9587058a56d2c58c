"""A record has one name, whatever its identifier was read as."""

import decimal
import uuid

import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbayes.data.names import names_of
from unbayes.data.refusal import Refused

SAME = {
    "words": ["3", "1", "20"],
    "numbers": [3, 1, 20],
    "floats": [3.0, 1.0, 20.0],
    "NumPy's integers": np.array([3, 1, 20], np.uint8),
    "NumPy's floats": np.array([3.0, 1, 20]),
    "NumPy's short floats": np.array([3, 1, 20], np.float32),
    "NumPy's words": np.array(["3", "1", "20"]),
    "objects": np.array([3, 1.0, "20"], object),
    "arrays of JAX": jnp.array([3, 1, 20]),
    "pandas' integers": pd.Series([3, 1, 20]),
    "pandas' integers once a gap is gone": pd.Series([3, 1, None, 20]).dropna(),
    "pandas' nullable integers": pd.Series([3, 1, 20], dtype="Int64"),
    "pandas' words": pd.Series(["3", "1", "20"]),
    "Polars' integers": pl.Series([3, 1, 20]),
    "Polars' floats": pl.Series([3.0, 1.0, 20.0]),
    "decimals": [decimal.Decimal("3"), decimal.Decimal("1.00"), decimal.Decimal("2E1")],
}
NAMELESS = {
    "None": (None, "empty"),
    "nothing": ("", "empty"),
    "NaN": (float("nan"), "empty"),
    "NumPy's NaN": (np.float32("nan"), "empty"),
    "pandas' NA": (pd.NA, "empty"),
    "pandas' NaT": (pd.NaT, "empty"),
    "a fraction": (2.5, "a fraction"),
    "infinity": (float("inf"), "infinite"),
    "a decimal fraction": (decimal.Decimal("2.5"), "a fraction"),
    "true": (True, "of type bool"),
    "NumPy's false": (np.False_, "of type bool"),
    "bytes": (b"1", "of type bytes"),
    "a list": ([1], "of type list"),
    "a long float": (2.0**60, "too large"),
    "a float of few digits": (np.float32(2**30), "too large"),
}


@pytest.mark.parametrize("kind", SAME)
def test_the_same_names(kind):
    assert names_of(SAME[kind], "ids") == ["3", "1", "20"]


@pytest.mark.parametrize("kind", NAMELESS)
def test_what_names_nothing(kind):
    cell, fault = NAMELESS[kind]
    with pytest.raises(
        Refused, match=rf"row 1 \(from 0\), column a must be words or whole numbers, but is .*{fault}"
    ) as error:
        names_of(["fine", cell], "column a")
    # Nothing of the cell is repeated.
    assert not {"2.5", "b'1'", "1152921504606846976", "1073741824"} & set(str(error.value).split())


def test_others_are_as_they_are():
    who = uuid.uuid4()
    assert names_of([who, "5.0", " x ", "é", -7, 10**30, -0.0], "ids") == [
        *(str(who), "5.0", " x ", "é", "-7", str(10**30), "0"),
    ]


@given(st.integers(1 - 2**53, 2**53 - 1))
def test_a_whole_number_and_its_float(number):
    assert (
        names_of([number, float(number), np.int64(number), np.float64(number), str(number)], "ids")
        == [str(number)] * 5
    )


def test_floats_that_may_stand_for_another_number():
    """Of two neighbours, one would be read as the other."""
    with pytest.raises(Refused):
        names_of([float(2**53 + 1)], "ids")
