"""`scan`: one way to name records, wherever they are."""

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, cast

from unbayes.data.choosing import require_found
from unbayes.data.encoding import AbstractEncoder, BadRow, Function, Numbers
from unbayes.data.names import names_of
from unbayes.data.readers import (
    AbstractReader,
    ArrayReader,
    BatchReader,
    Piece,
    StreamReader,
    has_arrow_stream,
)
from unbayes.data.refusal import Refused
from unbayes.data.source import (
    BATCH_ROWS,
    AbstractSource,
    AbstractTask,
    Advance,
    Batch,
    Stretch,
    add_all,
    work,
)
from unbayes.data.where import Where, conditions_of


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

    def parts(self) -> list["Scan"]:
        """Parts that together hold the same records: the same ones, however many work on them."""
        readers = self.reader.parts()
        return [dataclasses.replace(self, reader=each, part=part) for part, each in enumerate(readers)]

    def total(self, task: AbstractTask, advance: Advance | None = None) -> Any:
        """The sum over all records of what `task` makes of them, part by part, in this process."""
        return add_all(task, [work(task, part.batches(), advance) for part in self.parts()])

    def batches(self) -> Iterator[Batch]:
        """Batches of `batch_rows` records, the last one of what is left."""
        waiting: list[_Held] = []
        held = number = 0
        for piece in self.reader.pieces(self._columns, self.batch_rows):
            waiting.append(self._encode(piece, number))
            held += waiting[-1].stretch.size
            while held >= self.batch_rows:
                batch, waiting = self._cut(waiting, self.batch_rows, number)
                held, number = held - self.batch_rows, number + 1
                yield batch
        if held:
            yield self._cut(waiting, held, number)[0]

    @property
    def _columns(self) -> list[str] | None:
        wanted = None if self.encoder is None else self.encoder.columns
        if wanted is None or self.ids is None or self.ids in wanted:
            return wanted
        return [*wanted, self.ids]

    def _encode(self, piece: Piece, number: int) -> "_Held":
        import jax

        if not has_arrow_stream(piece.content):
            count = len(jax.tree.leaves(piece.content)[0])
            return _Held(piece.content, None, Stretch(piece.name, piece.first, count))
        if self.encoder is None:
            raise Refused(f"columns and target must be named: {piece.name} is a table")
        stretch = Stretch(piece.name, piece.first, piece.content.num_rows)
        try:
            records = self.encoder.encode(piece.content)
            ids = None
            if self.ids is not None:
                ids = names_of(piece.content.column(self.ids).to_pylist(), f"column {self.ids}")
        except BadRow as error:
            row = piece.first + error.row
            raise Refused(f"{piece.name}, row {row} (from 0; batch {number}), {error.what}") from error
        except Refused as error:
            raise Refused(f"{piece.name} (batch {number}): {error}") from error
        return _Held(records, ids, stretch)

    def _cut(self, waiting: "list[_Held]", size: int, number: int) -> "tuple[Batch, list[_Held]]":
        """A batch of the first `size` records that wait, and what waits still."""
        import jax
        import numpy as np

        taken, count = [], 0
        while count < size:
            first, *rest = waiting
            some, others = first.split(size - count)
            taken.append(some)
            count += some.stretch.size
            waiting = rest if others is None else [others, *rest]
        records = taken[0].records
        if len(taken) > 1:
            records = jax.tree.map(lambda *leaves: np.concatenate(leaves), *(each.records for each in taken))
        ids = None if self.ids is None else [name for each in taken for name in each.ids or ()]
        stretches = tuple(each.stretch for each in taken)
        return Batch(records, size, self.batch_rows, ids, self.part, number, stretches), waiting


@dataclasses.dataclass(frozen=True)
class _Held:
    """Records that wait for a batch to be full."""

    records: Any
    ids: list[str] | None
    stretch: Stretch

    def split(self, size: int) -> "tuple[_Held, _Held | None]":
        """The first `size` of them, and the others."""
        if self.stretch.size <= size:
            return self, None
        return self._between(0, size), self._between(size, self.stretch.size)

    def _between(self, first: int, last: int) -> "_Held":
        import jax

        return _Held(
            jax.tree.map(lambda leaf: leaf[first:last], self.records),
            None if self.ids is None else self.ids[first:last],
            Stretch(self.stretch.name, self.stretch.first + first, last - first),
        )


def scan(
    data: Any,
    *,
    columns: Sequence[str] | AbstractEncoder | Callable[[Any], Any] | None = None,
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
        list of them: Parquet, Feather or CSV. A dataset of Arrow's. A table: pandas, Polars, DuckDB, Arrow. A
        pair of arrays. An iterator of batches, or a function that returns one and is called for every pass;
        batches are tables, or records as the model takes them.
    columns
        Of a table: the names of the inputs, in the model's order, by default all but the target and `ids`;
        or `Columns`, which know how training encoded them; or a function from a piece of the table, an Arrow
        record batch, to records as the model takes them.
    target
        Name of the target; without one, records are inputs alone.
    ids
        Name of the column of identifiers, by which records will be erased.
    where
        A condition such as ("customer", "in", [17, 35]), or a list of them, all of which a record must meet.
        Files and row groups that cannot hold such records are not read.
    format
        "parquet", "feather" or "csv"; by default what the files are called.
    storage_options
        For the file system, as fsspec takes them.
    batch_rows
        Records of a batch.
    """
    if not isinstance(batch_rows, int) or batch_rows < 1:
        raise ValueError(f"batch_rows must be a number of records, at least 1, got {batch_rows!r}")
    reader = _reader(data, where, format, storage_options, ids)
    encoder = _encoder(reader, columns, target, ids, where)
    if encoder is not None and reader.names is not None:
        wanted = [*(encoder.columns or ()), *([ids] if ids is not None else [])]
        require_found(list(dict.fromkeys(wanted)), reader.names, "the data")
    return Scan(reader, encoder, ids, batch_rows)


def _reader(
    data: Any,
    where: Any,
    format: str | None,
    storage_options: dict[str, Any] | None,
    ids: str | None,
) -> AbstractReader:
    conditions = conditions_of(where)
    # Identifiers such as 007 are words, whatever they look like.
    words = {name for name, operator, _ in conditions if operator == "named"} | {ids or ""}
    is_place = isinstance(data, str | os.PathLike) or (
        isinstance(data, list) and data and all(isinstance(each, str | os.PathLike) for each in data)
    )
    if is_place or hasattr(data, "get_fragments"):
        from unbayes.data.files import FileReader

        if is_place:
            return FileReader.open(data, conditions, format, storage_options, words)
        return FileReader.of_dataset(data, conditions)
    if conditions:
        raise Refused("where must be left out for data that are not files: select the records before")
    if has_arrow_stream(data):
        return StreamReader(data)
    if isinstance(data, Iterator):
        return BatchReader(lambda: data, is_once=True)
    if callable(data):
        return BatchReader(cast(Callable[[], Iterable[Any]], data))
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
        return Numbers(tuple(columns), target)
    if reader.names is None:
        return None if target is None else Numbers(None, target)
    used = {target, ids, *(name for name, _, _ in conditions_of(where))}
    others = tuple(name for name in reader.names if name not in used)
    return Numbers(others or None, target)


def is_source(value: Any) -> bool:
    """Whether records are a source, or what one can be made of without being told more."""
    return isinstance(value, AbstractSource | Iterator) or (callable(value) and not hasattr(value, "shape"))


def as_source(value: Any) -> AbstractSource:
    """The source, or one of an iterator or a function."""
    return value if isinstance(value, AbstractSource) else scan(value)


def tables(data: Iterable[Any], **settings: Any) -> Scan:
    """A scan of batches that are in an iterator already; for engines, whose parts are."""
    return scan(iter(data), **settings)
