"""Batches of records: sums in parts, checks at the boundary, minibatches."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from unbayes._numerics.records import (
    accumulate,
    cached_chunk,
    count,
    for_each,
    minibatch,
    require_records,
    to_float_array,
)

RECORDS = {"x": jnp.arange(22.0).reshape(11, 2), "y": jnp.arange(11)}


def test_count():
    assert count(RECORDS) == 11


@pytest.mark.parametrize("chunk", [1, 3, 6, 10, 11, 12, 1000])
def test_sums_do_not_depend_on_the_chunk(chunk):
    sizes = []

    def sums(part):
        sizes.append(count(part))
        return {"x": (part["x"] ** 2).sum(0), "pairs": (part["x"][:, 0] * part["y"].astype(float)).sum()}

    found = accumulate(sums, RECORDS, chunk)
    x, y = np.asarray(RECORDS["x"]), np.asarray(RECORDS["y"])
    np.testing.assert_allclose(found["x"], (x**2).sum(0))
    np.testing.assert_allclose(found["pairs"], (x[:, 0] * y).sum())
    assert max(sizes) <= chunk


@pytest.mark.parametrize("chunk", [1, 3, 11, 12])
def test_numbers_of_each_do_not_depend_on_the_chunk(chunk):
    sizes = []

    def numbers(part):
        sizes.append(count(part))
        return {"x": part["x"].sum(1), "both": part["x"] * part["y"].astype(float)[:, None]}

    found = for_each(numbers, RECORDS, chunk)
    jax.tree.map(np.testing.assert_array_equal, found, numbers(RECORDS))
    assert max(sizes[:-1]) <= chunk


def test_chunks_are_powers_of_two_and_no_smaller_than_asked_for():
    assert [cached_chunk(each) for each in (1, 40, 1 << 30)] == [1 << 19, 1 << 13, 1]
    assert cached_chunk(2000, least=1500) == 1 << 10
    assert cached_chunk(1 << 20, least=1500) == 4


def test_sums_can_be_differentiated_and_compiled():
    def total(scale, chunk):
        return accumulate(lambda part: (scale * part["x"]).sum(), RECORDS, chunk)

    assert float(jax.jit(jax.grad(total), static_argnums=1)(2.0, 4)) == float(RECORDS["x"].sum())


@pytest.mark.parametrize("given", ["int8", "uint16", "int64", "bool", "float16", "float32", "float64"])
def test_numbers_become_floats(given, dtype):
    values = np.array([[0, 1], [1, 1]]).astype(given)
    array = to_float_array(values, "x", dtype, (None, 2))
    assert array.dtype == dtype
    np.testing.assert_array_equal(array, values.astype(float))


@pytest.mark.parametrize(
    ("values", "shape", "error", "message"),
    [
        ([1.0, np.nan], (None,), ValueError, r"x must be finite in float32, got nan in row 1"),
        (
            [[1.0, 2.0], [np.inf, 0.0]],
            (None, 2),
            ValueError,
            r"x must be finite .*inf.* in row 1",
        ),
        ([1.0, 1e300], (None,), ValueError, r"x must be finite in float32, got 1e\+300 in row 1"),
        ([[1.0]], (None,), ValueError, r"x must have shape \(n\), got \(1, 1\)"),
        ([[1.0]], (None, 2), ValueError, r"x must have shape \(n, 2\), got \(1, 1\)"),
        ([[1.0], [1.0, 2.0]], (None, 1), ValueError, r"x must be an array, got rows of different lengths"),
        (["a"], (None,), TypeError, r"x must be numeric, got an array of dtype <U1"),
        ([object()], (None,), TypeError, r"x must be numeric, got an array of dtype object"),
        (None, (None,), TypeError, r"x must be numeric, got an array of dtype object"),
    ],
)
def test_what_is_not_a_finite_array_is_refused(values, shape, error, message):
    with pytest.raises(error, match=message):
        to_float_array(values, "x", jnp.dtype("float32"), shape)


def test_an_empty_batch_is_refused():
    require_records(1, "erased")
    with pytest.raises(ValueError, match="erased must hold at least one record, got none"):
        require_records(0, "erased")


def test_minibatch():
    assert minibatch(RECORDS, None, jr.key(0)) is RECORDS
    batch = minibatch(RECORDS, 5, jr.key(0))
    np.testing.assert_array_equal(batch["x"][:, 0], 2 * batch["y"])
    np.testing.assert_array_equal(batch["y"], minibatch(RECORDS, 5, jr.key(0))["y"])
    many = np.asarray(minibatch(RECORDS, 11_000, jr.key(1))["y"])
    np.testing.assert_allclose(np.bincount(many, minlength=11), 1000, atol=4.5 * np.sqrt(1000))
