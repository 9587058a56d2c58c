"""What reads records: tables in memory, arrays, and whatever a function of a user's yields."""

import abc
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from unbayes.data.encoding import require_finite_records
from unbayes.data.refusal import Refused

if TYPE_CHECKING:
    import pyarrow


class Piece(NamedTuple):
    """Records that were read at once: a piece of a table, or records as a model takes them already."""

    name: str
    first: int
    content: Any


class AbstractReader(abc.ABC):
    """Reads pieces of some records, in order.

    Attributes
    ----------
    rows
        Number of records, where that is known without reading them.
    is_once
        Whether they can be read a single time.
    names
        Names of the columns; None where it yields records, not tables.
    """

    is_once: bool = False

    @property
    @abc.abstractmethod
    def rows(self) -> int | None:
        """Number of records, where known."""

    @property
    @abc.abstractmethod
    def names(self) -> list[str] | None:
        """Names of the columns; None where it yields records as a model takes them."""

    @abc.abstractmethod
    def pieces(self, columns: list[str] | None, size: int) -> Iterator[Piece]:
        """The records with these columns (None: all), at most about `size` at a time."""

    def parts(self) -> "Sequence[AbstractReader]":
        """Readers of parts that together hold the same records: the same parts, however many work on them."""
        return [self]


@dataclasses.dataclass(frozen=True)
class ArrayReader(AbstractReader):
    """Records that are all in memory, as a model takes them."""

    records: Any

    def __post_init__(self):
        object.__setattr__(self, "records", _finite(Piece("records", 0, self.records)).content)

    @property
    def rows(self) -> int:
        """Number of records."""
        import jax

        return len(jax.tree.leaves(self.records)[0])

    @property
    def names(self) -> None:
        """Arrays have no columns."""

    def pieces(self, columns, size) -> Iterator[Piece]:
        """Slices of the arrays."""
        import jax

        for first in range(0, self.rows, size):
            here = slice(first, first + size)
            yield Piece("records", first, jax.tree.map(lambda leaf, here=here: leaf[here], self.records))


@dataclasses.dataclass
class BatchReader(AbstractReader):
    """Batches from an iterator, or from a function that returns one for every pass.

    Batches are Arrow tables, data frames, or records as a model takes them.
    """

    make: Callable[[], Iterable[Any]]
    is_once: bool = False
    is_used: bool = dataclasses.field(default=False, init=False)

    @property
    def rows(self) -> None:
        """Nobody knows before the end."""

    @property
    def names(self) -> None:
        """Each batch may be a table, or records."""

    def pieces(self, columns, size) -> Iterator[Piece]:
        """The batches as they come."""
        if self.is_once and self.is_used:
            raise Refused(
                "records must be read more than once, which an iterator cannot; give a function that "
                "returns one"
            )
        self.is_used = True
        shape = None
        for number, batch in enumerate(self.make()):
            name = f"batch {number} as given"
            if has_arrow_stream(batch):
                for first, piece in _stream(batch):
                    yield Piece(name, first, _select(piece, columns, name))
                continue
            piece = _finite(Piece(name, 0, batch))
            found = _shape(piece.content)
            if shape is not None and found != shape:
                raise Refused(f"{name} must be like those before it, {shape}, but is {found}")
            shape = found
            yield piece


@dataclasses.dataclass(frozen=True)
class StreamReader(AbstractReader):
    """A table in memory or a query, as an Arrow stream: pandas, Polars, DuckDB, Arrow."""

    table: Any

    @property
    def is_once(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """A reader of Arrow's is used up; tables and queries are not."""
        return type(self.table).__name__ == "RecordBatchReader"

    @property
    def rows(self) -> int | None:
        """Number of records, where the table tells."""
        # Of a query, only running it does.
        return len(self.table) if hasattr(self.table, "columns") and _is_frame(self.table) else None

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        import pyarrow

        if isinstance(self.table, pyarrow.RecordBatchReader):
            return list(self.table.schema.names)
        return list(pyarrow.RecordBatchReader.from_stream(self.table).schema.names)

    def pieces(self, columns, size) -> Iterator[Piece]:
        """The table in the pieces in which it comes, none larger than `size`."""
        for first, batch in _stream(self.table):
            chosen = _select(batch, columns, "the table")
            for start in range(0, chosen.num_rows, size):
                yield Piece("the table", first + start, chosen.slice(start, size))


def has_arrow_stream(value: Any) -> bool:
    """Whether a value is a table in Arrow's sense."""
    return hasattr(value, "__arrow_c_stream__") or type(value).__name__ == "RecordBatch"


def _is_frame(table: Any) -> bool:
    return type(table).__module__.split(".")[0] in ("pandas", "polars", "pyarrow")


def _stream(table: Any) -> Iterator[tuple[int, "pyarrow.RecordBatch"]]:
    """Pieces of a table, and the row with which each begins."""
    import pyarrow

    if isinstance(table, pyarrow.RecordBatch):
        table = pyarrow.Table.from_batches([table])
    stream = table if isinstance(table, pyarrow.RecordBatchReader) else None
    first = 0
    for batch in stream or pyarrow.RecordBatchReader.from_stream(table):
        yield first, batch
        first += batch.num_rows


def _select(batch: "pyarrow.RecordBatch", columns: list[str] | None, name: str) -> "pyarrow.RecordBatch":
    if columns is None:
        return batch
    if missing := [each for each in columns if each not in batch.schema.names]:
        raise Refused(f"{name} must have a column {missing[0]}; it has {', '.join(batch.schema.names)}")
    return batch.select(columns)


def _finite(piece: Piece) -> Piece:
    try:
        return piece._replace(content=require_finite_records(piece.content))
    except Refused as error:
        raise Refused(f"{piece.name}: {error}") from error


def _shape(records: Any) -> Any:
    """Structure, trailing shapes and kinds of records: what batches of one source share."""
    import jax

    return jax.tree.map(
        lambda leaf: f"{leaf.dtype.kind}(n{''.join(f', {k}' for k in leaf.shape[1:])})", records
    )
