"""`scan_deleted`: the records that were taken out of a Delta table since a version."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from unbayes.data.columns import Column
from unbayes.data.delta import (
    DeltaReader,
    marks_of,
    name_of,
    open_table,
    paths_of,
    read_delta,
    require_readable,
    schema_of,
)
from unbayes.data.encoding import AbstractEncoder
from unbayes.data.readers import AbstractReader, BatchReader, Piece
from unbayes.data.refusal import Refused
from unbayes.data.scan import Scan, scan_of
from unbayes.data.source import BATCH_ROWS
from unbayes.data.where import Condition, Where, conditions_of, require_columns

if TYPE_CHECKING:
    import numpy as np
    import pyarrow
    from deltalake import DeltaTable

# The column of a change feed that says what happened to a row, and what it says.
CHANGE = "_change_type"
# Stands for an empty cell, unlike whole numbers that people have.
NOTHING = 0x9E3779B97F4A7C15
GONE, NEW = ("delete", "update_preimage"), ("insert", "update_postimage")


def scan_deleted(
    table: Any,
    *,
    since: int,
    columns: Sequence[str | Column] | AbstractEncoder | Callable[[Any], Any] | None = None,
    target: str | None = None,
    ids: str | None = None,
    where: Where | None = None,
    storage_options: dict[str, Any] | None = None,
    batch_rows: int = BATCH_ROWS,
) -> Scan:
    """The records that a Delta table held at version `since` and holds no more: what a model has to forget.

    A DELETE took them out, a MERGE or an overwrite; or an UPDATE changed them, and then they are as they were
    before. Rows that merely moved to another file are none, nor are those that came later and went again.
    They are told from the change feed where the table keeps one, else from the files that the versions do not
    share; of both, only columns that are needed are read, and rows compared by these. After VACUUM, the files
    are gone, and with them what was deleted: a sentence says so.

    Parameters
    ----------
    table
        The address of the table, or a `deltalake.DeltaTable`, at whose version they are missing.
    since
        The version that the model was trained on.
    columns, target, ids, where, storage_options, batch_rows
        As for `scan`.
    """
    now = open_table(table, storage_options)
    newest, conditions = now.version(), conditions_of(where)
    if not isinstance(since, int) or isinstance(since, bool) or not 0 <= since <= newest:
        raise Refused(f"since must be a version of {name_of(now)}, from 0 to {newest}, got {since!r}")
    before = open_table(table, storage_options, since)
    for each in (before, now):
        require_readable(each)
        require_columns(conditions, schema_of(each).names)
    reader = (
        _by_feed(before, now, conditions) if _has_feed(before, now) else _by_files(before, now, conditions)
    )
    return scan_of(reader, columns, target, ids, where, batch_rows)


def _has_feed(before: "DeltaTable", now: "DeltaTable") -> bool:
    """Whether every change between two versions is in the change feed, as deltalake reads it."""
    settings = [each.metadata().configuration for each in (before, now)]
    if not all(each.get("delta.enableChangeDataFeed") == "true" for each in settings):
        return False
    if "deletionVectors" in (now.protocol().reader_features or ()):
        return False
    # Of partitions that are written in escapes, deltalake looks for files that there are not.
    if any(quote(path, safe="/=") != path for each in (before, now) for path in paths_of(each)):
        return False
    commits = now.history(now.version() - before.version()) if now.version() > before.version() else []
    # It may have been off for a while.
    return not any("PROPERTIES" in str(each.get("operation")).upper() for each in commits)


def _by_feed(before: "DeltaTable", now: "DeltaTable", conditions: tuple[Condition, ...]) -> "DeletedReader":
    place, names = (
        (now.table_uri, now._storage_options, before.version(), now.version()),
        schema_of(now).names,
    )
    gone, new = (FeedReader(*place, kinds, tuple(names), conditions) for kinds in (GONE, NEW))
    return DeletedReader(gone, new)


def _by_files(before: "DeltaTable", now: "DeltaTable", conditions: tuple[Condition, ...]) -> "DeletedReader":
    """By files that one version has and the other has not, or of which other rows are marked as deleted."""
    old, new = (dict.fromkeys(paths_of(each)) | marks_of(each) for each in (before, now))
    same = {path for path in old.keys() & new.keys() if _are_equal(old[path], new[path])}
    readers = [read_delta(each, conditions, None, without=same) for each in (before, now)]
    name, both = name_of(now), (old.keys() & new.keys()) - same
    changed = [
        {f"{name}/{path}": _only(these[path], those[path]) for path in both}
        for these, those in ((old, new), (new, old))
    ]
    return DeletedReader(*(_with_marks(*each) for each in zip(readers, changed, strict=True)))


def _with_marks(reader: DeltaReader, changed: "Mapping[str, pyarrow.BooleanArray]") -> DeltaReader:
    return dataclasses.replace(reader, kept={**reader.kept, **changed})


def _are_equal(one: "pyarrow.BooleanArray | None", other: "pyarrow.BooleanArray | None") -> bool:
    return one is other if one is None or other is None else one.equals(other)


def _only(
    these: "pyarrow.BooleanArray | None", those: "pyarrow.BooleanArray | None"
) -> "pyarrow.BooleanArray":
    """Rows of a file that are in one version alone; None stands for all of its rows."""
    import numpy as np
    import pyarrow

    known = next(each for each in (these, those) if each is not None)
    here, there = (
        np.ones(len(known), bool) if each is None else each.to_numpy(zero_copy_only=False)
        for each in (these, those)
    )
    return pyarrow.array(here & ~there)


@dataclasses.dataclass(frozen=True)
class FeedReader(AbstractReader):
    """Rows of a change feed.

    Attributes
    ----------
    uri, storage_options
        The table.
    since, until
        Versions; changes of the first are not read.
    kinds
        What happened to the rows.
    columns
        All columns of the table.
    conditions
        Which records are wanted.
    """

    uri: str
    storage_options: dict[str, Any] | None
    since: int
    until: int
    kinds: tuple[str, ...]
    columns: tuple[str, ...]
    conditions: tuple[Condition, ...] = ()

    @property
    def rows(self) -> None:
        """Nobody knows before the end."""

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return list(self.columns)

    def pieces(self, columns, size) -> Iterator[Piece]:
        """The rows as they come."""
        if self.since == self.until:
            return
        conditions = (*self.conditions, (CHANGE, "in", list(self.kinds)))
        wanted = self.names if columns is None else columns
        read = list(dict.fromkeys([*wanted, *(name for name, _, _ in conditions)]))
        reader = BatchReader(lambda: self._batches(read), True, conditions)
        for piece in reader.pieces(wanted, size):
            yield piece._replace(name=f"the change feed of {self.uri}, {piece.name}")

    def _batches(self, columns: list[str]) -> Iterator[Any]:
        import pyarrow
        from deltalake.exceptions import DeltaError

        try:
            table = open_table(self.uri, self.storage_options, self.until)
            feed = table.load_cdf(self.since + 1, self.until, columns=columns)
            yield from pyarrow.RecordBatchReader.from_stream(feed)
        except (DeltaError, pyarrow.ArrowException, OSError) as error:
            raise Refused(
                f"what was deleted from {self.uri} since version {self.since} cannot be told: files of its "
                "change feed are gone, as they are after VACUUM, or cannot be reached"
            ) from error


@dataclasses.dataclass(frozen=True)
class DeletedReader(AbstractReader):
    """Records that were there before and are not now, each as often as it is missing.

    Of those that are there now, eight bytes each are in memory.

    Attributes
    ----------
    before, now
        Records of both, without what both share for certain.
    """

    before: AbstractReader
    now: AbstractReader

    @property
    def rows(self) -> None:
        """Nobody knows before the end."""

    @property
    def names(self) -> list[str] | None:
        """Names of the columns."""
        return self.before.names

    def prepared(self, columns, types) -> "DeletedReader":
        """The same, once both are found to have these columns."""
        before, now = self.before.prepared(columns, types), self.now.prepared(columns, types)
        if isinstance(before, DeltaReader) and isinstance(now, DeltaReader):
            # What was written in another type is compared in the one that training saw.
            now = dataclasses.replace(now, schema=before.schema)
        return DeletedReader(before, now)

    def pieces(self, columns, size) -> Iterator[Piece]:
        """Those of `before` that are not among those of `now`."""
        import numpy as np
        import pyarrow

        digests, wanted = Digests(), columns or self.names
        left = Counts([digests.of(piece.content) for piece in self.now.pieces(wanted, size)])
        for piece in self.before.pieces(wanted, size):
            is_gone = left.beyond(digests.of(piece.content))
            rows = np.array([piece.row(row) for row in np.flatnonzero(is_gone).tolist()])
            if len(rows):
                yield Piece(piece.name, int(rows[0]), piece.content.filter(pyarrow.array(is_gone)), rows)


class Counts:
    """How often each digest is left."""

    def __init__(self, digests: "Sequence[np.ndarray]"):
        import numpy as np

        every = np.concatenate([np.empty(0, np.uint64), *digests])
        self._digests, self._left = np.unique(every, return_counts=True)

    def beyond(self, digests: "np.ndarray") -> "np.ndarray":
        """Which of these are more than are left, shape (n,); the others are left no more."""
        import numpy as np

        if not len(self._digests):
            return np.ones(len(digests), bool)
        place = np.searchsorted(self._digests, digests).clip(max=len(self._digests) - 1)
        # Of equal ones, the how-manieth each is.
        order = np.argsort(digests, kind="stable")
        found = digests[order]
        starts = np.flatnonzero(np.r_[True, found[1:] != found[:-1]])
        number = np.empty(len(digests), int)
        number[order] = np.arange(len(digests)) - np.repeat(starts, np.diff(np.r_[starts, len(digests)]))
        is_left = (self._digests[place] == digests) & (number < self._left[place])
        np.subtract.at(self._left, place[is_left], 1)
        return ~is_left


class Digests:
    """Digests of rows, under keys of its own: of n and m different rows, two agree with chance n·m/2⁶⁴."""

    def __init__(self):
        import numpy as np

        self._random = np.random.default_rng()
        self._keys: list[np.ndarray] = []

    def of(self, table: "pyarrow.RecordBatch") -> "np.ndarray":
        """Of the rows of a table, shape (n,)."""
        import numpy as np

        while len(self._keys) < table.num_columns:
            self._keys.append(self._random.integers(0, 2**64, 3, np.uint64) | np.uint64(1))
        total = np.zeros(table.num_rows, np.uint64)
        for column, (key, first, second) in zip(table.columns, self._keys, strict=False):
            value = (_bits(column) ^ key) * first
            value = (value ^ (value >> np.uint64(31))) * second
            total += value ^ (value >> np.uint64(29))
        return total


def _bits(column: "pyarrow.Array") -> "np.ndarray":
    """A number of 64 bits for each cell, the same for equal cells, however they are stored."""
    import numpy as np
    import pyarrow
    from pyarrow import types

    kind = column.type
    if types.is_floating(kind):
        # Of zeros and of what is no number there are several.
        values = column.cast(pyarrow.float64()).fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0
        bits = np.where(np.isnan(values), np.nan, values).view(np.uint64)
    elif types.is_integer(kind) or types.is_boolean(kind):
        bits = column.cast(pyarrow.uint64(), safe=False).fill_null(0).to_numpy(zero_copy_only=False)
    else:
        plain = column.dictionary_decode() if types.is_dictionary(kind) else column
        bits = np.array([hash(repr(cell)) for cell in plain.to_pylist()], np.int64).view(np.uint64)
    return np.where(column.is_null().to_numpy(zero_copy_only=False), NOTHING, bits)
