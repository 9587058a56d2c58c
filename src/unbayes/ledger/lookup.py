"""Finding the records of people where the operator keeps them."""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unbayes.data.choosing import require_found
from unbayes.data.names import names_of
from unbayes.data.readers import AbstractReader, Piece, has_arrow_stream
from unbayes.data.refusal import BadRow, Refused
from unbayes.data.scan import Scan, reader_of
from unbayes.data.source import BATCH_ROWS
from unbayes.ledger.errors import NotFound
from unbayes.ledger.records import Records, TableColumns

if TYPE_CHECKING:
    import numpy as np

PLACE = "the source"


@dataclasses.dataclass(frozen=True)
class Lookup:
    """Data of the operator's own, in which the records of people are found.

    Only those parts are read that may hold some: of sorted Parquet files a few row groups, of data that are
    partitioned by person a file or two.

    Attributes
    ----------
    place
        As `unbayes.scan` takes it: a file, a folder, a pattern, an address such as "s3://bucket/data", or a
        list of them.
    person
        The column that says whose a record is, by words or whole numbers.
    format, storage_options
        As `unbayes.scan` takes them.
    """

    place: Any
    person: str
    format: str | None = None
    storage_options: dict[str, Any] | None = dataclasses.field(default=None, repr=False)

    def find(self, people: Sequence[str], columns: TableColumns) -> dict[str, Records]:
        """The records of each of these people, found in one pass; who has none is not in it."""
        condition = (self.person, "named", list(people))
        found = _by_person(self._reader(columns, condition), columns, self.person)
        return {who: found[who] for who in people if who in found}

    def require(self, columns: TableColumns | None = None) -> None:
        """Refuse a place that cannot be read, or lacks columns of a model."""
        self._reader(columns, None)

    def _reader(self, columns: TableColumns | None, condition: Any) -> AbstractReader:
        ids, types = (None, {}) if columns is None else (columns.ids, columns.types)
        reader = reader_of(self.place, condition, self.format, self.storage_options, ids)
        wanted = [*([] if columns is None else _names(columns)), self.person]
        _require_columns(reader, wanted)
        return reader.prepared(list(dict.fromkeys(wanted)), types)


def records_of(rows: "Records | Lookup | Scan | Path", subject: str, columns: TableColumns) -> Records:
    """The records of a person: given, all in a table or a scan, or found among others."""
    if isinstance(rows, Records):
        return rows
    if isinstance(rows, Path):
        return Records.of_table(rows, columns)
    if isinstance(rows, Scan):
        return all_of(rows, columns)
    found = rows.find([subject], columns)
    if not found:
        raise NotFound(f"{PLACE} has no records of this person")
    return found[subject]


def by_person(source: Scan, columns: TableColumns, person: str) -> dict[str, Records]:
    """All records of a source, by the person that a column names, in the order of their first rows."""
    return _by_person(source.reader, columns, person)


def _by_person(reader: AbstractReader, columns: TableColumns, person: str) -> dict[str, Records]:
    rows = _Rows(columns, person)
    rows.read(reader)
    rows_of: dict[str, list[int]] = {}
    for row, who in enumerate(rows.people):
        rows_of.setdefault(who, []).append(row)
    return {who: rows.records(some) for who, some in rows_of.items()}


def all_of(source: Scan, columns: TableColumns) -> Records:
    """All records of a source."""
    rows = _Rows(columns, None)
    rows.read(source.reader)
    if not rows.ids:
        raise Refused(f"{PLACE} must hold the person's records, but has none")
    return rows.records(range(len(rows.ids)))


class _Rows:
    """Rows that were read so far."""

    def __init__(self, columns: TableColumns, person: str | None):
        self.columns, self.person = columns, person
        self.ids, self.people = list[str](), list[str]()
        self._numbers: list[np.ndarray] = []

    def read(self, reader: AbstractReader) -> None:
        wanted = [*_names(self.columns), *([] if self.person is None else [self.person])]
        _require_columns(reader, wanted)
        for piece in reader.pieces(list(dict.fromkeys(wanted)), BATCH_ROWS):
            with _named(piece):
                self._add(piece.content)

    def _add(self, table: Any) -> None:
        if not has_arrow_stream(table):
            raise Refused("a table with the model's columns is needed, but these are records without names")
        self._numbers.append(self.columns.matrix([table]))
        self.ids += _words(table, self.columns.ids)
        if self.person is not None:
            self.people += _words(table, self.person)

    def records(self, rows: Sequence[int]) -> Records:
        import numpy as np

        if len(self._numbers) > 1:
            self._numbers = [np.concatenate(self._numbers)]
        return Records(tuple(self.ids[row] for row in rows), self._numbers[0][list(rows)])


def _names(columns: TableColumns) -> list[str]:
    return [*columns.columns, columns.ids]


def _words(table: Any, column: str) -> list[str]:
    return names_of(table.column(column).to_pylist(), f"column {column}")


def _require_columns(reader: AbstractReader, wanted: Sequence[str]) -> None:
    if reader.names is not None:
        require_found(list(dict.fromkeys(wanted)), reader.names, PLACE)


@contextlib.contextmanager
def _named(piece: Piece) -> Iterator[None]:
    """Within this context, a refusal says where the trouble is."""
    try:
        yield
    except BadRow as error:
        raise Refused(f"{piece.name}, row {piece.row(error.row)} (from 0), {error.what}") from error
    except Refused as error:
        raise Refused(f"{piece.name}: {error}") from error
