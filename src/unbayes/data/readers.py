"""What reads records: tables in memory, arrays, and whatever a function of a user's yields."""

import abc
import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from unbayes.data.choosing import require_found
from unbayes.data.encoding import require_finite_records, shape_of
from unbayes.data.refusal import BadRow, Refused, told
from unbayes.data.where import Condition, expression_of

if TYPE_CHECKING:
    import numpy as np
    import pyarrow
    import pyarrow.dataset

# What a column of row numbers is called while records are chosen, unlike any that people have.
NUMBERS = "\0row"


class Piece(NamedTuple):
    """Records that were read at once.

    Attributes
    ----------
    name
        Where they were read.
    first
        Row of that place with which they begin.
    content
        A piece of a table, or records as a model takes them already.
    rows
        Rows of that place, where some records were left out between them.
    """

    name: str
    first: int
    content: Any
    rows: "np.ndarray | None" = None

    @property
    def size(self) -> int:
        """Number of records."""
        import jax

        return self.content.num_rows if self.is_table else len(jax.tree.leaves(self.content)[0])

    @property
    def is_table(self) -> bool:
        """Whether it is a piece of a table."""
        return has_arrow_stream(self.content)

    def row(self, number: int) -> int:
        """Where a record stands, in rows of the place."""
        return self.first + number if self.rows is None else int(self.rows[number])

    def between(self, first: int, last: int) -> "Piece":
        """Some of the records."""
        import jax

        rows = None if self.rows is None else self.rows[first:last]
        if self.is_table:
            content = self.content.slice(first, last - first)
        else:
            content = jax.tree.map(lambda leaf: leaf[first:last], self.content)
        return Piece(self.name, self.row(first), content, rows)


class AbstractReader(abc.ABC):
    """Reads pieces of some records, in order.

    Attributes
    ----------
    is_once
        Whether they can be read a single time.
    """

    is_once: bool = False

    @property
    def goes_ahead(self) -> bool:
        """Whether another thread may read the next records while these are worked on, and is worth its while.

        What a user made may belong to the thread that made it.
        """
        return False

    @property
    @abc.abstractmethod
    def rows(self) -> int | None:
        """Number of records, where that is known without reading them."""

    @property
    @abc.abstractmethod
    def names(self) -> list[str] | None:
        """Names of the columns; None where it yields records as a model takes them."""

    def signature(self) -> tuple[Any, ...]:
        """What tells these records from others, as far as that is known without reading them."""
        return self.rows, self.names

    @abc.abstractmethod
    def pieces(self, columns: list[str] | None, size: int) -> Iterator[Piece]:
        """The records with these columns (None: all), at most about `size` at a time."""

    def parts(self) -> "Sequence[AbstractReader]":
        """Readers of parts that together hold the same records: the same parts, however many work on them."""
        return [self]

    def prepared(self, columns: list[str] | None, types: "Mapping[str, pyarrow.DataType]") -> Self:
        """The same for reading these columns, once it is found to have them.

        `types` are those in which to read columns whose types are left open.
        """
        if self.names is not None:
            require_found(columns or [], self.names, "the data")
        return self


@dataclasses.dataclass(frozen=True)
class ArrayReader(AbstractReader):
    """Records that are all in memory, as a model takes them."""

    records: Any

    def __post_init__(self):
        object.__setattr__(self, "records", _finite("records", self.records))

    @property
    def rows(self) -> int:
        """Number of records."""
        return Piece("records", 0, self.records).size

    @property
    def names(self) -> None:
        """Arrays have no columns."""

    def signature(self) -> tuple[Any, ...]:
        """All that they hold."""
        return (self.records,)

    def pieces(self, columns, size) -> Iterator[Piece]:
        """Slices of the arrays."""
        everything = Piece("records", 0, self.records)
        for first in range(0, self.rows, size):
            yield everything.between(first, min(first + size, self.rows))


@dataclasses.dataclass
class BatchReader(AbstractReader):
    """Batches from an iterator, or from a function that returns one for every pass.

    Batches are Arrow tables, data frames, or records as a model takes them.
    """

    make: Callable[[], Iterable[Any]]
    is_once: bool = False
    conditions: tuple[Condition, ...] = ()
    is_used: bool = dataclasses.field(default=False, init=False)

    @property
    def rows(self) -> None:
        """Nobody knows before the end."""

    @property
    def names(self) -> None:
        """Each batch may be a table, or records."""

    def pieces(self, columns, size) -> Iterator[Piece]:
        """The batches as they come, none larger than `size`."""
        _require_unused(self)
        self.is_used = True
        shape = None
        for number, batch in enumerate(self.make()):
            name = f"batch {number} as given"
            if has_arrow_stream(batch):
                found = "a table"
            elif self.conditions:
                raise Refused(f"where must be left out for records that are no tables, such as {name}")
            else:
                batch = _finite(name, batch)
                found = shape_of(batch)
            if shape is not None and found != shape:
                raise Refused(f"{name} must be like those before it, {shape}, but is {found}")
            shape = found
            if found == "a table":
                yield from _pieces_of_table(batch, name, columns, self.conditions, size)
            else:
                yield from (each._replace(name=name) for each in ArrayReader(batch).pieces(columns, size))


@dataclasses.dataclass
class StreamReader(AbstractReader):
    """A table in memory or a query, as an Arrow stream: pandas, Polars, DuckDB, Arrow."""

    table: Any
    conditions: tuple[Condition, ...] = ()
    is_used: bool = dataclasses.field(default=False, init=False)

    @property
    def is_once(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """A reader of Arrow's is used up; tables and queries are not."""
        return type(self.table).__name__ == "RecordBatchReader"

    @property
    def rows(self) -> int | None:
        """Number of records, where the table tells."""
        # Of a query, only running it does.
        is_frame = type(self.table).__module__.split(".")[0] in ("pandas", "polars", "pyarrow")
        return len(self.table) if is_frame and not self.is_once and not self.conditions else None

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return self._names

    def signature(self) -> tuple[Any, ...]:
        """All that the table holds, and which records of it are wanted."""
        digest = hashlib.blake2b(digest_size=16)
        for batch in () if self.is_once else _stream_of(self.table):
            digest.update(batch.serialize())
        return self.names, digest.hexdigest(), repr(self.conditions)

    @functools.cached_property
    def _names(self) -> list[str]:
        return _names_of(self.table)

    def pieces(self, columns, size) -> Iterator[Piece]:
        """The table in the pieces in which it comes, none larger than `size`."""
        _require_unused(self)
        self.is_used = True
        yield from _pieces_of_table(self.table, "the table", columns, self.conditions, size)


def has_arrow_stream(value: Any) -> bool:
    """Whether a value is a table in Arrow's sense."""
    return hasattr(value, "__arrow_c_stream__") or type(value).__name__ == "RecordBatch"


def chosen(
    piece: Piece, columns: list[str] | None, expression: "pyarrow.dataset.Expression | None"
) -> Iterator[Piece]:
    """Those records of a piece that meet a condition, with these columns."""
    import numpy as np
    import pyarrow

    table = pyarrow.Table.from_batches([piece.content])
    if expression is None:
        yield piece if columns is None else piece._replace(content=piece.content.select(columns))
        return
    numbers = np.arange(piece.first, piece.first + len(table))
    for batch in table.append_column(NUMBERS, pyarrow.array(numbers)).filter(expression).to_batches():
        rows = batch.column(NUMBERS).to_numpy()
        content = batch.select(list(table.schema.names) if columns is None else columns)
        if len(rows):
            yield Piece(piece.name, int(rows[0]), content, rows)


def _require_unused(reader: "BatchReader | StreamReader") -> None:
    if reader.is_once and reader.is_used:
        raise Refused(
            "records must be read more than once, which an iterator cannot; give a function that returns one"
        )


def _pieces_of_table(
    table: Any, name: str, columns: list[str] | None, conditions: tuple[Condition, ...], size: int
) -> Iterator[Piece]:
    import pyarrow

    wanted = list(dict.fromkeys([*(columns or ()), *(each for each, _, _ in conditions)]))
    require_found(wanted, _names_of(table), name)
    row, expression = 0, None
    try:
        for batch in _stream_of(table, None if columns is None else wanted):
            plain = _without_views(batch)
            if expression is None:
                expression = expression_of(conditions, plain.schema)
            for start in range(0, batch.num_rows, size):
                yield from chosen(Piece(name, row + start, plain.slice(start, size)), columns, expression)
            row += batch.num_rows
    except (pyarrow.ArrowException, OSError) as error:
        raise Refused(f"{name} cannot be read beyond row {row}") from told(error)


def _names_of(table: Any) -> list[str]:
    """Names of the columns of a table, a frame or a stream."""
    return [str(name) for name in table.columns] if _is_pandas(table) else _stream_of(table).schema.names


def _stream_of(table: Any, columns: list[str] | None = None) -> "pyarrow.RecordBatchReader":
    """The table as a stream; of one that would be copied, these columns alone."""
    import pyarrow

    if isinstance(table, pyarrow.RecordBatchReader):
        return table
    if isinstance(table, pyarrow.RecordBatch):
        table = pyarrow.Table.from_batches([table])
    if _is_pandas(table):
        places = [place for place, name in enumerate(_names_of(table)) if columns is None or name in columns]
        # The index is no column of the records, though Arrow would make it one.
        table = pyarrow.Table.from_pandas(table.iloc[:, places], preserve_index=False)
    return pyarrow.RecordBatchReader.from_stream(table)


def _is_pandas(table: Any) -> bool:
    return type(table).__module__.split(".")[0] == "pandas"


def _without_views(batch: "pyarrow.RecordBatch") -> "pyarrow.RecordBatch":
    """The same in types that Arrow can choose records from; Polars gives others."""
    import pyarrow
    from pyarrow import types

    columns = []
    for column in batch.columns:
        kind = column.type
        if types.is_string_view(kind):
            column = column.cast(pyarrow.large_string())
        elif types.is_dictionary(kind) and types.is_string_view(kind.value_type):
            words = column.dictionary.cast(pyarrow.large_string())
            column = pyarrow.DictionaryArray.from_arrays(column.indices, words)
        columns.append(column)
    return pyarrow.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _finite(name: str, records: Any) -> Any:
    try:
        return require_finite_records(records)
    except BadRow as error:
        raise Refused(f"{name}, {error}") from error
    except Refused as error:
        raise Refused(f"{name}: {error}") from error
