"""Marks: keyed digests by which training records are known again, without keeping them.

A record is marked twice. Its exact mark is a digest of all its digits, or of the identifier that the caller
gave. Its near mark is a digest of the cell of a grid in which it lies: a row that went through a text file
with fewer digits still lies there, or just across a boundary that it was close to.

No row can be read from its marks. Whoever has the marks and a row, or an identifier, can tell whether it was
among them.
"""

import hashlib
import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Self

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Int

from unbayes._numerics.records import count, take
from unbayes._storable import Storable

# Difference, as a share of the largest magnitude in its column, up to which two entries may be of one record:
# five digits, which people keep when they write tables.
TOLERANCE = 1e-5
# Cells are so many tolerances wide, and wider for rows of many columns, so that a row is seldom close to more
# than one boundary.
CELL, CELL_BY_COLUMN = 100, 2
# Where the first boundary lies, in cells: at no round number.
OFFSET = 0.382
# Boundaries, at most, across which a row is looked for.
LARGEST_CROSSED = 8
# Rows that are marked at a time.
ROWS_AT_ONCE = 1 << 14
# Bytes of a mark: among a billion records, two different ones share a mark with a probability of 3%.
BYTES = 8


class Marks(Storable):
    """Marks of some records.

    Attributes
    ----------
    exact
        A mark of all digits or of an identifier, shape (n, 2).
    near
        A mark of the cell, shape (n, 2); None where records have identifiers.
    """

    exact: Int[Array | np.ndarray, "n 2"]
    near: Int[Array | np.ndarray, "n 2"] | None = None

    def __len__(self) -> int:
        return self.exact.shape[0]

    def at(self, rows: np.ndarray) -> Self:
        """The marks of some of the records."""
        return jax.tree.map(lambda leaf: np.asarray(leaf)[rows], self)

    def in_order(self) -> Self:
        """The same in the order of their exact marks, which says nothing of the order of the records."""
        return self.at(np.argsort(_words(self.exact), kind="stable"))

    def lie_in(self, cells: frozenset[int]) -> np.ndarray:
        """Which of these records lie in one of the cells, given by their near marks."""
        if self.near is None or not cells:
            return np.zeros(len(self), bool)
        return np.isin(_words(self.near), np.array(list(cells), np.uint64))

    def without(self, exact: Any) -> Self:
        """Marks in order less one record for each of the given exact marks, shape (k, 2)."""
        words, gone = _words(self.exact), _words(exact)
        kept = np.ones(len(words), bool)
        kept[_places(words, gone)[0] + _ranks(gone)] = False
        return self.at(np.flatnonzero(kept))


def magnitudes(rows: Any) -> Float[np.ndarray, " m"]:
    """The largest magnitude in each column of some rows."""
    return np.maximum.reduce([np.abs(part).max(0) for part in _parts(rows)])


def count_equal(exact: Any, each: Any) -> Int[np.ndarray, " k"]:
    """How many of the exact marks of shape (n, 2) equal each of those of shape (k, 2)."""
    first, last = _places(np.sort(_words(exact)), _words(each))
    return (last - first).astype(np.int32)


class Found(NamedTuple):
    """Where records stand among marks.

    Attributes
    ----------
    rows
        Which of the records that were looked for were found, shape (n,).
    exact
        Exact marks of what was found, as the training records have them, shape (k, 2).
    cells
        Near marks under which the records were looked for whose exact marks are not there.
    """

    rows: np.ndarray
    exact: Int[np.ndarray, "k 2"]
    cells: frozenset[int]


class Marker(Storable):
    """Makes marks, always the same for the same record and marker.

    Attributes
    ----------
    salt
        Key of the digests, so that marks of two models cannot be joined.
    spacing
        Width of the cells, one per column, shape (m,); None where records have identifiers.
    """

    salt: str = eqx.field(static=True)
    spacing: Float[Array | np.ndarray, " m"] | None = None

    @classmethod
    def for_rows(cls, rows: Any, salt: str) -> Self:
        """A marker for rows like these, a pytree of arrays with the records along the leading axis."""
        return cls.for_magnitudes(magnitudes(rows), salt)

    @classmethod
    def for_magnitudes(cls, largest: Float[np.ndarray, " m"], salt: str) -> Self:
        """A marker for rows whose columns have these largest magnitudes."""
        width = max(CELL, CELL_BY_COLUMN * len(largest)) * TOLERANCE
        return cls(salt, (width * np.where(largest > 0, largest, 1)).astype(np.float32))

    @property
    def is_named(self) -> bool:
        """Whether records are known by identifiers."""
        return self.spacing is None

    def mark(self, rows: Any, ids: Sequence[str] | None) -> Marks:
        """Marks of records, in the order given."""
        near = None
        if not self.is_named:
            near = _pairs(np.concatenate([self._digests(np.floor(self._places(p))) for p in _parts(rows)]))
        return Marks(self.exact(rows, ids), near)

    def exact(self, rows: Any, ids: Sequence[str] | None) -> Int[np.ndarray, "n 2"]:
        """Exact marks of records, in the order given."""
        if self.is_named:
            return _pairs(self._digest_each(each.encode() for each in ids or ()))
        return _pairs(np.concatenate([self._digests(part) for part in _parts(rows)]))

    def cells(self, rows: Any) -> list[set[int]]:
        """For each row, near marks of all cells in which it may have lain before it lost digits."""
        return [self._near(place) for part in _parts(rows) for place in self._places(part)]

    def find(self, rows: Any, ids: Sequence[str] | None, among: Marks) -> Found:
        """Look for records among marks, each of which is found once: equal digits first, then cells."""
        own = _words(self.exact(rows, ids))
        first, last = _places(_words(among.exact), own)
        places = first + _ranks(own)
        found = places < last
        cells = []
        if among.near is not None and not found.all():
            missing = np.flatnonzero(~found)
            cells = self.cells(take(rows, missing))
            free, taken = defaultdict(list), set(places[found].tolist())
            for place, cell in enumerate(_words(among.near).tolist()):
                if place not in taken:
                    free[cell].append(place)
            for row, around in zip(missing, cells, strict=True):
                cell = next((each for each in around if free.get(each)), None)
                if cell is not None:
                    places[row], found[row] = free[cell].pop(), True
        return Found(found, np.asarray(among.exact)[places[found]], frozenset().union(*cells))

    def _places(self, part: Float[np.ndarray, "n m"]) -> Float[np.ndarray, "n m"]:
        """Rows in units of cells, set off so that no round number is a boundary."""
        return part / np.asarray(self.spacing, np.float64) + OFFSET

    def _near(self, place: Float[np.ndarray, " m"]) -> set[int]:
        """Marks of the cell at a place, and of those across boundaries within the tolerance."""
        cell = np.floor(place)
        reach = 1 / max(CELL, CELL_BY_COLUMN * len(place))
        past = place - cell
        close = np.flatnonzero((past < reach) | (past > 1 - reach))[:LARGEST_CROSSED]
        other = np.where(past[close] < reach, -1.0, 1.0)
        cells = []
        for crossed in itertools.product((False, True), repeat=len(close)):
            moved = cell.copy()
            moved[close] += other * crossed
            cells.append(moved)
        return {int(each) for each in self._digests(np.array(cells))}

    def _digests(self, rows: Float[np.ndarray, "n m"]) -> np.ndarray:
        # Minus zero is zero.
        raw, width = np.ascontiguousarray(rows + 0.0).tobytes(), rows.shape[1] * rows.itemsize
        return self._digest_each(raw[i : i + width] for i in range(0, len(raw), width))

    def _digest_each(self, pieces: Iterator[bytes]) -> np.ndarray:
        base = hashlib.blake2b(digest_size=BYTES, key=bytes.fromhex(self.salt))

        def digest(piece: bytes) -> bytes:
            own = base.copy()
            own.update(piece)
            return own.digest()

        return np.frombuffer(b"".join(map(digest, pieces)), np.uint64)


def _parts(rows: Any) -> Iterator[Float[np.ndarray, "n m"]]:
    """All columns of the rows side by side in double precision, part by part."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(rows)]
    for start in range(0, count(rows), ROWS_AT_ONCE):
        parts = [leaf[start : start + ROWS_AT_ONCE] for leaf in leaves]
        yield np.concatenate([part.reshape(len(part), -1).astype(np.float64) for part in parts], axis=1)


def _places(words: np.ndarray, of: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.searchsorted(words, of, "left"), np.searchsorted(words, of, "right")


def _ranks(words: np.ndarray) -> np.ndarray:
    """How many equal ones stand before each."""
    order = np.argsort(words, kind="stable")
    ordered = words[order]
    ranks = np.empty(len(words), np.int64)
    ranks[order] = np.arange(len(words)) - np.searchsorted(ordered, ordered, "left")
    return ranks


def _words(pairs: Any) -> np.ndarray:
    """Marks as single numbers; in files and on devices they are pairs, which single precision keeps."""
    return np.ascontiguousarray(np.asarray(pairs)).view(np.uint64)[:, 0]


def _pairs(words: np.ndarray) -> Int[np.ndarray, "n 2"]:
    return np.ascontiguousarray(words).view(np.int32).reshape(-1, 2)
