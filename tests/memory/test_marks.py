"""Marks: records are known again by their digits, by most of them, or by identifiers; none can be read."""

import numpy as np
import pytest

from unbayes.memory.marks import CELL, TOLERANCE, Marker, count_equal

SALT, OTHER_SALT = "00" * 16, "01" * 16


def table(rows: int = 400, columns: int = 4, dtype=np.float64, seed: int = 0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, columns)).astype(dtype), rng.integers(0, 2, rows).astype(np.int32)


def take(rows, some):
    return tuple(part[some] for part in rows)


def rostered(rows, ids=None):
    marker = Marker(SALT) if ids else Marker.for_rows(rows, SALT)
    return marker, marker.mark(rows, ids).in_order()


@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_every_record_is_found_and_no_other(precision):
    rows = table(dtype=precision)
    marker, roster = rostered(rows)
    assert marker.find(take(rows, [7, 3, 399]), None, roster).rows.all()
    assert not marker.find(table(seed=1), None, roster).rows.any()
    flipped = (rows[0], 1 - rows[1])
    assert not marker.find(flipped, None, roster).rows.any()


@pytest.mark.parametrize("precision", [np.float32, np.float64])
@pytest.mark.parametrize("columns", [1, 4, 40])
def test_rows_that_lost_digits_are_found(precision, columns):
    rows = table(columns=columns, dtype=precision)
    marker, roster = rostered(rows)
    rounded = (rows[0].round(5), rows[1])
    assert (rounded[0] != rows[0]).mean() > 0.9
    found = marker.find(rounded, None, roster)
    assert found.rows.all()
    # All of them, each once.
    np.testing.assert_array_equal(np.sort(found.exact, 0), np.sort(np.asarray(roster.exact), 0))
    coarse = (rows[0].round(1), rows[1])
    # A single column of one decimal has few values, and some record has nearly each of them.
    if columns > 1:
        assert marker.find(coarse, None, roster).rows.mean() < 0.05


def test_the_tolerance_is_what_is_stated():
    rows = table(2000)
    marker, roster = rostered(rows)
    largest = np.abs(rows[0]).max(0)
    signs = np.random.default_rng(2).choice([-1, 1], rows[0].shape)
    within = (rows[0] + 0.99 * TOLERANCE * largest * signs, rows[1])
    beyond = (rows[0] + 1.5 * CELL * TOLERANCE * largest * signs, rows[1])
    assert marker.find(within, None, roster).rows.all()
    assert not marker.find(beyond, None, roster).rows.any()


def test_equal_rows_are_found_as_often_as_they_are_there():
    rows = (np.tile([[0.0, 1.0], [1.0, 1.0]], (3, 1)), np.ones(6, np.int32))
    marker, roster = rostered(rows)
    five = take(rows, [0, 0, 0, 0, 1])
    np.testing.assert_array_equal(marker.find(five, None, roster).rows, [True, True, True, False, True])
    np.testing.assert_array_equal(count_equal(roster.exact, marker.exact(five, None)), 3)
    left = roster.without(marker.exact(take(rows, [0, 1, 0]), None))
    np.testing.assert_array_equal(count_equal(left.exact, marker.exact(take(rows, [0, 1]), None)), [1, 2])


def test_what_was_taken_out_is_not_found_again():
    rows = table()
    marker, roster = rostered(rows)
    gone = marker.find(take(rows, np.arange(50)), None, roster)
    left = roster.without(gone.exact)
    assert len(left) == 350
    assert not marker.find(take(rows, np.arange(50)), None, left).rows.any()
    assert marker.find(take(rows, np.arange(50, 400)), None, left).rows.all()
    # Nor under fewer digits.
    assert not marker.find((rows[0][:50].round(5), rows[1][:50]), None, left).rows.any()


def test_zero_has_no_sign():
    rows = (np.array([[0.0, 1.0], [2.0, 3.0]]), np.zeros(2, np.int32))
    marker, roster = rostered(rows)
    assert marker.find((-rows[0][:1] * [1, -1], rows[1][:1]), None, roster).rows.all()


def test_identifiers():
    marker, roster = rostered(None, ["anna", "ben", "carl"])
    assert marker.is_named
    found = marker.find(None, ["carl", "dora", "anna"], roster)
    np.testing.assert_array_equal(found.rows, [True, False, True])
    assert len(roster.without(found.exact)) == 1


def test_marks_of_two_models_cannot_be_joined():
    rows = table(20)
    one, other = Marker.for_rows(rows, SALT), Marker.for_rows(rows, OTHER_SALT)
    assert not count_equal(one.exact(rows, None), other.exact(rows, None)).any()
    near = [np.asarray(marker.mark(rows, None).near) for marker in (one, other)]
    assert not count_equal(*near).any()


def test_the_order_of_a_roster_says_nothing_of_the_records():
    rows = table(300)
    _, roster = rostered(rows)
    shuffled = take(rows, np.random.default_rng(3).permutation(300))
    np.testing.assert_array_equal(
        roster.exact, Marker.for_rows(rows, SALT).mark(shuffled, None).in_order().exact
    )
