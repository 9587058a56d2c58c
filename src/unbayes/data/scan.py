"""`scan`: one way to name records, wherever they are."""

import collections
import dataclasses
import os
import types
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, cast

from unbayes.data.ahead import ahead
from unbayes.data.columns import Column, Columns
from unbayes.data.delta import is_delta, read_delta
from unbayes.data.encoding import AbstractEncoder, Function, joined, names_in, require_alike
from unbayes.data.iceberg import IcebergReader, is_iceberg
from unbayes.data.readers import (
    AbstractReader,
    ArrayReader,
    BatchReader,
    Piece,
    StreamReader,
    has_arrow_stream,
)
from unbayes.data.refusal import BadRow, Refused
from unbayes.data.source import (
    BATCH_ROWS,
    AbstractSource,
    AbstractTask,
    Advance,
    Batch,
    Stretch,
    add_all,
    name_of,
    work,
)
from unbayes.data.where import Where, conditions_of, require_columns


@dataclasses.dataclass(frozen=True)
class Scan(AbstractSource):
    """Records as a model takes them, read in batches of bounded size.

    Attributes
    ----------
    reader
        What reads them.
    encoder
        What makes records of a piece of a table; None where the reader yields records.
    ids
        Name of the column of identifiers.
    batch_rows
        Records of a full batch.
    part
        Which part of a source it is, from 0.
    """

    reader: AbstractReader
    encoder: AbstractEncoder | None = None
    ids: str | None = None
    batch_rows: int = BATCH_ROWS
    part: int = 0

    @property
    def rows(self) -> int | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Number of records, where that is known without reading them."""
        return self.reader.rows

    @property
    def is_once(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether it can be read a single time."""
        return self.reader.is_once

    @property
    def has_ids(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether its records have identifiers."""
        return self.ids is not None

    @property
    def signature(self) -> str:
        """What tells these records from others: files by name, size and time, arrays by what they hold."""
        from unbayes._numerics.fingerprint import fingerprint

        code = _written(getattr(getattr(self.encoder, "function", None), "__code__", None))
        return fingerprint(self.reader.signature(), self.encoder, code, self.ids, self.batch_rows)

    def parts(self) -> list["Scan"]:
        """Parts that together hold the same records: the same ones, however many work on them."""
        readers = self.reader.parts()
        return [dataclasses.replace(self, reader=each, part=part) for part, each in enumerate(readers)]

    def total(self, task: AbstractTask, advance: Advance | None = None) -> Any:
        """The sum over all records of what `task` makes of them, part by part, in this process."""
        return add_all(task, [work(task, part.batches(), advance) for part in self.parts()])

    def batches(self) -> Iterator[Batch]:
        """Batches of `batch_rows` records, the last one of what is left."""
        # A function of a user's may belong to this thread.
        goes_ahead = self.reader.goes_ahead and not isinstance(self.encoder, Function)
        return ahead(self._batches()) if goes_ahead else self._batches()

    def _batches(self) -> Generator[Batch, None, None]:
        waiting: collections.deque[Piece] = collections.deque()
        held = number = 0
        shape = None
        try:
            for piece in self.reader.pieces(self.columns, self.batch_rows):
                if piece.size:
                    waiting.append(piece)
                    held += piece.size
                while held >= self.batch_rows:
                    batch = self._batch(_taken(waiting, self.batch_rows), number)
                    shape = require_alike(batch.records, shape)
                    held, number = held - self.batch_rows, number + 1
                    yield batch
            if held:
                batch = self._batch(_taken(waiting, held), number)
                require_alike(batch.records, shape)
                yield batch
        except Refused as error:
            raise Refused(f"{name_of(self.part, number)}: {error}") from error

    @property
    def columns(self) -> list[str] | None:
        """Names of the columns that are read; None for all."""
        wanted = None if self.encoder is None else self.encoder.columns
        if wanted is None or self.ids is None or self.ids in wanted:
            return wanted
        return [*wanted, self.ids]

    def _batch(self, pieces: list[Piece], number: int) -> Batch:
        if any(each.is_table for each in pieces):
            records, ids = self._encoded(pieces)
        elif self.encoder is not None or self.ids is not None:
            raise Refused(f"columns, target and ids must be left out: {pieces[0].name} is no table")
        else:
            records, ids = joined([each.content for each in pieces]), None
        size = sum(each.size for each in pieces)
        return Batch(records, size, self.batch_rows, ids, self.part, number, _stretches(pieces))

    def _encoded(self, pieces: list[Piece]) -> tuple[Any, list[str] | None]:
        """Records of pieces of tables, and their identifiers."""
        if self.encoder is None:
            raise Refused(f"columns and target must be named: {pieces[0].name} is a table")
        tables = [each.content for each in pieces]
        try:
            records = self.encoder.encode(tables)
            ids = None if self.ids is None else names_in(tables, self.ids)
        except BadRow as error:
            places = [(piece, row) for piece in pieces for row in range(piece.size)]
            piece, row = places[error.row]
            raise Refused(f"{piece.name}, row {piece.row(row)} (from 0), {error.what}") from error
        return records, ids


def _written(code: Any) -> Any:
    """What a function does, as far as its own lines say."""
    if not isinstance(code, types.CodeType):
        return code if isinstance(code, bool | int | float | str | None) else repr(type(code))
    return code.co_code.hex(), code.co_names, [_written(each) for each in code.co_consts]


def _taken(waiting: "collections.deque[Piece]", size: int) -> list[Piece]:
    """The first `size` records that wait, which then wait no longer."""
    taken = []
    while size:
        piece = waiting.popleft()
        if piece.size > size:
            waiting.appendleft(piece.between(size, piece.size))
            piece = piece.between(0, size)
        taken.append(piece)
        size -= piece.size
    return taken


def _stretches(pieces: list[Piece]) -> tuple[Stretch, ...]:
    """Where they were read, each place once."""
    found: list[Stretch] = []
    for piece in pieces:
        here = Stretch(piece.name, piece.first, piece.row(piece.size - 1))
        if found and found[-1].name == here.name:
            here = Stretch(here.name, found.pop().first, here.last)
        found.append(here)
    return tuple(found)


def scan(
    data: Any,
    *,
    columns: Sequence[str | Column] | AbstractEncoder | Callable[[Any], Any] | None = None,
    target: str | None = None,
    ids: str | None = None,
    where: Where | None = None,
    format: str | None = None,
    storage_options: dict[str, Any] | None = None,
    batch_rows: int = BATCH_ROWS,
) -> Scan:
    """Records wherever they are, in batches: what `fit`, `unlearn` and others take in place of arrays.

    Parameters
    ----------
    data
        A file, a folder, a pattern such as "data/*.parquet" or an address such as "s3://bucket/data", or a
        list of them: Parquet, Feather or CSV. A Delta table: its address, or a `deltalake.DeltaTable` at any
        version. A table of pyiceberg's, or a scan of one. A dataset of Arrow's. A table in memory: pandas,
        Polars, DuckDB, Arrow. A pair of arrays. An iterator of batches, or a function that returns one and is
        called for every pass; batches are tables, or records as the model takes them.
    columns
        Of a table: the names of the inputs, in the model's order, by default all but the target and `ids`;
        or the `Columns` of training, which encode them as they were; or a function from a piece of the
        table, an Arrow record batch, to records as the model takes them.
    target
        Name of the target; without one, records are inputs alone.
    ids
        Name of the column of identifiers, by which records will be erased.
    where
        A condition such as ("customer", "in", [17, 35]), or a list of them, all of which a record must meet.
        Files and row groups that cannot hold such records are not read.
    format
        "parquet", "feather", "csv" or "delta"; by default what the files are called and the folder holds.
    storage_options
        For the file system, as fsspec takes them; for a Delta table, as deltalake does.
    batch_rows
        Records of a batch.
    """
    return scan_of(
        reader_of(data, where, format, storage_options, ids), columns, target, ids, where, batch_rows
    )


def scan_of(
    reader: AbstractReader,
    columns: Any,
    target: str | None,
    ids: str | None,
    where: Any,
    batch_rows: int = BATCH_ROWS,
) -> Scan:
    """Of what a reader reads, as `scan` does."""
    if not isinstance(batch_rows, int) or batch_rows < 1:
        raise ValueError(f"batch_rows must be a number of records, at least 1, got {batch_rows!r}")
    found = Scan(reader, _encoder(reader, columns, target, ids, where), ids, batch_rows)
    types = {} if found.encoder is None else found.encoder.types
    return dataclasses.replace(found, reader=reader.prepared(found.columns, types))


def reader_of(
    data: Any,
    where: Any,
    format: str | None,
    storage_options: dict[str, Any] | None,
    ids: str | None,
) -> AbstractReader:
    """What reads such data, as `scan` takes them."""
    conditions = conditions_of(where)
    # Identifiers such as 007 are words, whatever they look like.
    words = {name for name, operator, _ in conditions if operator == "named"} | {ids or ""}
    if is_delta(data, format, storage_options):
        return read_delta(data, conditions, storage_options)
    if is_iceberg(data):
        return IcebergReader.open(data, conditions)
    is_place = isinstance(data, str | os.PathLike) or (
        isinstance(data, list) and all(isinstance(each, str | os.PathLike) for each in data)
    )
    if is_place or hasattr(data, "get_fragments"):
        from unbayes.data.files import FileReader

        if is_place:
            return FileReader.open(data, conditions, format, storage_options, words)
        return FileReader.of_dataset(data, conditions)
    if has_arrow_stream(data):
        reader = StreamReader(data, conditions)
        require_columns(conditions, reader.names)
        return reader
    if isinstance(data, Iterator):
        return BatchReader(lambda: data, True, conditions)
    if callable(data):
        return BatchReader(cast(Callable[[], Iterable[Any]], data), False, conditions)
    if isinstance(data, list) and data and all(map(has_arrow_stream, data)):
        return BatchReader(lambda: data, False, conditions)
    if conditions:
        raise Refused("where must be left out for arrays, whose columns have no names")
    import jax

    leaves = jax.tree.leaves(data)
    if not leaves or not all(hasattr(leaf, "shape") for leaf in leaves):
        raise Refused(
            "data must be a place, a table, arrays, or an iterator of batches or a function to one, "
            f"got a {type(data).__name__}"
        )
    return ArrayReader(data)


def _encoder(
    reader: AbstractReader, columns: Any, target: str | None, ids: str | None, where: Any
) -> AbstractEncoder | None:
    if isinstance(columns, AbstractEncoder):
        if target is not None:
            raise Refused("target must be left out: columns name it")
        return columns
    if callable(columns):
        return Function(columns)
    if isinstance(columns, str):
        raise Refused("columns must be a list of names, got one name; give [name]")
    if columns is not None:
        return Columns(columns, target)
    others = others_of(reader.names, target, ids, where)
    return Columns(others, target) if others or target is not None else None


def others_of(names: Sequence[str] | None, target: str | None, ids: str | None, where: Any) -> list[str]:
    """Of all columns those that are not the target, identifiers, or in a condition."""
    used = {target, ids, *(name for name, _, _ in conditions_of(where))}
    return [name for name in names or () if name not in used]


def is_source(value: Any) -> bool:
    """Whether records are a source, or what one can be made of without being told more."""
    return isinstance(value, AbstractSource | Iterator) or (callable(value) and not hasattr(value, "shape"))


def as_source(value: Any) -> AbstractSource:
    """The source, or one of an iterator or a function."""
    return value if isinstance(value, AbstractSource) else scan(value)


def tables(data: Iterable[Any], **settings: Any) -> Scan:
    """A scan of batches that are in an iterator already; for engines, whose parts are."""
    return scan(iter(data), **settings)
